//! What was observed of the survivor in one attempt.

use super::ReportedError;
use super::act::Progress;
use super::{Detection, Leftover, Outcome};

/// Result of one attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observation {
    pub(super) outcome: Option<Outcome>,
    pub(super) detected_by: Option<Detection>,
    pub(super) detected_after_ns: Option<u64>,
    pub(super) hung: bool,
    pub(super) sent: Option<u64>,
    pub(super) received: Option<u64>,
    pub(super) received_not_sent: Option<u64>,
    pub(super) sent_lost: Option<u64>,
    pub(super) left_behind: Option<Vec<Leftover>>,
    pub(super) warnings: Vec<String>,
}

/// How the survivor's act ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The act ended, with or without an error.
    Over(Option<ReportedError>),
    /// The act did not end while it was watched; `moving` is set if the act's message counts were still increasing.
    Silent { moving: bool },
    /// The process died or reported a failure. The text says how, for example with the exit status; it completes a
    /// sentence whose subject is the process.
    Dead(String),
}

/// The reason why an attempt has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoObservation {
    /// The fault cannot be injected.
    Skipped { why: String, remedy: Option<String> },
    /// The attempt itself failed.
    Failed(String),
}

impl NoObservation {
    pub(super) fn skipped(why: impl Into<String>) -> Self {
        NoObservation::Skipped { why: why.into(), remedy: None }
    }
}

impl From<crossway_sys::OsError> for NoObservation {
    fn from(error: crossway_sys::OsError) -> Self {
        NoObservation::Failed(error.to_string())
    }
}

impl Observation {
    /// Computes what was sent, received and lost, from the counts of both ends.
    pub(super) fn count(&mut self, sender: Progress, receiver: Progress, receiver_died: bool) {
        // A sender killed between a send and its count has sent one more message than its count says.
        let sent = sender.sent.max(receiver.received);
        self.sent = Some(sent);
        self.received = Some(receiver.received);
        self.sent_lost = (!receiver_died).then(|| sent - receiver.received);
        self.received_not_sent = (!receiver_died).then_some(receiver.not_sent);
    }

    /// Records how the survivor's act ended; the fault was injected at `at_ns`.
    pub(super) fn end(&mut self, ended: &Ended, at_ns: u64) {
        self.outcome = Some(match ended {
            Ended::Over(Some(error)) => {
                self.detected_by_error(error);
                self.detected_after_ns = Some(error.at_ns.saturating_sub(at_ns));
                Outcome::Detected
            }
            Ended::Over(None) => Outcome::Unaffected,
            Ended::Silent { moving: true } => Outcome::Unnoticed,
            Ended::Silent { moving: false } => {
                self.hung = true;
                Outcome::Hung
            }
            Ended::Dead(how) => {
                self.warnings.push(format!("the survivor {how}"));
                Outcome::Died
            }
        });
        if self.received_not_sent.is_some_and(|n| n > 0) && self.outcome != Some(Outcome::Died) {
            self.outcome = Some(Outcome::Deceived);
        }
    }

    /// Records the error that notified the survivor of the fault.
    pub(super) fn detected_by_error(&mut self, error: &ReportedError) {
        self.detected_by = Some(Detection {
            call: error.call.clone(),
            error: error.error.clone(),
            peer_closed: error.peer_closed,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_outweighs_an_error_and_a_death_outweighs_both() {
        let detected = ReportedError {
            call: "receive".to_owned(),
            error: "gone".to_owned(),
            peer_closed: true,
            at_ns: 150,
            took_ns: 60,
        };
        let sender = Progress { sent: 8, ..Progress::default() };
        let receiver = Progress { received: 7, not_sent: 1, ..Progress::default() };
        let mut seen = Observation::default();
        seen.end(&Ended::Over(Some(detected.clone())), 100);
        assert_eq!((seen.outcome, seen.detected_after_ns), (Some(Outcome::Detected), Some(50)));
        seen.count(sender, receiver, false);
        assert_eq!((seen.sent_lost, seen.received_not_sent), (Some(1), Some(1)));
        seen.end(&Ended::Over(Some(detected)), 100);
        assert_eq!(seen.outcome, Some(Outcome::Deceived));
        seen.end(&Ended::Dead("was killed by signal 7".to_owned()), 100);
        assert_eq!(seen.outcome, Some(Outcome::Died));
        let mut dead_receiver = Observation::default();
        dead_receiver.count(sender, receiver, true);
        assert_eq!(dead_receiver.sent_lost, None);
    }
}
