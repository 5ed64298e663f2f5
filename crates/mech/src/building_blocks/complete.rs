//! Channels that are complete as soon as the offer exists: neither end waits for the other, and an offer makes only one
//! channel.

use std::os::fd::OwnedFd;

use crate::{Deadline, Listener, Offer, OpenError, Rx, Tx};

/// The listening side, which holds the halves of its end until accept returns them.
#[derive(Debug)]
pub struct Complete<T, R> {
    mechanism: &'static str,
    halves: Option<(T, R)>,
}

impl<T, R> Complete<T, R> {
    pub(crate) fn new(mechanism: &'static str, halves: (T, R)) -> Self {
        Complete { mechanism, halves: Some(halves) }
    }
}

impl<T: Tx + 'static, R: Rx + 'static> Listener for Complete<T, R> {
    type Tx = T;
    type Rx = R;

    fn accept(&mut self, _until: Deadline) -> Result<(T, R), OpenError> {
        self.halves.take().ok_or_else(|| no_second_channel(self.mechanism))
    }
}

/// Returns the error of a second call of `accept`, for mechanisms whose offers make only one channel.
pub(crate) fn no_second_channel(mechanism: &'static str) -> OpenError {
    OpenError::Unsupported {
        mechanism,
        why: "an offer serves only one channel; listen again to open another".to_owned(),
    }
}

/// Creates the listening side of a channel that consists of a descriptor pair for each direction, and the offer for the
/// peer. `there` and `back` are pairs of a read end and a write end. `halves` makes an end's halves, given the
/// descriptor to write to and the one to read from.
pub(crate) fn listen<T, R>(
    mechanism: &'static str,
    there: (OwnedFd, OwnedFd),
    back: (OwnedFd, OwnedFd),
    halves: impl FnOnce(OwnedFd, OwnedFd) -> Result<(T, R), OpenError>,
) -> Result<(Complete<T, R>, Offer), OpenError> {
    let ((there_reads, here_writes), (here_reads, there_writes)) = (there, back);
    let offer = Offer::new().with_fd("read", there_reads).with_fd("write", there_writes);
    Ok((Complete::new(mechanism, halves(here_writes, here_reads)?), offer))
}

/// Creates the connecting end of a channel whose other end [`listen`] has created.
pub(crate) fn connect<T, R>(
    mechanism: &'static str,
    offer: &mut Offer,
    halves: impl FnOnce(OwnedFd, OwnedFd) -> Result<(T, R), OpenError>,
) -> Result<(T, R), OpenError> {
    let write = offer.take_fd(mechanism, "write")?;
    let read = offer.take_fd(mechanism, "read")?;
    halves(write, read)
}
