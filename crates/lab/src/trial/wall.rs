//! The duration of a window, and the clock by which it is measured.

use crate::control::Outcome;
use crate::role_layout::RoleLayout;

/// The time from the first operation to the last, over all roles. A listening role starts earlier and waits, so the
/// others' start counts. Without a common clock: the receivers' own interval, first to last receipt; if there are
/// replies, or the first receipt was not measured, the interval of the roles that send first.
pub(crate) fn wall_ns(layout: &RoleLayout, outcomes: &[Outcome], one_clock: bool) -> u64 {
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

/// The interval of the roles that send first, on their own clock.
pub(crate) fn sender_wall_ns(layout: &RoleLayout, outcomes: &[Outcome]) -> u64 {
    let active = layout.roles.iter().zip(outcomes).filter(|(role, _)| role.listeners == 0);
    let (start, end) = active.fold((u64::MAX, 0), |(start, end), (_, outcome)| {
        (start.min(outcome.start_ns), end.max(outcome.end_ns))
    });
    end.saturating_sub(start)
}
