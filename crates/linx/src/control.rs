//! The program's side of the connection to its node.

use std::io::Error as IoError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError, fdpass, trust};

use crate::Error;
use crate::limits::RECORD;
use crate::wire::local::{Event, Request};

/// The environment variable that names the node's directory.
pub const DIR_VARIABLE: &str = "CROSSWAY_LINX_DIR";

/// Returns the directory of the node that programs use by default: `$CROSSWAY_LINX_DIR`, or `crossway-linx` in
/// `$XDG_RUNTIME_DIR`, if that is this user's own, or in `/run`.
pub fn default_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os(DIR_VARIABLE).filter(|dir| !dir.is_empty()) {
        return dir.into();
    }
    trust::runtime_dir().unwrap_or_else(|| "/run".into()).join("crossway-linx")
}

/// Returns the path of the socket of the node that serves in this directory.
pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    dir.join("node")
}

/// The connection to the node.
pub(crate) struct Control {
    fd: OwnedFd,
    record: Box<[u8; RECORD]>,
}

impl Control {
    pub(crate) fn connect(dir: &Path) -> Result<Control, Error> {
        let path = socket_path(dir);
        let fd = socket::unix(SocketType::Seqpacket)?;
        let address = socket::path_address(&path)?;
        socket::connect(&fd, &address).map_err(|errno| match errno {
            Errno::ACCESS => Error::NotPermitted(format!(
                "this user may not use the LINX node at {}; ask for access to its directory",
                path.display()
            )),
            errno => Error::NoNode {
                dir: dir.display().to_string(),
                path: path.clone(),
                source: IoError::from(errno),
            },
        })?;
        Ok(Control::on(fd))
    }

    /// Uses an existing connection.
    pub(crate) fn on(fd: OwnedFd) -> Control {
        Control { fd, record: Box::new([0; RECORD]) }
    }

    /// Sends a request to the node; waits while the node is busy.
    pub(crate) fn say(&self, request: &Request) -> Result<(), Error> {
        match socket::send(&self.fd, &request.encode(), false) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Error::NodeGone),
            Err(errno) => Err(OsError::new("send", "LINX node", errno).into()),
        }
    }

    /// Returns the next event from the node; `None` if there is none now.
    pub(crate) fn hear(
        &mut self,
        nonblocking: bool,
    ) -> Result<Option<(Event, Vec<OwnedFd>)>, Error> {
        let mut fds = Vec::new();
        match fdpass::receive(&self.fd, &mut self.record[..], &mut fds, nonblocking) {
            Ok(0) => Err(Error::NodeGone),
            Ok(len) => match Event::decode(&self.record[..len]) {
                Ok(event) => Ok(Some((event, fds))),
                Err(_) => {
                    Err(Error::Protocol(format!("a record of {len} bytes that cannot be decoded")))
                }
            },
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(OsError::new("recvmsg", "LINX node", errno).into()),
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
