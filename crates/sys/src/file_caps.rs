//! File capabilities of programs.

use std::path::Path;

/// Whether a program's file has capabilities (setcap). The dynamic loader then ignores LD_PRELOAD and similar variables
/// of an unprivileged user.
pub fn has_capabilities(path: &Path) -> bool {
    // The longest form of the attribute has 24 bytes.
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
