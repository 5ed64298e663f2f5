//! Waits for a descriptor for as long as the caller allows.

use std::os::fd::AsFd;

use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};

use crate::Patience;

/// Repeats an operation that fails with EAGAIN until the deadline of `patience` has passed; without a deadline, calls
/// `attempt` once. The argument of `attempt` is true if the operation must not block.
#[inline]
pub(crate) fn patiently<T>(
    fd: impl AsFd,
    interest: Interest,
    patience: Patience,
    mut attempt: impl FnMut(bool) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match patience {
        Patience::Now => attempt(true),
        Patience::Forever => attempt(false),
        Patience::Until(at) => loop {
            match attempt(true) {
                Err(Errno::AGAIN) if patience.is_over() => return Err(Errno::AGAIN),
                Err(Errno::AGAIN) => {
                    wait_ready(&fd, interest, Some(at))?;
                }
                done => return done,
            }
        },
    }
}
