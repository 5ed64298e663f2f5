//! Finds programs by name, as a shell does.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

/// Why a program cannot be executed that [`find_in`] does not find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no file of this name.
    NoFile,
    /// There is only a directory of this name.
    Directory(PathBuf),
    /// There is a file, but this user may not execute it.
    NotExecutable(PathBuf),
    /// There may be a file, but this user may not enter its directory.
    Unsearchable(PathBuf),
}

/// Says why [`find_in`] finds no program: what is at the first place where there is anything of its
/// name.
pub fn why_missing(name: impl AsRef<OsStr>, path: &OsStr) -> Missing {
    let name = Path::new(name.as_ref());
    // A name with a slash is looked for nowhere else.
    let is_path = name.as_os_str().as_encoded_bytes().contains(&b'/');
    let places: Vec<PathBuf> = match is_path {
        true => vec![name.to_owned()],
        false => env::split_paths(path).map(|dir| dir.join(name)).collect(),
    };
    let found = places.into_iter().find_map(|place| match place.metadata() {
        Ok(about) if about.is_dir() && !is_path => None,
        Ok(about) if about.is_dir() => Some(Missing::Directory(place)),
        Ok(_) => Some(Missing::NotExecutable(place)),
        // A folder of PATH that is closed to this user is no sign that the program is in it.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && is_path => {
            Some(Missing::Unsearchable(place))
        }
        Err(_) => None,
    });
    found.unwrap_or(Missing::NoFile)
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
        // What is found, and cannot be executed.
        let path = env::join_paths(["none", "folder", "plain"].map(at)).unwrap();
        assert_eq!(find_in("tool", &path), None);
        assert_eq!(why_missing("tool", &path), Missing::NotExecutable(at("plain/tool")));
        assert_eq!(why_missing("tools", &path), Missing::NoFile);
        assert_eq!(why_missing(at("none/tool"), &path), Missing::NoFile);
        let plain = at("plain/tool");
        assert_eq!(why_missing(&plain, &path), Missing::NotExecutable(plain));
        let folder = at("folder/tool");
        assert_eq!(why_missing(&folder, &path), Missing::Directory(folder));
    }

    #[test]
    fn programs_of_root_are_found_by_everybody() {
        assert!(search_path().to_string_lossy().ends_with(SYSTEM_DIRS));
        assert!(find("sh").is_some_and(|file| file.is_absolute()));
    }
}
