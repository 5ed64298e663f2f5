//! The directory in which a node serves. A program with access to it may use the node.

use std::fs::{DirBuilder, File, OpenOptions, set_permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError, fdpass};

use crate::Error;
use crate::control::socket_path;

const BACKLOG: i32 = 4096;

/// The source of connections.
#[derive(Debug)]
pub(super) enum Listener {
    /// Programs with access to the directory connect.
    Directory(Directory),
    /// Connections are created on request and handed out.
    Private(OwnedFd),
}

impl Listener {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Directory(directory) => directory.listener.as_fd(),
            Listener::Private(fd) => fd.as_fd(),
        }
    }

    /// Accepts the next connection; EAGAIN if there is none.
    pub(super) fn accept(&self) -> Result<OwnedFd, Errno> {
        match self {
            Listener::Directory(directory) => socket::try_accept(&directory.listener),
            Listener::Private(fd) => {
                let mut fds = Vec::new();
                fdpass::receive(fd, &mut [0], &mut fds, true)?;
                fds.pop().ok_or(Errno::AGAIN)
            }
        }
    }
}

/// A directory that this node uses exclusively.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    listener: OwnedFd,
    /// The lock is held while the node serves; the system releases it however the node ends.
    _lock: File,
}

impl Directory {
    /// Locks the directory for this node ([`Error::Limit`] if another node serves there), and listens in it. If the
    /// directory does not exist, creates it with the permissions `mode` and with `group`; an existing directory keeps
    /// its own.
    pub(super) fn take(path: &Path, mode: u32, group: Option<u32>) -> Result<Directory, Error> {
        let failed = |call, error| Error::Os(OsError::new(call, path.display(), error));
        // Prevents access before the directory has its group.
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                let rights = std::os::unix::fs::PermissionsExt::from_mode(mode);
                let done = chown(path, None, group)
                    .map_err(|error| failed("chown", error))
                    .and_then(|()| {
                        // Not by mkdir: the umask would remove permissions.
                        set_permissions(path, rights).map_err(|error| failed("chmod", error))
                    });
                if let Err(error) = done {
                    let _ = std::fs::remove_dir(path);
                    return Err(error);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("mkdir", error)),
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(|error| failed("open the lock file in", error))?;
        if lock.try_lock().is_err() {
            return Err(Error::Limit(format!(
                "a LINX node already serves in {}; stop it, or choose another directory with --dir",
                path.display()
            )));
        }
        let at = socket_path(path);
        // No node serves there, as the lock shows.
        let _ = std::fs::remove_file(&at);
        let listener = socket::unix(SocketType::Seqpacket)?;
        socket::bind(&listener, &socket::path_address(&at)?, &at.display().to_string())?;
        // Access is controlled by the directory.
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        set_permissions(&at, everyone).map_err(|error| failed("chmod the socket in", error))?;
        socket::listen(&listener, BACKLOG)?;
        socket::set_nonblocking(&listener)?;
        Ok(Directory { path: path.to_owned(), listener, _lock: lock })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(socket_path(&self.path));
        let _ = std::fs::remove_file(self.path.join("lock"));
        // This fails if the directory contains other files, which is intended.
        let _ = std::fs::remove_dir(&self.path);
    }
}
