//! Finds programs by name, as a shell does.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The directories of the system's programs, including those of root's programs, which other users' PATH may lack.
const SYSTEM_DIRS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// PATH followed by the system's directories, for this process and for programs that it starts.
pub fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(SYSTEM_DIRS);
    path
}

/// Finds a program's file in PATH or in one of the system's directories. A name with a slash is the path of the file
/// itself. `None`: there is no such program.
pub fn find(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    find_in(name, &search_path())
}

/// Finds a program's file in one of the directories that `path` lists, separated by colons.
pub fn find_in(name: impl AsRef<OsStr>, path: &OsStr) -> Option<PathBuf> {
    let here = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    which::which_in(name, Some(path), here).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_executable_file_of_the_name_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |folder: &str| dir.path().join(folder);
        for (folder, mode) in [("plain", 0o644), ("first", 0o755), ("second", 0o755)] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("tool"), "").unwrap();
            fs::set_permissions(at(folder).join("tool"), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir_all(at("folder/tool")).unwrap();
        let path = env::join_paths(["none", "folder", "plain", "first", "second"].map(at)).unwrap();
        assert_eq!(find_in("tool", &path), Some(at("first/tool")));
        assert_eq!(find_in("tools", &path), None);
        assert_eq!(find_in(at("second/tool"), &path), Some(at("second/tool")));
    }

    #[test]
    fn programs_of_root_are_found_by_everybody() {
        assert!(search_path().to_string_lossy().ends_with(SYSTEM_DIRS));
        assert!(find("sh").is_some_and(|file| file.is_absolute()));
    }
}
