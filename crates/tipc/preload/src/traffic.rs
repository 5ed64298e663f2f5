//! Makes messages and changes of this node's programs visible when the calls that caused them have returned, as a kernel
//! does ([`crossway_tipc_client::protocol::traffic`]).

use crossway_sys::real::{errno, set_errno};
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::traffic::{self, CHANGED, OF_CHANGED, SENT};

use crate::control;

/// Leaves a mark that something was sent. Called after sending.
#[inline]
pub(crate) fn note_sent() {
    control::with_traffic(|words| traffic::mark(words.word(SENT)));
}

/// Leaves a mark that a socket was closed, or a connection accepted. Called after that.
pub(crate) fn note_change() {
    control::with_traffic(|words| traffic::mark(words.word(CHANGED)));
}

fn pending() -> u64 {
    control::with_traffic(|words| traffic::pending(|n| words.word(n))).unwrap_or(0)
}

/// Whether something is on its way that a call may have to find. To be asked before the call: what arrives during it is found
/// by repeating it after [`settle`].
#[inline]
pub(crate) fn is_pending() -> bool {
    pending() != 0
}

/// Waits until everything that was on its way has been delivered.
#[cold]
pub(crate) fn settle() {
    let before = errno();
    // Without an answer, the call that follows finds what is there.
    let _ = control::ask(&Request::Settle, &[]);
    set_errno(before);
}

/// Waits as [`settle`] does if a socket may have been closed or accepted. For calls whose outcome depends on the other
/// end's state: messages alone do not delay them.
#[inline]
pub(crate) fn settle_changes() {
    if pending() & OF_CHANGED != 0 {
        settle();
    }
}

/// Makes a call and, if it finds nothing although something is on its way, once more after that has been delivered.
/// `found_nothing` says whether an outcome means that; `call` is passed whether it must not wait.
#[inline]
pub(crate) fn once_more<T>(
    found_nothing: impl FnOnce(&T) -> bool,
    mut call: impl FnMut(bool) -> T,
) -> T {
    let pending = is_pending();
    let outcome = call(false);
    if pending && found_nothing(&outcome) {
        settle();
        return call(true);
    }
    outcome
}
