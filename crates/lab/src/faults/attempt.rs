//! One attempt: opens a channel, injects a fault at one end, and observes the other.

use std::time::Duration;

use crossway_mech::{Boundaries, Reliability};
use crossway_records::sorting::CollectTree;
use crossway_sys::clock::monotonic_ns;
use crossway_sys::proc;

use super::act::{Progress, WAIT_FOR_ROOM, phase};
use super::bench::{Actor, Bench, size_bytes};
use super::cells::Cell;
use super::message::NUMBER_BYTES;
use super::observation::{Ended, NoObservation, Observation};
use super::places::{self, Things};
use super::vandal::Vandal;
use super::{Act, Fault, Leftover, Outcome, State};
use crossway_loops::payload::next_random;

/// How long a process stays stopped.
const STOPPED: Duration = Duration::from_millis(200);

/// Number of messages in an attempt that ends by itself. With pauses in between, sending them takes about 200 ms.
const MESSAGES: u64 = 1000;
const GAP_US: u32 = 100;

/// How long a sender is watched to find out whether it waits for its receiver: it is considered to wait if it makes no
/// progress in the last quarter of this time.
const SETTLED: Duration = Duration::from_millis(400);

/// Number of messages in the channel when garbage is written to it; few enough for every channel.
const WAITING: u64 = 4;

const SEND: Act = Act::Send { messages: None, gap_us: 0 };
const RECEIVE: Act = Act::Receive { messages: None, buffer_bytes: None };

impl Bench<'_> {
    /// Makes one attempt; `trial` varies the moment of the fault.
    pub(super) fn attempt(&self, cell: &Cell, trial: u32) -> Result<Observation, NoObservation> {
        match cell.fault {
            Fault::Kill => self.kill(cell, trial),
            Fault::Stop => self.stop(cell),
            Fault::Garbage => self.garbage(cell),
            Fault::WrongLength => self.wrong_length(cell),
            Fault::FullQueue => self.full_queue(cell),
            Fault::FullDisk | Fault::FullShm | Fault::FullDescriptorTable | Fault::LockedMemory => {
                self.resource(cell)
            }
        }
    }

    fn kill(&self, cell: &Cell, trial: u32) -> Result<Observation, NoObservation> {
        if matches!(cell.state, State::WritingInPlace | State::ReadingInPlace)
            && !self.caps.in_place
        {
            let why = "the mechanism has no in-place access, so an end never holds a part of the channel's memory";
            return Err(NoObservation::skipped(why));
        }
        let before = self.not_private.is_none().then(places::look);
        let (mut affected, mut survivor) = self.open(cell.affected)?;
        let mut chance = u64::from(trial);
        let enough = 20 + next_random(&mut chance) % 200;
        let mut survivor_sends = false;
        match cell.state {
            State::Idle => {
                survivor.act(RECEIVE)?;
                survivor.wait_until_waiting()?;
            }
            State::Sending => {
                survivor.act(RECEIVE)?;
                affected.act(SEND)?;
                survivor.wait_until(|p| p.received >= enough)?;
            }
            State::Receiving => {
                survivor_sends = true;
                affected.act(RECEIVE)?;
                survivor.act(SEND)?;
                affected.wait_until(|p| p.received >= enough)?;
            }
            State::Full => fill(&mut affected)?,
            State::NotReceiving => {
                survivor_sends = true;
                fill(&mut survivor)?;
            }
            State::WritingInPlace => {
                survivor.act(RECEIVE)?;
                affected.act(Act::HoldWriting)?;
                affected.wait_until(|p| p.phase == phase::REACHED)?;
                survivor.wait_until_waiting()?;
            }
            State::ReadingInPlace => {
                survivor_sends = true;
                survivor.act(SEND)?;
                affected.act(Act::HoldReading)?;
                affected.wait_until(|p| p.phase == phase::REACHED)?;
            }
            State::Opening => {
                return Err(NoObservation::skipped(
                    "killing an end while it opens the channel is not tested",
                ));
            }
        }
        let killed_ns = affected.kill();
        if cell.state == State::Full {
            survivor.act(RECEIVE)?;
        }
        let (ended, _) = survivor.act_ended(self.watch);
        let mut seen = Observation::default();
        if survivor_sends {
            seen.count(survivor.progress(), affected.progress(), true);
        } else if cell.state != State::Idle {
            seen.count(affected.progress(), survivor.progress(), false);
        } else {
            seen.received_not_sent = Some(survivor.progress().not_sent);
        }
        seen.end(&ended, killed_ns);
        match before {
            Some(before) => {
                seen.left_behind =
                    Some(self.left_behind(&before, &affected, &mut survivor, &ended));
            }
            None => seen.warnings.extend(self.not_private.as_ref().map(places::unchecked)),
        }
        Ok(seen)
    }

    /// The objects left behind when one end died, and what removed each of them: the survivor when it closed its end,
    /// the sweep of the leases, or nothing.
    fn left_behind(
        &self,
        before: &Things,
        dead: &Actor,
        survivor: &mut Actor,
        ended: &Ended,
    ) -> Vec<Leftover> {
        let now = || places::look().difference(before).cloned().collect_tree::<Things>();
        let at_death = now();
        if matches!(ended, Ended::Over(_)) {
            survivor.close();
        } else {
            survivor.kill();
        }
        let closed = now();
        for pid in [dead.pid(), survivor.pid()] {
            self.run.remove_leases_of(pid);
        }
        let swept = now();
        places::leftovers(&at_death, &closed, &swept)
    }

    fn stop(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let (mut affected, mut survivor) = self.open(cell.affected)?;
        let send = Act::Send { messages: Some(MESSAGES), gap_us: GAP_US };
        let receive = Act::Receive { messages: Some(MESSAGES), buffer_bytes: None };
        let survivor_sends = cell.state == State::Receiving;
        let (mine, theirs) = if survivor_sends { (receive, send) } else { (send, receive) };
        survivor.act(theirs)?;
        affected.act(mine)?;
        let receiver = if survivor_sends { &affected } else { &survivor };
        receiver.wait_until(|p| p.received >= 20)?;
        let stopped_ns = monotonic_ns();
        proc::stop(affected.pid());
        let (while_stopped, _) = survivor.act_ended(STOPPED);
        proc::resume(affected.pid());
        let detected = matches!(while_stopped, Ended::Over(Some(_)));
        let mut seen = Observation::default();
        let (ended, receiver_over) = if survivor_sends {
            let ended =
                if detected { while_stopped } else { self.rest_of(&mut survivor, while_stopped) };
            (ended, matches!(affected.act_ended(self.watch).0, Ended::Over(None)))
        } else {
            let ended =
                if detected { while_stopped } else { self.rest_of(&mut survivor, while_stopped) };
            let over = matches!(ended, Ended::Over(None));
            (ended, over)
        };
        let (sender, receiver) =
            if survivor_sends { (&survivor, &affected) } else { (&affected, &survivor) };
        seen.count(sender.progress(), receiver.progress(), false);
        seen.end(&ended, stopped_ns);
        if receiver_over && seen.outcome == Some(Outcome::Unaffected) {
            seen.outcome = Some(Outcome::Resumed);
        } else if seen.sent_lost.is_some_and(|lost| lost > 0)
            && seen.outcome != Some(Outcome::Detected)
        {
            // A lossy mechanism may have dropped the messages while nothing was receiving: the wait is in vain.
            seen.outcome = Some(Outcome::Unnoticed);
            seen.hung = false;
        }
        Ok(seen)
    }

    /// Waits for the end of an act as long as the act makes progress. `first` is the result of the preceding wait.
    fn rest_of(&self, actor: &mut Actor, first: Ended) -> Ended {
        match first {
            Ended::Silent { .. } => {
                // Continues while the act makes progress, because there are pauses between the messages.
                let mut last = actor.progress();
                loop {
                    let (ended, _) = actor.act_ended(self.watch);
                    if !matches!(ended, Ended::Silent { .. }) || actor.progress() == last {
                        return ended;
                    }
                    last = actor.progress();
                }
            }
            over => over,
        }
    }

    fn garbage(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let mut listener = self.start(super::Side::Listener)?;
        let mut connector = self.start(super::Side::Connector)?;
        let pid = match cell.affected {
            super::Side::Listener => listener.pid(),
            super::Side::Connector => connector.pid(),
        };
        // After its start, a role initialises itself; descriptors that it opens for that do not belong to the channel.
        std::thread::sleep(Duration::from_millis(20));
        let vandal = Vandal::before(pid);
        self.join(&mut listener, &mut connector, Duration::from_secs(35)).map_err(
            |(_, heard)| {
                NoObservation::Failed(format!("the channel could not be opened: {}", heard.words()))
            },
        )?;
        let (mut affected, mut survivor) = match cell.affected {
            super::Side::Listener => (listener, connector),
            super::Side::Connector => (connector, listener),
        };
        affected.act(Act::Send { messages: Some(WAITING), gap_us: 0 })?;
        // Mechanisms that pass messages directly accept none until the survivor receives.
        while let (Ended::Silent { moving: true }, _) = affected.act_ended(SETTLED) {}
        let damage = vandal.strike()?;
        let struck_ns = monotonic_ns();
        survivor.act(RECEIVE)?;
        let (ended, _) = survivor.act_ended(self.watch);
        let mut seen = Observation::default();
        seen.warnings.push(damage.words());
        seen.count(affected.progress(), survivor.progress(), false);
        seen.end(&ended, struck_ns);
        if seen.outcome == Some(Outcome::Hung) && seen.sent_lost == Some(0) {
            // Everything sent has arrived and the peer is alive, so waiting for more is correct.
            seen.outcome = Some(Outcome::Unaffected);
            seen.hung = false;
        }
        Ok(seen)
    }

    fn wrong_length(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let size_bytes = size_bytes(&self.caps);
        let half = size_bytes / 2;
        if half < NUMBER_BYTES {
            return Err(NoObservation::skipped(
                "the mechanism's messages are too short: half a message could not contain the number that identifies \
                 the message",
            ));
        }
        let (mut affected, mut survivor) = self.open(cell.affected)?;
        let streams = self.caps.boundaries == Boundaries::Stream;
        let begin_ns = monotonic_ns();
        let buffer_bytes = (!streams).then_some(half);
        let messages = (!streams).then_some(1);
        survivor.act(Act::Receive { messages, buffer_bytes })?;
        survivor.wait_until_waiting()?;
        if streams {
            affected.act(Act::SendLength { bytes: half })?;
            let _ = affected.act_ended(self.watch);
            affected.close();
        } else {
            affected.act(Act::SendLength { bytes: size_bytes })?;
            let _ = affected.act_ended(self.watch);
            affected.act(Act::SendLength { bytes: half })?;
            let _ = affected.act_ended(self.watch);
        }
        let (ended, _) = survivor.act_ended(self.watch);
        let mut seen = Observation::default();
        let got = survivor.progress();
        seen.received = Some(got.received);
        seen.received_not_sent = Some(got.not_sent);
        seen.end(&ended, begin_ns);
        Ok(seen)
    }

    fn full_queue(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let (mut receiver, mut sender) = self.open(cell.affected.other())?;
        sender.act(Act::FillThenWait)?;
        let (filled, result) = sender.act_ended(Duration::from_secs(35));
        let mut seen = Observation::default();
        let accepted = sender.progress();
        let never = accepted.phase == phase::NEVER;
        if let Ended::Silent { .. } | Ended::Dead(_) = filled {
            seen.count(accepted, Progress::default(), true);
            seen.end(&filled, 0);
            return Ok(seen);
        }
        if let Some(error) = result.as_ref().and_then(|result| result.error.as_ref()) {
            seen.detected_by_error(error);
            seen.detected_after_ns = Some(error.took_ns);
            seen.warnings.push(format!("the send had a time limit of {WAIT_FOR_ROOM:?}"));
        }
        if result.is_some_and(|result| result.deadline_kept == Some(false)) {
            seen.warnings.push("the send did not return within its time limit".to_owned());
        }
        receiver.act(Act::Receive { messages: Some(accepted.sent), buffer_bytes: None })?;
        sender.act(Act::Flush)?;
        let first = receiver.act_ended(self.watch).0;
        let drained = self.rest_of(&mut receiver, first);
        seen.count(accepted, receiver.progress(), false);
        seen.outcome = Some(match drained {
            _ if seen.received_not_sent.is_some_and(|n| n > 0) => Outcome::Deceived,
            Ended::Over(None) if never => Outcome::Unaffected,
            Ended::Over(None) => Outcome::Resumed,
            Ended::Dead(how) => {
                seen.warnings.push(format!("the receiver {how}"));
                Outcome::Died
            }
            _ if self.caps.reliability == Reliability::Lossy => Outcome::Unnoticed,
            _ => {
                seen.hung = true;
                Outcome::Hung
            }
        });
        if never {
            let warning = format!("the channel was not full after {} messages", accepted.sent);
            seen.warnings.push(warning);
        }
        Ok(seen)
    }
}

/// Makes an end send until it waits for room.
fn fill(actor: &mut Actor) -> Result<(), NoObservation> {
    actor.act(Act::FillUp)?;
    actor.wait_until(|p| p.phase >= phase::REACHED)?;
    match actor.progress().phase {
        phase::NEVER => Err(NoObservation::skipped(
            "the channel never became full: it drops messages or accepts a very large number of them",
        )),
        phase::FAILED => Err(NoObservation::Failed(
            "a send failed before the channel was full, in which state the fault is injected"
                .to_owned(),
        )),
        _ => actor.wait_until_waiting(),
    }
}
