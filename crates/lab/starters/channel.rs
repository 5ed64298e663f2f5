//! The channel of both programs: @MECHANISM@ with whole messages and a deadline on every call.
#![allow(dead_code)]

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::time::Duration;

pub type Socket = std::@RUST_SOCKET@;
pub type Listener = std::@RUST_LISTENER@;

pub const LARGEST: usize = @LARGEST@;
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Sets the deadlines. A send into a full channel waits, which provides back-pressure. No system call waits longer than
/// the deadline.
pub fn set_up(socket: &Socket) -> Result<()> {
    socket.set_read_timeout(Some(DEADLINE))?;
    socket.set_write_timeout(Some(DEADLINE))?;
    @NODELAY_RUST@
    Ok(())
}

pub fn send(mut socket: &Socket, message: &[u8]) -> Result<()> {
    if message.len() > LARGEST {
        return Err(Error::new(ErrorKind::InvalidInput, "the message is too large"));
    }
    let mut framed = Vec::with_capacity(message.len() + 4);
    framed.extend((message.len() as u32).to_le_bytes());
    framed.extend(message);
    socket.write_all(&framed)
}

pub fn receive(mut socket: &Socket) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LARGEST {
        return Err(Error::new(ErrorKind::InvalidData, "the peer announced too large a message"));
    }
    let mut message = vec![0; length];
    socket.read_exact(&mut message)?;
    Ok(message)
}

/// Whether the error is an expired deadline, as opposed to a lost peer.
pub fn timed_out(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
