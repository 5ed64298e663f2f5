//! The fault matrix of contenders: the same faults as for mechanisms, applied to programs of which only the protocol is
//! known.
//!
//! A program reports nothing while it sends or receives, so faults in traffic are injected at random times instead of
//! after a number of messages. Lost messages can be counted only in windows that end; the checksum shows whether a
//! window's content is correct. Only the process of the end itself is killed; processes that it started, such as a
//! broker, keep running.

use std::time::Duration;

use crossway_records::sorting::CollectTree;
use crossway_sys::clock::monotonic_ns;
use crossway_sys::proc::{self, Limited};
use crossway_sys::{Obstacle, lease};

use super::bench::size_bytes;
use super::cells::Cell;
use super::observation::{NoObservation, Observation};
use super::places::{self, Things};
use super::resources::starve;
use super::vandal::Vandal;
use super::{Detection, Fault, Leftover, Outcome, Side, State};
use crate::contender::{End, Launch, ProgramError};
use crossway_loops::payload::next_random;

/// Time limit for a step while nothing is broken; a step that takes longer counts as failed.
const STEP_LIMIT: Duration = Duration::from_secs(20);
/// How long a process stays stopped.
const STOPPED: Duration = Duration::from_millis(200);
/// A sender that is not done after this time is considered to wait for its receiver.
const SETTLED: Duration = Duration::from_millis(300);
/// Number of messages that no channel can hold.
const WITHOUT_END: u64 = 1 << 40;
/// Number of messages in a window that ends: 18 MB, more than any channel holds.
const MESSAGES: u64 = 3000;
/// Number of messages that show that a channel works; every channel holds this many.
const FEW: u64 = 4;

/// The resources that all attempts with one contender share.
pub(super) struct Outside<'a> {
    pub(super) launch: &'a Launch,
    pub(super) watch: Duration,
    pub(super) not_private: Option<Obstacle>,
}

/// The two ends of an attempt.
struct Ends {
    affected: End,
    survivor: End,
}

impl Outside<'_> {
    /// The library named in the program's greeting, or why the contender cannot be tested.
    pub(super) fn version(&self) -> Result<String, String> {
        let size = size_bytes(&self.launch.caps);
        End::start(self.launch, true, true, size, self.launch.deadline)
            .map(|end| end.library().to_owned())
            .map_err(|error| error.to_string())
    }

    /// Makes one attempt; `trial` varies the moment of the fault.
    pub(super) fn attempt(&self, cell: &Cell, trial: u32) -> Result<Observation, NoObservation> {
        match cell.fault {
            Fault::Kill => self.kill(cell, trial),
            Fault::Stop => self.stop(cell),
            Fault::Garbage => self.garbage(cell),
            Fault::WrongLength => {
                Err(NoObservation::skipped("a contender sends only messages of the agreed length"))
            }
            Fault::FullQueue => self.full_queue(cell),
            Fault::FullDisk | Fault::FullShm | Fault::FullDescriptorTable | Fault::LockedMemory => {
                self.resource(cell)
            }
        }
    }

    /// Starts both programs and waits for their greetings; returns the affected one first.
    fn start(&self, cell: &Cell, affected_sends: bool) -> Result<Ends, NoObservation> {
        // Both ends of an attempt make the payload from the same secret.
        let launch = Launch { secret: lease::random_number(), ..self.launch.clone() };
        let mut limited = launch.clone();
        if cell.fault == Fault::LockedMemory && proc::is_root() {
            limited.run.splice(0..0, ["setpriv", "--bounding-set=-ipc_lock"].map(str::to_owned));
        }
        let listens = cell.affected == Side::Listener;
        let limit = self.launch.deadline;
        let start = |launch, listens, sends| {
            End::start(launch, listens, sends, size_bytes(&launch.caps), limit).map_err(failed)
        };
        let mut affected = start(&limited, listens, affected_sends)?;
        let mut survivor = start(&launch, !listens, !affected_sends)?;
        let shared = match cell.affected {
            Side::Listener => survivor.share_memory(&affected),
            Side::Connector => affected.share_memory(&survivor),
        };
        shared.map_err(failed)?;
        Ok(Ends { affected, survivor })
    }

    fn open(&self, cell: &Cell, affected_sends: bool) -> Result<Ends, NoObservation> {
        let mut ends = self.start(cell, affected_sends)?;
        ends.join(cell.affected, STEP_LIMIT).map_err(|(_, error)| failed(error))?;
        Ok(ends)
    }

    fn kill(&self, cell: &Cell, trial: u32) -> Result<Observation, NoObservation> {
        let before = self.not_private.is_none().then(places::look);
        let affected_sends = match cell.state {
            State::Idle | State::Sending | State::Full => true,
            State::Receiving | State::NotReceiving => false,
            State::WritingInPlace | State::ReadingInPlace | State::Opening => {
                let why = "the contender protocol does not report when a program is in the middle of opening, sending \
                           or receiving";
                return Err(NoObservation::skipped(why));
            }
        };
        let mut ends = self.open(cell, affected_sends)?;
        let mut chance = u64::from(trial);
        let amid = Duration::from_millis(20 + next_random(&mut chance) % 60);
        let go = |end: &mut End| end.go(WITHOUT_END, STEP_LIMIT).map_err(failed);
        match cell.state {
            State::Idle => {
                go(&mut ends.survivor)?;
                std::thread::sleep(amid);
            }
            State::Full => {
                go(&mut ends.affected)?;
                std::thread::sleep(SETTLED);
            }
            State::NotReceiving => {
                go(&mut ends.survivor)?;
                std::thread::sleep(SETTLED);
            }
            _ => {
                go(&mut ends.survivor)?;
                go(&mut ends.affected)?;
                std::thread::sleep(amid);
            }
        }
        let killed_ns = monotonic_ns();
        ends.affected.kill();
        let mut seen = Observation::default();
        // A survivor that did not wait for its peer yet begins now.
        let began = if cell.state == State::Full {
            ends.survivor.go(WITHOUT_END, self.watch)
        } else {
            Ok(())
        };
        match began.and_then(|()| ends.survivor.done(self.watch)) {
            Ok(_) => seen.outcome = Some(Outcome::Unaffected),
            Err(error) => seen.told_outside(&error, call(!affected_sends), killed_ns),
        }
        seen.warnings.push(
            "a contender does not report how many messages of an interrupted window were lost"
                .to_owned(),
        );
        match before {
            Some(before) => seen.left_behind = Some(left_behind(&before, ends)),
            None => seen.warnings.extend(self.not_private.as_ref().map(places::unchecked)),
        }
        Ok(seen)
    }

    fn stop(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let affected_sends = cell.state == State::Sending;
        let mut ends = self.open(cell, affected_sends)?;
        ends.affected.go(MESSAGES, STEP_LIMIT).map_err(failed)?;
        let stopped_ns = monotonic_ns();
        proc::stop(ends.affected.pid());
        // `whole` reports a survivor that cannot even be started.
        let began = ends.survivor.go(MESSAGES, STEP_LIMIT);
        std::thread::sleep(STOPPED);
        proc::resume(ends.affected.pid());
        let mut seen = Observation::default();
        match began {
            Ok(()) => self.whole(&mut ends, affected_sends, stopped_ns, &mut seen),
            Err(error) => seen.told_outside(&error, call(!affected_sends), stopped_ns),
        }
        if seen.outcome == Some(Outcome::Unaffected) {
            seen.outcome = Some(Outcome::Resumed);
        }
        Ok(seen)
    }

    /// Waits until the windows of both ends have ended, and checks what was transferred.
    fn whole(&self, ends: &mut Ends, affected_sends: bool, begin_ns: u64, seen: &mut Observation) {
        let (sender, receiver) = if affected_sends {
            (&mut ends.affected, &mut ends.survivor)
        } else {
            (&mut ends.survivor, &mut ends.affected)
        };
        // The duration of a window does not matter; only an end that does not answer counts as hung.
        let limit = STEP_LIMIT.max(self.watch);
        let received = receiver.done(limit);
        let sent = sender.done(if received.is_ok() { limit } else { self.watch });
        match (sent, received) {
            (Ok(sent), Ok(received)) => {
                seen.sent = Some(sent.sent);
                seen.received = Some(received.received);
                seen.sent_lost = Some(sent.sent.saturating_sub(received.received));
                match receiver.is_genuine(received, limit) {
                    Ok(true) => {
                        seen.received_not_sent = Some(0);
                        seen.outcome = Some(match seen.sent_lost {
                            Some(0) => Outcome::Unaffected,
                            _ => Outcome::Unnoticed,
                        });
                    }
                    Ok(false) => seen.deceived(),
                    Err(error) => seen.told_outside(&error, "receive", begin_ns),
                }
            }
            (_, Err(error)) => seen.told_outside(&error, "receive", begin_ns),
            (Err(error), _) => seen.told_outside(&error, "send", begin_ns),
        }
    }

    fn garbage(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let mut ends = self.start(cell, true)?;
        let vandal = Vandal::before(ends.affected.pid());
        ends.join(cell.affected, STEP_LIMIT).map_err(|(_, error)| failed(error))?;
        ends.affected.go(FEW, STEP_LIMIT).map_err(failed)?;
        // Mechanisms that pass messages directly accept none until the survivor receives.
        std::thread::sleep(SETTLED);
        let damage = vandal.strike()?;
        let struck_ns = monotonic_ns();
        let mut seen = Observation::default();
        seen.warnings.push(damage.words());
        let mut received = |messages| {
            ends.survivor.go(messages, self.watch)?;
            let window = ends.survivor.done(self.watch)?;
            Ok((window, ends.survivor.is_genuine(window, self.watch)?))
        };
        match received(FEW) {
            Ok((window, true)) => {
                seen.received = Some(window.received);
                // All that were sent have arrived, so a further message was never sent.
                match received(1) {
                    Ok(_) => seen.deceived(),
                    Err(ProgramError::Silent { .. }) => {
                        seen.received_not_sent = Some(0);
                        seen.outcome = Some(Outcome::Unaffected);
                    }
                    Err(error) => seen.told_outside(&error, "receive", struck_ns),
                }
            }
            Ok((_, false)) => seen.deceived(),
            Err(error) => seen.told_outside(&error, "receive", struck_ns),
        }
        Ok(seen)
    }

    fn full_queue(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let mut ends = self.open(cell, true)?;
        let begin_ns = monotonic_ns();
        ends.affected.go(MESSAGES, STEP_LIMIT).map_err(failed)?;
        let mut seen = Observation::default();
        // Its sender waits, or its library accepts any number of messages.
        std::thread::sleep(SETTLED);
        let waits = !ends.affected.has_answered();
        match ends.survivor.go(MESSAGES, STEP_LIMIT) {
            Ok(()) => self.whole(&mut ends, true, begin_ns, &mut seen),
            Err(error) => seen.told_outside(&error, "receive", begin_ns),
        }
        if waits && seen.outcome == Some(Outcome::Unaffected) {
            seen.outcome = Some(Outcome::Resumed);
        } else if !waits {
            seen.warnings.push(format!("the channel was not full after {MESSAGES} messages"));
        }
        Ok(seen)
    }

    fn resource(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        if matches!(cell.fault, Fault::FullDisk | Fault::FullShm) {
            places::to_fill(self.not_private.as_ref())?;
        }
        let in_traffic = cell.state == State::Receiving;
        let mut ends = if in_traffic { self.open(cell, false)? } else { self.start(cell, false)? };
        let filled = starve(cell.fault, ends.affected.pid())?;
        let begin_ns = monotonic_ns();
        let mut seen = Observation::default();
        if !in_traffic && let Err((listener, error)) = ends.join(cell.affected, STEP_LIMIT) {
            seen.told_outside(&error, "open", begin_ns);
            if listener != (cell.affected == Side::Listener) {
                let what = "the end that failed is not the end into which the fault was injected";
                seen.warnings.push(what.to_owned());
            }
            drop(filled);
            return Ok(seen);
        }
        // For each window, the helper has to open a file.
        proc::set_limit(ends.affected.pid(), Limited::Descriptors, 1024)?;
        let ready =
            ends.affected.go(FEW, STEP_LIMIT).and_then(|()| ends.survivor.go(FEW, STEP_LIMIT));
        match ready {
            Ok(()) => self.whole(&mut ends, false, begin_ns, &mut seen),
            Err(error) => seen.told_outside(&error, "receive", begin_ns),
        }
        drop(filled);
        Ok(seen)
    }
}

impl Ends {
    fn join(&mut self, affected: Side, limit: Duration) -> Result<(), (bool, ProgramError)> {
        match affected {
            Side::Listener => End::join(&mut self.affected, &mut self.survivor, limit),
            Side::Connector => End::join(&mut self.survivor, &mut self.affected, limit),
        }
    }
}

/// The objects left behind when one end died, and what removed each of them: the survivor when it closed its end, a
/// sweep of Crossway's leases, or nothing.
fn left_behind(before: &Things, mut ends: Ends) -> Vec<Leftover> {
    let now = || places::look().difference(before).cloned().collect_tree::<Things>();
    let at_death = now();
    // Most survivors have already exited with an error; one that hangs is killed.
    if ends.survivor.close(Duration::from_secs(1)).is_err() {
        ends.survivor.kill();
    }
    let closed = now();
    drop(ends);
    let swept = now();
    places::leftovers(&at_death, &closed, &swept)
}

impl Observation {
    /// Records that at least one received message was never sent: either the checksum of a window is wrong, or a window
    /// was received although none was sent.
    fn deceived(&mut self) {
        self.received_not_sent = Some(1);
        self.outcome = Some(Outcome::Deceived);
    }

    /// Records that the program reported a failure, did not answer in time, or died.
    fn told_outside(&mut self, error: &ProgramError, call: &str, fault_ns: u64) {
        self.outcome = Some(match error {
            ProgramError::Silent { .. } => {
                self.hung = true;
                Outcome::Hung
            }
            ProgramError::Failed { reason, .. } => {
                self.detected_after_ns = Some(monotonic_ns().saturating_sub(fault_ns));
                self.detected_by = Some(Detection {
                    call: call.to_owned(),
                    error: reason.clone(),
                    // The reason is text for people; whether the library has an error code for it is not known.
                    peer_closed: false,
                });
                Outcome::Detected
            }
            error => {
                self.warnings.push(error.to_string());
                Outcome::Died
            }
        });
    }
}

fn call(sends: bool) -> &'static str {
    if sends { "send" } else { "receive" }
}

fn failed(error: ProgramError) -> NoObservation {
    match error {
        ProgramError::Failed { reason, unsupported: true } => NoObservation::skipped(reason),
        error => NoObservation::Failed(error.to_string()),
    }
}
