//! The halves of a channel of two pipes or two FIFOs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::Errno;
use crossway_sys::pipe::{PipeEnd, ignore_sigpipe, pipe};

use super::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use crate::{Boundaries, Caps, Facts, OpenError, Probe, Spec};

impl ByteSink for PipeEnd {
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        PipeEnd::write(self, bytes, nonblocking)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> Facts {
        pipe_facts(self)
    }
}

impl ByteSource for PipeEnd {
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        PipeEnd::read(self, buf, nonblocking)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> Facts {
        pipe_facts(self)
    }
}

/// Values read back from a pipe.
pub(crate) fn pipe_facts(end: &PipeEnd) -> Facts {
    let bytes = end.capacity_bytes().ok().and_then(|n| i64::try_from(n).ok());
    bytes.into_iter().map(|n| ("pipe_bytes".to_owned(), n)).collect()
}

/// Makes the halves of a channel from a write end and a read end. Requests the spec's capacity.
pub(crate) fn halves(
    spec: &Spec,
    write: OwnedFd,
    read: OwnedFd,
) -> Result<(StreamTx<PipeEnd>, StreamRx<PipeEnd>), OpenError> {
    let (write, read) = ends(spec, write, read)?;
    Ok((StreamTx::new(write, spec.wait), StreamRx::new(read, spec.wait)))
}

/// Wraps a write end and a read end. Requests the spec's capacity.
pub(crate) fn ends(
    spec: &Spec,
    write: OwnedFd,
    read: OwnedFd,
) -> Result<(PipeEnd, PipeEnd), OpenError> {
    ignore_sigpipe();
    let (write, read) = (PipeEnd::new(write)?, PipeEnd::new(read)?);
    if let Some(bytes) = spec.capacity_bytes {
        write.set_capacity_bytes(bytes)?;
        read.set_capacity_bytes(bytes)?;
    }
    Ok((write, read))
}

/// The capabilities of every pipe, anonymous or named.
pub(crate) fn pipe_caps() -> Caps {
    Caps { boundaries: Boundaries::Stream, carries_empty: false, waitable_fd: true, ..Caps::PLAIN }
}

/// What helps if no pipe can be created.
pub(crate) const PIPE_REMEDY: &str = "raise the limit of open files (ulimit -n)";

/// Tests whether pipes can be created.
pub(crate) fn probe_pipe() -> Probe {
    Probe::of_kernel(pipe(), PIPE_REMEDY)
}
