//! What opens and closes channels, never inlined: with all that a mechanism sets up, it would be in every loop and probe
//! that opens a channel. For a channel this costs a call, for its messages nothing.

use crate::{Deadline, Listener, Mechanism, Offer, OpenError, Rx, Spec, Tx};

/// [`Mechanism::listen`].
///
/// # Errors
/// As [`Mechanism::listen`].
#[inline(never)]
pub fn listen<M: Mechanism>(spec: &Spec) -> Result<(M::Listener, Offer), OpenError> {
    M::listen(spec)
}

/// [`Mechanism::connect`].
///
/// # Errors
/// As [`Mechanism::connect`].
#[inline(never)]
pub fn connect<M: Mechanism>(spec: &Spec, offer: &mut Offer) -> Result<(M::Tx, M::Rx), OpenError> {
    M::connect(spec, offer)
}

/// [`Listener::accept`].
///
/// # Errors
/// As [`Listener::accept`].
#[inline(never)]
pub fn accept<L: Listener>(listener: &mut L, until: Deadline) -> Result<(L::Tx, L::Rx), OpenError> {
    listener.accept(until)
}

/// Closes an end of a channel: its sending half, then its receiving half.
#[inline(never)]
pub fn close<T: Tx, R: Rx>(ends: (T, R)) {
    drop(ends);
}
