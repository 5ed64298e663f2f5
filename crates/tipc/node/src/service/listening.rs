//! The listening socket in the file system, on which programs open their control connections.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError};

/// Maximum number of connections waiting to be accepted; the kernel limits it to net.core.somaxconn.
const BACKLOG: i32 = 1_024;

/// Why the service cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Another tipcd uses this path.
    #[error(
        "another tipcd serves at {}: use that one, or start this one with another path (--socket)",
        .path.display()
    )]
    Taken {
        /// Path of the socket.
        path: PathBuf,
    },
    /// It cannot be determined whether another tipcd uses this path.
    #[error(
        "a socket of user {owner} is at {}, and this user cannot check whether another tipcd uses it ({errno}): use another path (--socket), \
         or have user {owner} or root remove the file if it is unused",
        .path.display()
    )]
    NotOurs {
        /// Path of the socket.
        path: PathBuf,
        /// User ID of its owner.
        owner: u32,
        /// The error from connecting.
        errno: Errno,
    },
    /// The socket left behind by a killed tipcd cannot be removed.
    #[error(
        "an unused socket of user {owner} at {} cannot be removed ({source}): have user {owner} or root remove it, or use another path (--socket)",
        .path.display()
    )]
    LeftOver {
        /// Path of the socket.
        path: PathBuf,
        /// User ID of its owner.
        owner: u32,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket: use another path (--socket)", .path.display())]
    NoSocket {
        /// The path that was requested.
        path: PathBuf,
    },
    /// The socket cannot be bound to the path.
    #[error("cannot serve at {}: {}; {}", .path.display(), .source.source, place(.path, .source))]
    Bind {
        /// The path that was requested.
        path: PathBuf,
        /// The underlying error.
        source: OsError,
    },
    /// Another system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// Returns the remedy for a path that cannot be bound.
fn place(path: &Path, error: &OsError) -> String {
    match Errno::from_raw_os_error(error.errno()) {
        Errno::NAMETOOLONG => {
            "a socket's path can have at most 107 bytes: use a shorter one (--socket)".to_owned()
        }
        Errno::NOENT => match path.parent() {
            Some(dir) if !dir.exists() => {
                format!("create the directory {}, or use another path (--socket)", dir.display())
            }
            _ => "no socket can be created there: use another path (--socket)".to_owned(),
        },
        Errno::NOSPC => "free some disk space, or use another path (--socket)".to_owned(),
        _ => "use a path in a directory that you may write to (--socket, or set XDG_RUNTIME_DIR)"
            .to_owned(),
    }
}

/// The listening socket; its file is removed with it.
#[derive(Debug)]
pub(super) struct ListeningSocket {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    /// Device and inode number of the file, so that a successor's file is not removed.
    file: Option<(u64, u64)>,
    /// A reserve descriptor, to be closed when no other is free. A program that cannot be admitted must be accepted
    /// nevertheless, to be given the reason; otherwise it would stay in the queue, and the listening socket would
    /// always poll readable.
    spare: Option<OwnedFd>,
}

impl ListeningSocket {
    pub(super) fn open(path: &Path, mode: u32) -> Result<Self, ServiceError> {
        let cannot = |source| ServiceError::Bind { path: path.to_owned(), source };
        let address = socket::path_address(path).map_err(cannot)?;
        let fd = socket::unix(SocketType::Seqpacket)?;
        socket::set_nonblocking(&fd)?;
        if let Ok(there) = fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                return Err(ServiceError::NoSocket { path: path.to_owned() });
            }
            match socket::connect(&socket::unix(SocketType::Seqpacket)?, &address) {
                // Left behind by a tipcd that was killed.
                Err(Errno::CONNREFUSED | Errno::NOENT) => {
                    if let Err(source) = fs::remove_file(path)
                        && source.kind() != std::io::ErrorKind::NotFound
                    {
                        let (path, owner) = (path.to_owned(), there.uid());
                        return Err(ServiceError::LeftOver { path, owner, source });
                    }
                }
                Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                    let (path, owner) = (path.to_owned(), there.uid());
                    return Err(ServiceError::NotOurs { path, owner, errno });
                }
                _ => return Err(ServiceError::Taken { path: path.to_owned() }),
            }
        }
        socket::bind(&fd, &address, &path.display().to_string()).map_err(cannot)?;
        let file = fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()));
        let spare = fd.try_clone().ok();
        let listening = Self { fd, path: path.to_owned(), file, spare };
        // No program can connect before listen, so the permissions apply from the first moment.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|e| cannot(OsError::new("chmod", path.display(), e)))?;
        socket::listen(&listening.fd, BACKLOG)?;
        Ok(listening)
    }
}

impl ListeningSocket {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next waiting program; returns `None` if there is none. If no descriptor is free, that program's
    /// connection is closed.
    pub(super) fn next(&mut self) -> Option<OwnedFd> {
        loop {
            match socket::try_accept(&self.fd) {
                Ok(control) => return Some(control),
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // The system returns this error even if no connection is waiting.
                    let turned_away = socket::try_accept(&self.fd).map(drop);
                    self.spare = self.fd.try_clone().ok();
                    turned_away.ok()?;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
        if there.is_some() && there == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}
