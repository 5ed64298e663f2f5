//! One end of a control channel: transfers whole messages, and descriptors with them if the channel is a socket.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::{OsError, fdpass};
use serde::{Serialize, de::DeserializeOwned};

/// Maximum message length in bytes; the time stamps of an exchange trial need the most.
const LONGEST: usize = 64 << 20;

/// Errors of the control channel.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The other side has closed the connection.
    #[error("the other side closed the control channel")]
    Closed,
    /// A message cannot be parsed.
    #[error("the control channel carried an invalid message: {0}")]
    Nonsense(String),
    /// Descriptors cannot be sent over a byte stream.
    #[error(
        "file descriptors cannot be passed between hosts; use a mechanism that works between hosts"
    )]
    NoDescriptors,
    /// A system call failed.
    #[error("control channel: {0}")]
    Os(#[from] OsError),
}

/// One end of a control channel.
#[derive(Debug)]
pub struct Wire {
    from: OwnedFd,
    to: OwnedFd,
    passes_fds: bool,
}

impl Wire {
    /// A channel over a UNIX socket, which also transfers descriptors.
    pub fn socket(socket: OwnedFd) -> Result<Wire, ControlError> {
        let to = socket.try_clone().map_err(|e| OsError::new("dup", "control socket", e))?;
        Ok(Wire { from: socket, to, passes_fds: true })
    }

    /// A channel over a pair of byte streams, without descriptors.
    pub fn bytes(from: OwnedFd, to: OwnedFd) -> Wire {
        Wire { from, to, passes_fds: false }
    }

    /// A descriptor that is readable when the other side has sent something or has closed the connection.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Sends a message with descriptors; over byte streams, `fds` must be empty.
    pub fn say(
        &mut self,
        what: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let frame = frame(what)?;
        if !self.passes_fds {
            if !fds.is_empty() {
                return Err(ControlError::NoDescriptors);
            }
            let fd = self.to.try_clone().map_err(|e| OsError::new("dup", "control stream", e))?;
            return std::fs::File::from(fd)
                .write_all(&frame)
                .map_err(|e| OsError::new("write", "control stream", e).into());
        }
        let mut sent = fdpass::send(&self.to, &frame, fds).map_err(gone)?;
        while sent < frame.len() {
            sent += fdpass::send(&self.to, &frame[sent..], &[]).map_err(gone)?;
        }
        Ok(())
    }

    /// Receives the next message and its descriptors; waits without a time limit.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ControlError> {
        let mut fds = Vec::new();
        let mut length = [0; 4];
        self.read_exactly(&mut length, &mut fds)?;
        let mut body = vec![0; body_len(length)?];
        self.read_exactly(&mut body, &mut fds)?;
        Ok((message(&body)?, fds))
    }

    fn read_exactly(
        &mut self,
        bytes: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), ControlError> {
        let mut have = 0;
        while have < bytes.len() {
            let n = if self.passes_fds {
                fdpass::recv(&self.from, &mut bytes[have..], fds).map_err(gone)?
            } else {
                let fd = self.from.try_clone().map_err(|e| OsError::new("dup", "", e))?;
                std::fs::File::from(fd)
                    .read(&mut bytes[have..])
                    .map_err(|e| OsError::new("read", "control stream", e))?
            };
            if n == 0 {
                return Err(ControlError::Closed);
            }
            have += n;
        }
        Ok(())
    }
}

/// A message as a frame of JSON, which begins with its length, a 32-bit big-endian number. It ends with a line feed, because
/// some command prefixes forward only whole lines (Slurm does this with the output of its jobs).
pub(crate) fn frame(what: &impl Serialize) -> Result<Vec<u8>, ControlError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, what).map_err(|e| ControlError::Nonsense(e.to_string()))?;
    frame.push(b'\n');
    let len = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&len.to_be_bytes());
    Ok(frame)
}

/// The length of a frame's body, from what the frame begins with.
pub(crate) fn body_len(begin: [u8; 4]) -> Result<usize, ControlError> {
    match u32::from_be_bytes(begin) as usize {
        length if length > LONGEST => Err(ControlError::Nonsense(format!(
            "its length of {length} bytes exceeds the maximum of {LONGEST}"
        ))),
        length => Ok(length),
    }
}

/// The message in a frame's body.
pub(crate) fn message<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(body).map_err(|e| ControlError::Nonsense(e.to_string()))
}

/// What an error of sending or receiving means.
pub(crate) fn gone(error: OsError) -> ControlError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error.source.kind() {
        BrokenPipe | ConnectionReset => ControlError::Closed,
        _ => ControlError::Os(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::control::Order;

    #[test]
    fn a_closed_or_talking_nonsense_side_is_an_error_and_no_hang() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut wire = Wire::socket(b.into()).unwrap();
        (&a).write_all(&[0, 0, 0, 2, b'{', b']']).unwrap();
        assert!(matches!(wire.hear::<Order>(), Err(ControlError::Nonsense(_))));
        (&a).write_all(&[0xff; 4]).unwrap();
        assert!(matches!(wire.hear::<Order>(), Err(ControlError::Nonsense(_))));
        drop(a);
        assert!(matches!(wire.hear::<Order>(), Err(ControlError::Closed)));
    }

    #[test]
    fn descriptors_are_refused_where_only_bytes_go() {
        let (a, b) = UnixStream::pair().unwrap();
        let spare = a.try_clone().unwrap();
        let mut wire = Wire::bytes(a.into(), b.into());
        let said = wire.say(&Order::Accept, &[spare.as_fd()]);
        assert!(matches!(said, Err(ControlError::NoDescriptors)));
    }
}
