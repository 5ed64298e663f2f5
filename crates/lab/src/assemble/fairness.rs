//! How evenly several roles shared the channel: shares, Jain's index, waits, and wasted wake-ups.

use crate::control::Outcome;
use crossway_records::inputs::Workload;
use crossway_records::record::Fairness;

/// How evenly the senders (with one receiver), the pairs or the receivers shared the channel; `None` for workloads with
/// two roles, or if nothing arrived.
pub(super) fn of(outcomes: &[Outcome], workload: Workload) -> Option<Fairness> {
    let amounts: Vec<u64> = match workload {
        Workload::FanIn { .. } => outcomes.iter().flat_map(|o| o.shares.clone()).collect(),
        Workload::Pairs { .. } | Workload::FanOut { .. } => {
            outcomes.iter().filter(|o| !o.shares.is_empty()).map(|o| o.received).collect()
        }
        Workload::Throughput
        | Workload::PingPong
        | Workload::Paced { .. }
        | Workload::Requests { .. }
        | Workload::Exchange
        | Workload::Clients { .. }
        | Workload::Replay { .. } => return None,
    };
    let total: u64 = amounts.iter().sum();
    if total == 0 {
        return None;
    }
    let shares: Vec<f64> = amounts.iter().map(|&a| a as f64 / total as f64).collect();
    let senders: Vec<&Outcome> = outcomes.iter().filter(|o| o.sent > 0).collect();
    Some(Fairness {
        jain: jain(&shares),
        shares,
        longest_wait_ns: outcomes.iter().filter_map(|o| o.longest_wait_ns).max().unwrap_or(0),
        sleeps_per_msg: per_message(&senders, |o| o.switches_voluntary),
        // A sender that is woken and finds no room sleeps again. A useful wake-up is followed by a message, so sleeps
        // beyond one per message were wasted. Others may have been as well, so this is a lower bound.
        wasted_wakeups_per_msg: per_message(&senders, |o| {
            o.switches_voluntary.saturating_sub(o.sent)
        }),
    })
}

fn per_message(senders: &[&Outcome], what: fn(&Outcome) -> u64) -> Option<f64> {
    let sent: u64 = senders.iter().map(|o| o.sent).sum();
    let all: u64 = senders.iter().map(|o| what(o)).sum();
    (sent > 0).then(|| all as f64 / sent as f64)
}

/// Jain's fairness index (Jain, Chiu, Hawe 1984): the square of the sum divided by n times the sum of squares.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_hog() {
        assert!((jain(&[0.25; 4]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn sleeps_beyond_one_per_message_were_in_vain() {
        let sender = |sent, switches_voluntary| Outcome {
            sent,
            switches_voluntary,
            longest_wait_ns: Some(sent),
            ..Outcome::default()
        };
        let receiver = Outcome { received: 400, shares: vec![100, 300], ..Outcome::default() };
        let outcomes = [receiver, sender(100, 300), sender(300, 200)];
        let fair = of(&outcomes, Workload::FanIn { senders: 2, receiver_us: 0, period_us: 0 })
            .expect("shares");
        assert_eq!((fair.shares.as_slice(), fair.longest_wait_ns), (&[0.25, 0.75][..], 300));
        assert_eq!(fair.sleeps_per_msg, Some(1.25));
        assert_eq!(fair.wasted_wakeups_per_msg, Some(0.5), "200 of the first, none of the second");
        assert_eq!(of(&outcomes, Workload::Throughput), None);
    }
}
