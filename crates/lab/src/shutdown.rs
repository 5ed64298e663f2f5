//! SIGINT, SIGTERM and SIGHUP as a descriptor, so that a run can stop at a suitable point.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crossway_sys::{OsError, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Returns a descriptor that becomes readable when one of the signals arrives, and remains so.
pub fn listen() -> Result<OwnedFd, OsError> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|e| OsError::new("socketpair", "signals", e))?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let end = theirs.try_clone().map_err(|e| OsError::new("dup", "signals", e))?;
        signal_hook::low_level::pipe::register(signal, end)
            .map_err(|e| OsError::new("sigaction", signal, e))?;
    }
    Ok(ours.into())
}

/// Whether one of the signals has arrived.
pub fn asked(interrupt: Option<&OwnedFd>) -> bool {
    let Some(fd) = interrupt else { return false };
    poll::any_readable(&[fd.as_fd()], Some(Instant::now())).is_ok_and(|ready| ready[0])
}
