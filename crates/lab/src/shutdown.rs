//! SIGINT and SIGTERM as a descriptor: the run ends at the next good moment instead of in the middle.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crossway_sys::{OsError, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A descriptor that polls readable once one of the signals has come, and stays so.
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

/// Whether a signal has come.
pub fn asked(interrupt: Option<&OwnedFd>) -> bool {
    let Some(fd) = interrupt else { return false };
    poll::any_readable(&[fd.as_fd()], Some(Instant::now())).is_ok_and(|ready| ready[0])
}
