//! Anonymous pipes whose reads and writes are io_uring requests: one `io_uring_enter` per message at each end.
//!
//! A message that is larger than the room in the pipe takes an additional request for every part.

use std::os::fd::OwnedFd;

use crossway_sys::pipe::{PipeEnd, pipe};

use super::uring_stream::{UringRx, UringTx, halves, missing_ring};
use crate::building_blocks::complete::{self, Complete};
use crate::building_blocks::pipe_halves::{PIPE_REMEDY, ends, pipe_caps};
use crate::self_test::exchange_a_byte;
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport};

/// The mechanism `uring-pipe`: pipe(2) whose reads and writes are requests of io_uring(7).
#[derive(Debug)]
pub struct UringPipe;

impl Mechanism for UringPipe {
    const ID: &'static str = "uring-pipe";
    const ABOUT: &'static str = "anonymous pipe, one each way, used through io_uring requests";
    const CARRIER: Carrier = Carrier::new(Family::Uring, Transport::Pipe);
    type Tx = UringTx<PipeEnd>;
    type Rx = UringRx<PipeEnd>;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        pipe_caps()
    }

    fn probe() -> Probe {
        match missing_ring() {
            Some((why, remedy)) => Probe::of_kernel(Err::<(), _>(why), remedy),
            None => Probe::of_kernel(exchange_a_byte::<Self>(), PIPE_REMEDY),
        }
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        complete::listen(Self::ID, pipe()?, pipe()?, |write, read| channel(spec, write, read))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        complete::connect(Self::ID, offer, |write, read| channel(spec, write, read))
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
