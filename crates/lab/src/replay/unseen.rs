//! What was received by a call that the recording does not have.
//!
//! A recorder sees no call that had begun before it. Of two programs that take turns, one nearly always waits in such a
//! call when a recording begins: the request that it gets is then seen as sent, but not as received. If the next receive
//! were taken for it, each receive would get the message before its own from then on, and the replay would have one
//! message more under way than the programs had.

/// How many bytes of one direction were received by a call that had begun before the recording.
///
/// - `sends`: when each was sent, and the bytes up to its end, in order.
/// - `receives`: when each receive that was seen returned, and its bytes, in order.
/// - `first_ns`: when the receiving thread was first seen in any call.
///
/// All that is not contradicted: what was sent before `first_ns`, unless a later receive then got bytes before they were
/// sent. Taking turns, nothing is left if no call is missing, since the message after is sent when this one was received. It
/// may be a part of a message: a program may read a head first, which says how long the rest is.
pub(super) fn received_unseen(
    sends: &[(i64, u64)],
    receives: impl Iterator<Item = (i64, u64)>,
    first_ns: i64,
) -> u64 {
    let sent_by = |ns: i64, strictly: bool| {
        let count = sends.partition_point(|(at, _)| if strictly { *at < ns } else { *at <= ns });
        count.checked_sub(1).map_or(0, |last| sends[last].1)
    };
    let mut most = sent_by(first_ns, true);
    let mut got = 0u64;
    for (at, bytes) in receives {
        if most == 0 {
            break;
        }
        got += bytes;
        most = most.min(sent_by(at, false).saturating_sub(got));
    }
    most
}
