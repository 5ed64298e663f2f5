//! What a gain means: which of several is enough, and in words.

use super::gain::{NOT_WORTH, With};
use crossway_records::stats::Interval;

/// A gain of this part of the best one is enough if the programs need no change for it.
const ENOUGH: f64 = 0.9;

/// Whether the best of these that needs no change of the programs gains about as much as the best of all.
pub(super) fn run_is_enough(with: &[With]) -> bool {
    let best = |unmodified: bool| {
        let these = with.iter().filter(|way| way.unmodified == unmodified);
        these.max_by(|a, b| middle(a.less_time).total_cmp(&middle(b.less_time)))
    };
    best(true).is_some_and(|run| {
        let others = best(false).map_or(0.0, |other| middle(other.less_time));
        run.less_time.low > NOT_WORTH && middle(run.less_time) >= ENOUGH * others
    })
}

pub(super) fn middle(interval: Interval) -> f64 {
    (interval.low + interval.high) / 2.0
}

/// A gain in words. `at_least`: part of what the programs save is not known.
pub(super) fn verdict(less: Interval, at_least: bool) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if less.high < NOT_WORTH {
        return match less.high < -NOT_WORTH {
            true => format!("{} to {} slower: leave it", percent(-less.high), percent(-less.low)),
            false => format!("at most {}: leave it", percent(less.high.max(0.0))),
        };
    }
    if less.low < -0.005 {
        return format!(
            "between {} slower and {} faster: unclear",
            percent(-less.low),
            percent(less.high)
        );
    }
    let (low, high) = (percent(less.low.max(0.0)), percent(less.high));
    if at_least {
        // A program computes faster when it need not wake up first.
        format!("at least {low} less time")
    } else if low == high {
        format!("about {low} less time")
    } else {
        format!("{low} to {high} less time")
    }
}
