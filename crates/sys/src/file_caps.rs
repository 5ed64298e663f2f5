//! What a program's file gives to whoever runs it.

use std::path::Path;

/// Whether a program's file has capabilities (setcap), so that the loader trusts the environment of an ordinary user no more.
pub fn has_capabilities(path: &Path) -> bool {
    // Their longest form has 24 octets.
    let mut value = [0; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_has_none_and_one_that_is_missing_neither() {
        assert!(!has_capabilities(Path::new("/proc/self/exe")));
        assert!(!has_capabilities(Path::new("/nowhere")));
    }
}
