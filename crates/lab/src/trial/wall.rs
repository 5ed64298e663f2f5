//! The duration of a window, and the clock by which it is measured.

use crate::control::{Outcome, Part};
use crate::role_layout::RoleLayout;

/// The time from the first send to the last receipt, nanoseconds. With replies, it is the interval of the roles that
/// send first. These roles also receive last, and a role that has sent the last reply may be scheduled much later if
/// both share a CPU. Without replies, the interval lasts from the start of the roles that send first (a listening role
/// starts earlier and waits) to the end of the last role. Without a common clock, it is the receivers' own interval,
/// from the first to the last receipt.
pub(crate) fn wall_ns(
    layout: &RoleLayout,
    outcomes: &[Outcome],
    has_replies: bool,
    one_clock: bool,
) -> u64 {
    if has_replies {
        return sender_wall_ns(layout, outcomes);
    }
    let those = |listening: bool| {
        let pairs = layout.roles.iter().zip(outcomes);
        pairs.filter(move |(role, _)| (role.listeners > 0) == listening).map(|(_, o)| o)
    };
    if !one_clock {
        let first = those(true).filter_map(|o| o.first_receipt_ns).min();
        let last = those(true).map(|o| o.end_ns).max();
        return match (first, last) {
            (Some(first), Some(last)) if last > first => last - first,
            _ => sender_wall_ns(layout, outcomes),
        };
    }
    let start = those(false).map(|o| o.start_ns).min().unwrap_or(0);
    let end = outcomes.iter().map(|o| o.end_ns).max().unwrap_or(0);
    end.saturating_sub(start)
}

/// The interval of the roles that send first, on their own clock, nanoseconds.
pub(crate) fn sender_wall_ns(layout: &RoleLayout, outcomes: &[Outcome]) -> u64 {
    let first = |part| matches!(part, Part::Client | Part::Sender);
    let active = layout.roles.iter().zip(outcomes).filter(|(role, _)| first(role.part));
    let (start, end) = active.fold((u64::MAX, 0), |(start, end), (_, outcome)| {
        (start.min(outcome.start_ns), end.max(outcome.end_ns))
    });
    end.saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role_layout::RoleSpec;

    fn role(part: Part, listeners: u16) -> RoleSpec {
        RoleSpec { part, index: 0, cpu: None, listeners, peers: 1, first_peer: 0 }
    }

    fn outcome(start_ns: u64, end_ns: u64, first_receipt_ns: Option<u64>) -> Outcome {
        Outcome { start_ns, end_ns, first_receipt_ns, ..Outcome::default() }
    }

    #[test]
    fn a_server_that_is_scheduled_late_does_not_lengthen_round_trips() {
        let roles = vec![role(Part::Client, 0), role(Part::Server, 1)];
        let layout = RoleLayout { roles, links: Vec::new() };
        // The server waited before the first request, and noticed its own end 3 ms after the client had the last reply.
        let outcomes = [outcome(1_000_000, 101_000_000, None), outcome(900_000, 104_000_000, None)];
        for one_clock in [true, false] {
            assert_eq!(wall_ns(&layout, &outcomes, true, one_clock), 100_000_000);
        }
    }

    #[test]
    fn without_replies_the_receivers_end_counts() {
        let roles = vec![role(Part::Sender, 0), role(Part::Receiver, 1)];
        let layout = RoleLayout { roles, links: Vec::new() };
        let outcomes = [outcome(1_000, 5_000, None), outcome(500, 7_000, Some(1_500))];
        assert_eq!(wall_ns(&layout, &outcomes, false, true), 6_000);
        // The receiver's clock is another one: its own interval.
        assert_eq!(wall_ns(&layout, &outcomes, false, false), 5_500);
    }
}
