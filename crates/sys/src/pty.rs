//! Pseudoterminals that pass bytes on as they are.

use std::os::fd::{AsFd, OwnedFd};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, OutputModes, tcgetattr, tcsetattr};

use crate::OsError;

/// Opens a pseudoterminal in raw mode, which becomes nobody's controlling terminal. Returns its
/// master, from which what programs write is read, and its slave, the terminal of programs.
///
/// # Errors
/// There is no `/dev/ptmx`, or too many pseudoterminals are open (`ENOSPC`, kernel.pty.max).
pub fn pair() -> Result<(OwnedFd, OwnedFd), OsError> {
    let failed = |call| move |e: rustix::io::Errno| OsError::new(call, "/dev/ptmx", e);
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).map_err(failed("posix_openpt"))?;
    grantpt(&master).map_err(failed("grantpt"))?;
    unlockpt(&master).map_err(failed("unlockpt"))?;
    let slave = ioctl_tiocgptpeer(&master, flags).map_err(failed("ioctl(TIOCGPTPEER)"))?;
    let mut settings = tcgetattr(&slave).map_err(failed("tcgetattr"))?;
    settings.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &settings).map_err(failed("tcsetattr"))?;
    Ok((master, slave))
}

/// Whether the pseudoterminal of this end neither waits for whole lines nor changes what is
/// written.
///
/// # Errors
/// It is none.
pub fn is_raw(end: impl AsFd) -> Result<bool, OsError> {
    let settings = tcgetattr(end).map_err(|e| OsError::new("tcgetattr", "pseudoterminal", e))?;
    Ok(!settings.local_modes.contains(LocalModes::ICANON)
        && !settings.output_modes.contains(OutputModes::OPOST))
}
