//! Names that have not arrived yet. A TIPC name is published on one node and known on another only when the node's word of it
//! has come over the link between the two; while that link is down none of the node's names is known, and what was under way
//! is turned back. So an end that has an offer in its hand may come too early, which TCP's cannot: its listener has been
//! listening since before the offer was made.

use std::time::{Duration, Instant};

use crossway_sys::Errno;

use crate::OpenError;

/// How a connection is refused to whom came too early. EHOSTUNREACH: the name is not in this node's table, or its node is
/// not reached (told at once). ECONNREFUSED: the request for a connection came back, because its name or port was not there
/// or its node was lost; it waits nowhere, so a second one does no harm. ETIMEDOUT is not among them: the first request may
/// still wait for accept, and a second one would leave the listener with a channel that nobody holds.
pub(super) const CONNECTION: &[Errno] = &[Errno::HOSTUNREACH, Errno::CONNREFUSED];
/// How a message is. EAGAIN: the link to its node is congested.
pub(super) const MESSAGE: &[Errno] = &[Errno::HOSTUNREACH, Errno::AGAIN];

/// Long enough not to burn the CPU that the name's arrival may need, short beside the time in which a link comes up.
const PAUSE: Duration = Duration::from_millis(10);

/// For the object of an error that comes at the end of that time.
pub(super) fn tried_for(limit: Duration) -> String {
    format!("(tried for {limit:?})")
}

/// Repeats `attempt`, which is given the time that is left, while its errno is among `not_yet` and there is time.
pub(super) fn await_name<T>(
    limit: Duration,
    not_yet: &[Errno],
    mut attempt: impl FnMut(Duration) -> Result<Result<T, Errno>, OpenError>,
) -> Result<Result<T, Errno>, OpenError> {
    let until = Instant::now() + limit;
    let mut left = limit;
    loop {
        let errno = match attempt(left)? {
            Err(errno) if not_yet.contains(&errno) => errno,
            done => return Ok(done),
        };
        std::thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
        left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(errno));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_comes_too_early_comes_again() {
        let mut errnos = vec![Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::HOSTUNREACH];
        let outcome = await_name(LONG, CONNECTION, |left| {
            assert!(left <= LONG);
            Ok(errnos.pop().map_or(Ok("open"), Err))
        });
        assert_eq!(outcome.unwrap(), Ok("open"));
    }

    #[test]
    fn what_no_name_would_mend_is_told_at_once() {
        for errno in [Errno::TIMEDOUT, Errno::ACCESS, Errno::NOMEM] {
            let mut tried = 0;
            let outcome: Result<(), Errno> = await_name(LONG, CONNECTION, |_| {
                tried += 1;
                Ok(Err(errno))
            })
            .unwrap();
            assert_eq!((outcome, tried), (Err(errno), 1));
        }
    }

    #[test]
    fn a_name_that_never_comes_ends_with_the_last_refusal() {
        let mut tried = 0;
        let outcome: Result<(), Errno> = await_name(PAUSE * 3, CONNECTION, |left| {
            assert!(!left.is_zero());
            tried += 1;
            Ok(Err(Errno::CONNREFUSED))
        })
        .unwrap();
        assert_eq!(outcome, Err(Errno::CONNREFUSED));
        assert!(tried >= 1);
    }
}
