//! Two roles with a channel between them, which can be controlled, killed and observed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crossway_mech::{Bind, Caps, Wait};
use crossway_sys::clock::{Ticker, monotonic_ns};
use crossway_sys::{Obstacle, lease, poll};

use super::act::{Progress, phase, progress_file};
use super::observation::{Ended, NoObservation};
use super::{Act, ActResult, Side};
use crate::control::{Answer, ControlError, OfferText, Order, Part, Task};
use crate::launcher::{CLOSE_LIMIT, Launcher, RoleProcess};
use crossway_records::inputs::{Inputs, Workload};

/// Time limit for a step of an attempt while nothing is broken yet.
const STEP_LIMIT: Duration = Duration::from_secs(35);

/// Interval at which a condition is polled.
const LOOK: Duration = Duration::from_micros(200);

/// Length of all messages in bytes: longer than what a pipe writes atomically (PIPE_BUF), and not a multiple of a page.
const SIZE_BYTES: u64 = 6000;

/// Length of the messages in bytes for a mechanism, which may have a lower maximum.
pub(super) fn size_bytes(caps: &Caps) -> u64 {
    caps.max_message.map_or(SIZE_BYTES, |most| SIZE_BYTES.min(most as u64))
}

/// Resources shared by all attempts with one mechanism.
pub(super) struct Bench<'a> {
    pub(super) mechanism: &'static str,
    pub(super) caps: Caps,
    pub(super) launcher: &'a Launcher,
    pub(super) run: &'a lease::Run,
    /// How long a silent survivor is watched.
    pub(super) watch: Duration,
    /// Why this process has no private `/tmp`, `/dev/shm` and IPC tables; `None` if it has them.
    pub(super) not_private: Option<Obstacle>,
}

/// What a role answered, if anything.
pub(super) enum Heard {
    Answer(Box<Answer>, Vec<OwnedFd>),
    Silence,
    Dead(String),
}

/// A role in its own process, as the controller of the attempt sees it.
pub(super) struct Actor {
    process: RoleProcess,
    progress: OwnedFd,
    wait: Wait,
    dead: bool,
}

impl Bench<'_> {
    /// The mechanism's default way of waiting: blocking if the mechanism supports it.
    pub(super) fn wait(&self) -> Wait {
        if self.caps.can_block { Wait::Block } else { Wait::Spin }
    }

    /// Starts a role, which has no task yet.
    pub(super) fn start(&self, side: Side) -> Result<Actor, NoObservation> {
        self.start_by(self.launcher, side)
    }

    /// Like [`Bench::start`], but with the command of `launcher` instead of the bench's own.
    pub(super) fn start_by(&self, launcher: &Launcher, side: Side) -> Result<Actor, NoObservation> {
        let name = match side {
            Side::Listener => "listener",
            Side::Connector => "connector",
        };
        let process =
            RoleProcess::start(Command::new(&launcher.program), launcher, name).map_err(failed)?;
        Ok(Actor { process, progress: progress_file()?, wait: self.wait(), dead: false })
    }

    /// Sends a role its task; the answer contains the role's offers.
    pub(super) fn begin(&self, actor: &mut Actor, side: Side) -> Heard {
        let task = Box::new(self.task(side));
        actor.order(&Order::Begin { task, contender: None }, &[], STEP_LIMIT)
    }

    fn task(&self, side: Side) -> Task {
        Task {
            mechanism: self.mechanism.to_owned(),
            script: None,
            inputs: Inputs::of(Workload::Throughput, size_bytes(&self.caps), self.wait()),
            part: if side == Side::Listener { Part::Receiver } else { Part::Sender },
            index: 0,
            cpu: None,
            listeners: u16::from(side == Side::Listener),
            peers: 1,
            first_peer: 0,
            // Calibrating a clock would take time that counts as the mechanism's.
            ticker: Some(Ticker::Monotonic),
            working_set_bytes: 1,
            leases: Some(self.leases()),
            bind: Bind::default(),
        }
    }

    fn leases(&self) -> PathBuf {
        self.run.dir().to_owned()
    }

    /// Opens a channel between two roles that have started: the listener and the connector.
    ///
    /// # Errors
    /// Returns the side that failed, and what it answered.
    pub(super) fn join(
        &self,
        listener: &mut Actor,
        connector: &mut Actor,
        limit: Duration,
    ) -> Result<(), (Side, Heard)> {
        let at = |side| move |heard| (side, heard);
        let (texts, fds) =
            offers(self.begin(listener, Side::Listener)).map_err(at(Side::Listener))?;
        offers(self.begin(connector, Side::Connector)).map_err(at(Side::Connector))?;
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        connector.say(&Order::Connect { offers: texts }, &borrowed);
        drop(borrowed);
        // The connector's descriptors must not stay open here, or its death would never be noticed.
        drop(fds);
        listener.say(&Order::Accept, &[]);
        for (side, actor) in [(Side::Connector, connector), (Side::Listener, listener)] {
            match actor.hear(limit) {
                Heard::Answer(answer, _) if matches!(*answer, Answer::Opened { .. }) => {}
                other => return Err((side, other)),
            }
        }
        Ok(())
    }

    /// Starts two roles with a channel: the affected end and the survivor.
    pub(super) fn open(&self, affected: Side) -> Result<(Actor, Actor), NoObservation> {
        let mut listener = self.start(Side::Listener)?;
        let mut connector = self.start(Side::Connector)?;
        self.join(&mut listener, &mut connector, STEP_LIMIT).map_err(|(side, heard)| {
            let (name, why) = (super::resources::name(side), heard.words());
            NoObservation::Failed(format!("the {name} could not open its end: {why}"))
        })?;
        Ok(match affected {
            Side::Listener => (listener, connector),
            Side::Connector => (connector, listener),
        })
    }
}

/// The offers in an answer; the answer itself as the error if it has no offers.
fn offers(heard: Heard) -> Result<(Vec<OfferText>, Vec<OwnedFd>), Heard> {
    match heard {
        Heard::Answer(answer, fds) => match *answer {
            Answer::Offers { offers, .. } => Ok((offers, fds)),
            other => Err(Heard::Answer(Box::new(other), fds)),
        },
        other => Err(other),
    }
}

fn failed(error: impl std::fmt::Display) -> NoObservation {
    NoObservation::Failed(error.to_string())
}

impl Heard {
    /// Describes the answer, as the reason for a result.
    pub(super) fn words(&self) -> String {
        match self {
            Heard::Answer(answer, _) => match &**answer {
                Answer::Failed { reason, .. } => reason.clone(),
                other => format!("{other:?}"),
            },
            Heard::Silence => "it did not answer".to_owned(),
            Heard::Dead(how) => format!("it {how}"),
        }
    }
}

impl Actor {
    /// Process id of the role.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn say(&mut self, order: &Order, fds: &[std::os::fd::BorrowedFd<'_>]) {
        // A dead role is noticed when it does not answer.
        let _ = self.process.wire.say(order, fds);
    }

    fn order(
        &mut self,
        order: &Order,
        fds: &[std::os::fd::BorrowedFd<'_>],
        limit: Duration,
    ) -> Heard {
        self.say(order, fds);
        self.hear(limit)
    }

    fn hear(&mut self, limit: Duration) -> Heard {
        let until = Some(Instant::now() + limit);
        match poll::any_readable(&[self.process.wire.fd()], until) {
            Ok(ready) if !ready[0] => return Heard::Silence,
            _ => {}
        }
        match self.process.wire.hear::<Answer>() {
            Ok((answer, fds)) => Heard::Answer(Box::new(answer), fds),
            Err(ControlError::Closed) => {
                self.dead = true;
                Heard::Dead(self.process.exit_report())
            }
            Err(error) => Heard::Dead(format!("failed ({error})")),
        }
    }

    /// Starts an act; see [`Actor::act_ended`].
    pub(super) fn act(&mut self, act: Act) -> Result<(), NoObservation> {
        // Each act has its own file, so that its counts begin at 0.
        self.progress = progress_file()?;
        let progress = self.progress.as_fd().try_clone_to_owned().map_err(failed)?;
        self.say(&Order::Act { act }, &[progress.as_fd()]);
        Ok(())
    }

    /// The progress of the role's act.
    pub(super) fn progress(&self) -> Progress {
        Progress::read(&self.progress)
    }

    /// Waits until `far` returns true for the progress of the act.
    pub(super) fn wait_until(&self, far: impl Fn(&Progress) -> bool) -> Result<(), NoObservation> {
        let begin = Instant::now();
        while !far(&self.progress()) {
            if begin.elapsed() > STEP_LIMIT {
                let progress = self.progress();
                return Err(NoObservation::Failed(format!(
                    "the {} did not reach the state in which the fault is injected within {STEP_LIMIT:?}: {progress:?}",
                    self.process.name
                )));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until the act has begun. If the end blocks while it waits, also waits until the end sleeps.
    pub(super) fn wait_until_waiting(&self) -> Result<(), NoObservation> {
        self.wait_until(|progress| progress.phase >= phase::BEGUN)?;
        if self.wait != Wait::Block {
            return Ok(());
        }
        let stat = format!("/proc/{}/stat", self.pid());
        let begin = Instant::now();
        loop {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            let state = text.rfind(')').map(|at| &text[at..]);
            if state.is_none_or(|state| !state.starts_with(") R")) || begin.elapsed() > STEP_LIMIT {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the end of the act, for at most `watch`.
    pub(super) fn act_ended(&mut self, watch: Duration) -> (Ended, Option<ActResult>) {
        let first = match self.hear(watch * 3 / 4) {
            Heard::Silence => {
                let before = self.progress();
                match self.hear(watch / 4) {
                    Heard::Silence => {
                        let moving = self.progress() != before;
                        return (Ended::Silent { moving }, None);
                    }
                    other => other,
                }
            }
            other => other,
        };
        match first {
            Heard::Answer(answer, _) => match *answer {
                Answer::Acted { seen } => (Ended::Over(seen.error.clone()), Some(*seen)),
                Answer::Failed { reason, .. } => (Ended::Dead(format!("failed: {reason}")), None),
                other => (Ended::Dead(format!("gave an unexpected answer: {other:?}")), None),
            },
            Heard::Dead(how) => (Ended::Dead(how), None),
            Heard::Silence => unreachable!("handled above"),
        }
    }

    /// Kills the role and waits until it is dead. Returns the time immediately before the kill, CLOCK_MONOTONIC,
    /// nanoseconds.
    pub(super) fn kill(&mut self) -> u64 {
        let at_ns = monotonic_ns();
        self.process.kill();
        self.process.wait();
        self.dead = true;
        at_ns
    }

    /// Makes the role close its end and exit.
    pub(super) fn close(&mut self) {
        if !self.dead {
            let _ = self.order(&Order::Close, &[], CLOSE_LIMIT);
            self.kill();
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if !self.dead {
            self.kill();
        }
    }
}
