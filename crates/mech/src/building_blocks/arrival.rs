//! Waits for names that are not known yet. A TIPC name is published on one node and becomes known on another only when
//! the node's announcement has arrived over the link between them. While that link is down, none of the node's names is
//! known, and messages in flight are returned. So an end with a valid offer may connect too early. With TCP this cannot
//! happen, because the listener has been listening since before the offer was created.

use std::time::{Duration, Instant};

use crossway_sys::Errno;

use crate::OpenError;

/// The errors of a connection that was attempted too early. EHOSTUNREACH is reported immediately: the name is not in
/// this node's table, or its node is not reachable. ECONNREFUSED means that the connection request was returned,
/// because its name or port did not exist or its node was lost; it is not queued anywhere, so a second one does no
/// harm. ETIMEDOUT is not included: the first request may still wait for accept, and a second one would leave the
/// listener with an unused channel.
pub(crate) const CONNECTION: &[Errno] = &[Errno::HOSTUNREACH, Errno::CONNREFUSED];
/// The errors of a message that was sent too early. EAGAIN means that the link to the receiver's node is congested.
pub(crate) const MESSAGE: &[Errno] = &[Errno::HOSTUNREACH, Errno::AGAIN];

/// Time between two attempts. It is long enough not to take CPU time that the name's arrival may need, and short
/// compared with the time in which a link comes up.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns the text that is added to an error if the attempts still fail when `limit` has passed.
pub(crate) fn tried_for(limit: Duration) -> String {
    format!("(tried for {limit:?})")
}

/// Repeats `attempt` while its errno is in `not_yet` and time remains. `attempt` is given the remaining time.
pub(crate) fn await_name<T>(
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
    fn an_early_connector_retries() {
        let mut errnos = vec![Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::HOSTUNREACH];
        let outcome = await_name(LONG, CONNECTION, |left| {
            assert!(left <= LONG);
            Ok(errnos.pop().map_or(Ok("open"), Err))
        });
        assert_eq!(outcome.unwrap(), Ok("open"));
    }

    #[test]
    fn errors_that_no_name_would_fix_are_returned_immediately() {
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
