//! Reads the small text files that users write: plans, questions, declarations, keys.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Nobody writes a longer one, bytes.
const LONGEST: u64 = 16 << 20;

/// Reads a file that a user names. A device such as `/dev/zero` has no end, so what is longer than 16 MiB is refused.
///
/// # Errors
/// The file cannot be opened or read, is too long, or is not text.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::new(ErrorKind::FileTooLarge, "it is longer than 16 MiB"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not text (UTF-8)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_end_and_bytes_that_are_no_text_are_refused() {
        assert_eq!(read("/dev/zero").unwrap_err().kind(), ErrorKind::FileTooLarge);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(read(&file).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::write(&file, "good").unwrap();
        assert_eq!(read(&file).unwrap(), "good");
    }
}
