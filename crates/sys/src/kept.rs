//! Files that a program contains and other programs need: they are written to a folder of this user once, and stay there.

use std::fs::{self, File, Permissions};
use std::io::{Error as IoError, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::{OsError, trust, whole_file};

/// Makes sure that `folder`, which is made if it is missing, has a file with this name and content, from which programs can
/// load code. An existing file with other content is replaced; programs that have loaded it keep it. Returns its path.
///
/// # Errors
/// Others may write to the folder, it cannot be written, or programs there cannot be executed.
pub fn keep_code(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf, OsError> {
    trust::private_dir(folder)?;
    let about = rustix::fs::statvfs(folder)
        .map_err(|error| OsError::new("statvfs", folder.display(), error))?;
    if about.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        let why =
            IoError::other("the file system is mounted noexec, so no code can be loaded from it");
        return Err(OsError::new("use", folder.display(), why));
    }
    let path = folder.join(name);
    let is_there = fs::read(&path).is_ok_and(|found| found == content);
    if is_there && trust::check(&path).is_ok() {
        return Ok(path);
    }
    let write = |file: &mut File| {
        // Whatever the umask says: a program that has changed its user loads it, too.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(content)
    };
    whole_file::write(&path, write)
        .map_err(|error| OsError::new("write", path.display(), error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_once_and_replaced_if_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/folder");
        let path = keep_code(&folder, "code", b"one").unwrap();
        let first = fs::metadata(&path).unwrap();
        let inode = |about: &fs::Metadata| std::os::unix::fs::MetadataExt::ino(about);
        assert_eq!(first.permissions().mode() & 0o777, 0o644);
        keep_code(&folder, "code", b"one").unwrap();
        assert_eq!(inode(&fs::metadata(&path).unwrap()), inode(&first));
        keep_code(&folder, "code", b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        // One that others may write is not believed, whatever it contains, if they can get there.
        for open in [dir.path(), &dir.path().join("new"), &folder] {
            fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        let before = inode(&fs::metadata(&path).unwrap());
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        keep_code(&folder, "code", b"two").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert!(inode(&after) != before && after.permissions().mode() & 0o777 == 0o644);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(keep_code(&folder, "code", b"two").is_err());
    }
}
