//! The error type of this crate.

use std::fmt;
use std::io;

pub use rustix::io::Errno;

/// The failure of a system call.
#[derive(Debug)]
pub struct OsError {
    /// The call, e.g. `mq_open`.
    pub call: &'static str,
    /// The object of the call, e.g. a path; may be empty.
    pub object: String,
    /// The error number that the call returned.
    pub source: io::Error,
}

impl OsError {
    /// Creates an error from anything that converts to an [`io::Error`], e.g. a rustix errno.
    pub fn new(call: &'static str, object: impl ToString, source: impl Into<io::Error>) -> Self {
        OsError { call, object: object.to_string(), source: source.into() }
    }

    /// Creates an error from the thread's errno, for calls made through libc.
    pub fn last(call: &'static str, object: impl ToString) -> Self {
        Self::new(call, object, io::Error::last_os_error())
    }

    /// The raw errno, or 0 if there is none.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// What helps if neither a process nor a thread can be started, because a limit is reached.
pub const RAISE_PROCESSES: &str = "a limit is reached; raise that of this user's processes and threads (`ulimit -u`, or pids.max of the \
     container or service) or, if there is one, that of memory (`ulimit -v`, `ulimit -d`)";

/// What helps if a file would become larger than this process may make one.
pub const RAISE_FILE_SIZE: &str =
    "the limit of a file's size (RLIMIT_FSIZE) is too low; raise it: ulimit -f unlimited";

/// Shows an I/O error; if a limit of this process caused it, names the limit.
#[derive(Debug)]
pub struct Explained<'a>(pub &'a io::Error);

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        match self.0.raw_os_error() {
            Some(libc::EFBIG) => f.write_str(
                ", above the limit of a file's size (RLIMIT_FSIZE); raise it: ulimit -f unlimited",
            ),
            Some(libc::EMFILE) => {
                f.write_str(", the limit of open files (RLIMIT_NOFILE); raise it: ulimit -n 1024")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.object.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}: ", self.call, self.object)?;
        // Its EMFILE is also that of RLIMIT_MSGQUEUE.
        if self.call == "mq_open" { self.source.fmt(f) } else { Explained(&self.source).fmt(f) }?;
        let is_start = self.call == "start" || self.call.starts_with("start ");
        match self.errno() {
            libc::EAGAIN if is_start => write!(f, ": {RAISE_PROCESSES}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for OsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The errno of the libc call that failed just now in this thread.
pub(crate) fn last_errno() -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&io::Error::last_os_error())
        .unwrap_or(rustix::io::Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_started_names_the_limit() {
        let of = |call| OsError::new(call, "it", Errno::AGAIN).to_string();
        assert!(of("start role").contains("ulimit -u") && of("start").contains("pids.max"));
        assert!(!of("read").contains("ulimit"));
    }

    #[test]
    fn a_limit_of_this_process_is_named() {
        let shown = |call, errno: Errno| OsError::new(call, "x", errno).to_string();
        assert!(shown("open", Errno::MFILE).contains("ulimit -n"));
        assert!(shown("write", Errno::FBIG).contains("ulimit -f"));
        assert!(!shown("mq_open", Errno::MFILE).contains("ulimit"));
        assert!(shown("open", Errno::NOENT).starts_with("open x: No such file"));
    }
}
