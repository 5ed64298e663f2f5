//! Channels that are complete with the offer: there is nobody to wait for, and there is one.

use std::os::fd::OwnedFd;

use crate::{Deadline, Listener, Offer, OpenError, Rx, Tx};

/// The listening side: holds its end's halves until they are asked for.
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

impl<T: Tx, R: Rx> Listener for Complete<T, R> {
    type Tx = T;
    type Rx = R;

    fn accept(&mut self, _until: Deadline) -> Result<(T, R), OpenError> {
        self.halves.take().ok_or_else(|| no_second_channel(self.mechanism))
    }
}

/// The answer to a second accept where one offer makes one channel.
pub(crate) fn no_second_channel(mechanism: &'static str) -> OpenError {
    OpenError::Unsupported {
        mechanism,
        why: "one offer makes one channel; listen again for another".to_owned(),
    }
}

/// The listening end's side of a channel that is a descriptor pair each way, and the peer's for it to take: `there` and `back`
/// are where the message comes out and where it goes in; `halves` makes an end of what it writes to and what it reads from.
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

/// The connecting end of such a channel.
pub(crate) fn connect<T, R>(
    mechanism: &'static str,
    offer: &mut Offer,
    halves: impl FnOnce(OwnedFd, OwnedFd) -> Result<(T, R), OpenError>,
) -> Result<(T, R), OpenError> {
    let write = offer.take_fd(mechanism, "write")?;
    let read = offer.take_fd(mechanism, "read")?;
    halves(write, read)
}
