//! Anonymous pipes: two of them, one each way.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::Errno;
use crossway_sys::pipe::{PipeEnd, ignore_sigpipe, pipe};

use super::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use crate::complete::{self, Complete};
use crate::{
    Boundaries, Caps, Carrier, Facts, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport,
};

/// pipe(2).
#[derive(Debug)]
pub struct Pipe;

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
pub(super) fn pipe_facts(end: &PipeEnd) -> Facts {
    let bytes = end.capacity_bytes().ok().and_then(|n| i64::try_from(n).ok());
    bytes.into_iter().map(|n| ("pipe_bytes".to_owned(), n)).collect()
}

/// Makes the halves of a channel from a write end and a read end, with the requested capacity.
pub(super) fn halves(
    spec: &Spec,
    write: OwnedFd,
    read: OwnedFd,
) -> Result<(StreamTx<PipeEnd>, StreamRx<PipeEnd>), OpenError> {
    let (write, read) = ends(spec, write, read)?;
    Ok((StreamTx::new(write, spec.wait), StreamRx::new(read, spec.wait)))
}

/// Wraps a write end and a read end, with the requested capacity.
pub(super) fn ends(
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
pub(super) fn pipe_caps() -> Caps {
    Caps { boundaries: Boundaries::Stream, carries_empty: false, waitable_fd: true, ..Caps::PLAIN }
}

/// Tests whether pipes can be created.
pub(super) fn probe_pipe() -> Probe {
    Probe::of_kernel(pipe(), "raise the limit of open files (ulimit -n)")
}

impl Mechanism for Pipe {
    const ID: &'static str = "pipe";
    const ABOUT: &'static str = "anonymous pipe, one each way (ipc-bench: pipe)";
    const CARRIER: Carrier = Carrier::new(Family::Pipe, Transport::Pipe);
    type Tx = StreamTx<PipeEnd>;
    type Rx = StreamRx<PipeEnd>;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        pipe_caps()
    }

    fn probe() -> Probe {
        probe_pipe()
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        complete::listen(Self::ID, pipe()?, pipe()?, |write, read| halves(spec, write, read))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        complete::connect(Self::ID, offer, |write, read| halves(spec, write, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listener;
    use crate::{Rx, Tx, Wait};

    /// How many read and write calls this thread has made.
    fn calls() -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        (number("syscr:"), number("syscw:"))
    }

    #[test]
    fn a_message_costs_one_call_at_each_end_however_the_ends_wait() {
        for wait in [Wait::Block, Wait::Spin, Wait::Hybrid { spin_us: 20 }] {
            let spec = Spec { wait, ..Spec::default() };
            let (mut listener, mut offer) = Pipe::listen(&spec).unwrap();
            let (mut tx, _rx) = Pipe::connect(&spec, &mut offer).unwrap();
            let (_tx, mut rx) = listener.accept(None).unwrap();
            let (before, again) = (calls(), calls());
            let looking = again.0 - before.0;
            let start = calls();
            for n in 0..100 {
                tx.send(&[n; 512], None).unwrap();
                rx.recv(&mut [0; 512], None).unwrap();
            }
            let end = calls();
            assert_eq!(end.0 - start.0 - looking, 100, "reads with {wait:?}");
            assert_eq!(end.1 - start.1, 100, "writes with {wait:?}");
        }
    }

    #[test]
    fn the_capacity_asked_for_holds_for_both_directions() {
        let spec = Spec { capacity_bytes: Some(200_000), ..Spec::default() };
        let (mut listener, mut offer) = Pipe::listen(&spec).unwrap();
        let (tx, rx) = Pipe::connect(&spec, &mut offer).unwrap();
        let (other_tx, other_rx) = listener.accept(None).unwrap();
        for facts in [tx.facts(), rx.facts(), other_tx.facts(), other_rx.facts()] {
            assert_eq!(facts["pipe_bytes"], 262_144);
        }
    }
}
