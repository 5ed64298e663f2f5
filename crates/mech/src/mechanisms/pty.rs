//! Pseudoterminals: two of them, one each way, with the sender at the slave, as a program at its
//! terminal, and the receiver at the master, as a terminal emulator, `expect` or sshd.
//!
//! Both are in raw mode, in which the line discipline changes no bytes. An end that is closed shows
//! as EIO at the other one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::pipe::PipeEnd;
use crossway_sys::{Errno, pty};

use crate::building_blocks::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use crate::building_blocks::complete::{self, Complete};
use crate::building_blocks::pipe_halves::pipe_caps;
use crate::{Caps, Carrier, Facts, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport};

/// The mechanism `pty`, pty(7): one write(2) and one read(2) per message, if it fits the buffers of
/// some kilobytes.
#[derive(Debug)]
pub struct Pty;

/// One end of a pseudoterminal.
#[derive(Debug)]
pub struct PtyEnd(PipeEnd);

impl ByteSink for PtyEnd {
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        self.0.write(bytes, nonblocking).map_err(|errno| match errno {
            Errno::IO => Errno::PIPE,
            errno => errno,
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn facts(&self) -> Facts {
        facts(self.0.as_fd())
    }
}

impl ByteSource for PtyEnd {
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        match self.0.read(buf, nonblocking) {
            Err(Errno::IO) => Ok(0),
            outcome => outcome,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn facts(&self) -> Facts {
        facts(self.0.as_fd())
    }
}

fn facts(end: BorrowedFd<'_>) -> Facts {
    let raw = pty::is_raw(end).ok().map(|raw| ("raw_mode".to_owned(), raw.into()));
    raw.into_iter().collect()
}

fn halves(
    spec: &Spec,
    slave: OwnedFd,
    master: OwnedFd,
) -> Result<(StreamTx<PtyEnd>, StreamRx<PtyEnd>), OpenError> {
    let (write, read) = (PtyEnd(PipeEnd::new(slave)?), PtyEnd(PipeEnd::new(master)?));
    Ok((StreamTx::new(write, spec.wait), StreamRx::new(read, spec.wait)))
}

impl Mechanism for Pty {
    const ID: &'static str = "pty";
    const ABOUT: &'static str = "pseudoterminal in raw mode, one each way (openpty, /dev/ptmx)";
    const CARRIER: Carrier = Carrier::new(Family::Pipe, Transport::Pty);
    type Tx = StreamTx<PtyEnd>;
    type Rx = StreamRx<PtyEnd>;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        pipe_caps()
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            crate::self_test::exchange_a_byte::<Self>(),
            "mount devpts on /dev/pts, and raise the limit of pseudoterminals if all are in use: sysctl -w kernel.pty.max=4096",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (there, back) = (pty::pair()?, pty::pair()?);
        complete::listen(Self::ID, there, back, |write, read| halves(spec, write, read))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        complete::connect(Self::ID, offer, |write, read| halves(spec, write, read))
    }
}
