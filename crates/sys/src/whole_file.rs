//! Files that are written completely or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Error as IoError;
use std::path::Path;

use crate::lease;

/// Writes what `fill` produces to a new file beside `path`, which gets its name when it is
/// complete. What is at `path` is replaced, not written to: not even if it is a link, which a
/// stranger could have put there.
///
/// # Errors
/// Those of `fill`, and the file cannot be created or renamed.
pub fn write<T, E: From<IoError>>(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    let part = path.with_file_name(part_of(path));
    let attempt = || {
        let mut file = File::create_new(&part)?;
        let told = fill(&mut file)?;
        fs::rename(&part, path)?;
        Ok(told)
    };
    attempt().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// Checks that [`write()`] could create its file.
///
/// # Errors
/// The file cannot be created.
pub fn check(path: &Path) -> Result<(), IoError> {
    let part = path.with_file_name(part_of(path));
    File::create_new(&part)?;
    fs::remove_file(&part)
}

/// A name that no other writer of the file uses.
fn part_of(path: &Path) -> OsString {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.part", lease::random_number()));
    name
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("page"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        write(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(!path.is_symlink() && fs::read(&path).unwrap() == b"new");

        let failed = write(&path, |file| {
            file.write_all(b"half")?;
            Err::<(), _>(IoError::other("no more"))
        });
        check(&path).unwrap();
        assert!(failed.is_err() && fs::read(&path).unwrap() == b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(check(&dir.path().join("none/page")).is_err());
    }
}
