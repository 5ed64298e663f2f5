//! Where programs come in: a listening socket in the file system, and control connections.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crossway_sys::socket::{self, Kind};
use crossway_sys::{Errno, OsError};

/// Connections that may wait to be let in; the kernel clamps it to net.core.somaxconn.
const BACKLOG: i32 = 1_024;

/// The service cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Somebody else serves there.
    #[error(
        "another tipcd serves at {}: use that one, or give this one another path (--socket)",
        .path.display()
    )]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Whether somebody serves there cannot be known.
    #[error(
        "a socket of user {owner} is at {}, and this user may not look whether another tipcd serves there ({errno}): give this one another path (--socket), \
         or have user {owner} or root remove the file if none does",
        .path.display()
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// What connecting said.
        errno: Errno,
    },
    /// What a killed tipcd left cannot be removed.
    #[error(
        "a socket of user {owner} at {}, where nobody serves any more, cannot be removed ({source}): have user {owner} or root remove it, or give another \
         path (--socket)",
        .path.display()
    )]
    LeftOver {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Why.
        source: std::io::Error,
    },
    /// What is there is no socket.
    #[error("{} is there and is no socket: give another path (--socket)", .path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// The path cannot be bound.
    #[error("cannot serve at {}: {}; {}", .path.display(), .source.source, place(.path, .source))]
    Bind {
        /// The path.
        path: PathBuf,
        /// Why.
        source: OsError,
    },
    /// The system refuses something else.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// What to do when a path cannot be bound.
fn place(path: &Path, error: &OsError) -> String {
    match Errno::from_raw_os_error(error.errno()) {
        Errno::NAMETOOLONG => {
            "a socket's path has at most 107 bytes: give a shorter one (--socket)".to_owned()
        }
        Errno::NOENT => match path.parent() {
            Some(dir) if !dir.exists() => {
                format!("make the directory {}, or give another path (--socket)", dir.display())
            }
            _ => "no socket can be made there: give another path (--socket)".to_owned(),
        },
        Errno::NOSPC => "make room, or give another path (--socket)".to_owned(),
        _ => "give a path in a directory that you may write to (--socket, or set XDG_RUNTIME_DIR)"
            .to_owned(),
    }
}

/// The listening socket; its file goes with it.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    /// Which file it is, so that a successor's is left alone.
    file: Option<(u64, u64)>,
    /// A descriptor to give up when there is no other for whoever comes in: who cannot be let in is to be told so, and would stay before
    /// the door, which then never comes to rest.
    spare: Option<OwnedFd>,
}

impl Door {
    pub(super) fn open(path: &Path, mode: u32) -> Result<Self, ServiceError> {
        let cannot = |source| ServiceError::Bind { path: path.to_owned(), source };
        let address = socket::path_address(path).map_err(cannot)?;
        let fd = socket::unix(Kind::Seqpacket)?;
        socket::set_nonblocking(&fd)?;
        if let Ok(there) = fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                return Err(ServiceError::NoSocket { path: path.to_owned() });
            }
            match socket::connect(&socket::unix(Kind::Seqpacket)?, &address) {
                // Left over from a tipcd that was killed.
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
        let door = Self { fd, path: path.to_owned(), file, spare };
        // Nobody comes in before listen, so the permissions hold from the first moment on.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|e| cannot(OsError::new("chmod", path.display(), e)))?;
        socket::listen(&door.fd, BACKLOG)?;
        Ok(door)
    }
}

impl Door {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next program that stands before the door; `None` when nobody does. Without a descriptor for it, it is turned away.
    pub(super) fn next(&mut self) -> Option<OwnedFd> {
        loop {
            match socket::try_accept(&self.fd) {
                Ok(control) => return Some(control),
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // The system says so even when nobody waits.
                    let turned_away = socket::try_accept(&self.fd).map(drop);
                    self.spare = self.fd.try_clone().ok();
                    turned_away.ok()?;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
        if there.is_some() && there == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}
