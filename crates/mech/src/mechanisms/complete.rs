//! The listening side of a mechanism whose channel is complete with the offer: there is nobody to wait for, and one channel.

use crate::{Deadline, Listener, OpenError, Rx, Tx};

/// Holds the listening end's halves until they are asked for.
#[derive(Debug)]
pub struct Complete<T, R> {
    mechanism: &'static str,
    halves: Option<(T, R)>,
}

impl<T, R> Complete<T, R> {
    pub(super) fn new(mechanism: &'static str, halves: (T, R)) -> Self {
        Complete { mechanism, halves: Some(halves) }
    }
}

impl<T: Tx, R: Rx> Listener for Complete<T, R> {
    type Tx = T;
    type Rx = R;

    fn accept(&mut self, _until: Deadline) -> Result<(T, R), OpenError> {
        self.halves.take().ok_or_else(|| super::no_second_channel(self.mechanism))
    }
}
