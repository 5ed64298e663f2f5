//! Anonymous pipes whose reads and writes are io_uring requests: one `io_uring_enter` per message at each end.
//!
//! A message larger than the room in the pipe takes one request more for every part.

use std::os::fd::OwnedFd;

use crossway_sys::pipe::{PipeEnd, pipe};

use super::complete::Complete;
use super::kernel_version;
use super::pipe::{ends, pipe_caps};
use super::uring_stream::{UringRx, UringTx, halves, missing_ring};
use crate::{Caps, Mechanism, Offer, OpenError, Probe, Spec};

/// pipe(2) by io_uring(7).
#[derive(Debug)]
pub struct UringPipe;

impl Mechanism for UringPipe {
    const ID: &'static str = "uring-pipe";
    const ABOUT: &'static str = "anonymous pipe, one each way, by io_uring requests";
    type Tx = UringTx<PipeEnd>;
    type Rx = UringRx<PipeEnd>;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        pipe_caps()
    }

    fn probe() -> Probe {
        if let Some((why, remedy)) = missing_ring() {
            return Probe::Missing { why, remedy: remedy.to_owned() };
        }
        match pipe() {
            Ok(_) => Probe::Ready { version: kernel_version() },
            Err(error) => Probe::Missing {
                why: error.to_string(),
                remedy: "raise the limit of open files (ulimit -n)".to_owned(),
            },
        }
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (there_reads, here_writes) = pipe()?;
        let (here_reads, there_writes) = pipe()?;
        let offer = Offer::new().with_fd("read", there_reads).with_fd("write", there_writes);
        Ok((Complete::new(Self::ID, channel(spec, here_writes, here_reads)?), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let write = offer.take_fd(Self::ID, "write")?;
        let read = offer.take_fd(Self::ID, "read")?;
        channel(spec, write, read)
    }
}

fn channel(
    spec: &Spec,
    write: OwnedFd,
    read: OwnedFd,
) -> Result<(UringTx<PipeEnd>, UringRx<PipeEnd>), OpenError> {
    let (mut write, mut read) = ends(spec, write, read)?;
    write.set_nonblocking()?;
    read.set_nonblocking()?;
    halves(spec, write, read)
}
