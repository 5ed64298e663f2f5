//! The controller's side of a host: starts the host's agent, stores what is known about it, and starts another agent if
//! one is lost.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crossway_sys::clock::monotonic_ns;

use super::greeting::{self, Version};
use super::line::Line;
use super::{About, FromAgent, HostError, ToAgent};
use crate::control::ControlError;
use crossway_records::testbed::HostWords;

/// Time limit for the greeting of an agent, which includes connecting or starting a job.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for the greeting of a later agent, as a multiple of the time that the first one took, but at least
/// [`AGAIN_AT_LEAST`] and at most [`GREETING_LIMIT`]. Once the usual time of a host is known, there is no need to wait
/// a minute to find that it is down.
const AGAIN_FACTOR: u32 = 10;
const AGAIN_AT_LEAST: Duration = Duration::from_secs(10);
/// Time limit for an agent to describe its host (probes and calibration take a second on an idle machine).
pub(super) const ABOUT_LIMIT: Duration = Duration::from_secs(60);
/// How many characters of an invalid answer are quoted.
const QUOTED_NONSENSE: usize = 80;

/// How a host is reached, and how it is used.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// The host's name, prefix and optional address.
    pub words: HostWords,
    /// The path of the `crossway` program on the host.
    pub program: String,
    /// Whether the host shares its kernel with other hosts of the testbed. If so, only the CPUs that the host's agent
    /// may use count as the host's CPUs.
    pub shares_kernel: bool,
    /// Mechanisms that will be measured on the host.
    pub mechanisms: Vec<String>,
}

/// Adds options to a command that make `ssh` fail within seconds instead of waiting for input (e.g. a password) or for a
/// machine that is off. Options given in the prefix take precedence.
pub(super) fn careful(mut words: Vec<String>) -> Vec<String> {
    if words[0] == "ssh" || words[0].ends_with("/ssh") {
        let given = words.join(" ").to_ascii_lowercase();
        for option in ["ConnectTimeout=15", "BatchMode=yes"] {
            let (name, _) = option.split_once('=').unwrap_or((option, ""));
            if !given.contains(&name.to_ascii_lowercase()) {
                words.splice(1..1, ["-o".to_owned(), option.to_owned()]);
            }
        }
    }
    words
}

/// A host in use by the controller.
#[derive(Debug)]
pub struct Host {
    plan: HostPlan,
    line: Option<Line>,
    about: Option<About>,
    /// Number of agents lost in a row.
    losses: u32,
    /// The last loss.
    last_loss: Option<HostError>,
    next_role: u32,
    /// How long the first agent took to greet.
    greeted_after: Option<Duration>,
}

impl Host {
    /// Creates a host without an agent.
    pub fn new(plan: HostPlan) -> Host {
        Host {
            plan,
            line: None,
            about: None,
            losses: 0,
            last_loss: None,
            next_role: 0,
            greeted_after: None,
        }
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        &self.plan.words.name
    }

    /// The host's name, prefix and address.
    pub fn words(&self) -> &HostWords {
        &self.plan.words
    }

    /// Whether the host shares its kernel with other hosts of the testbed.
    pub fn shares_kernel(&self) -> bool {
        self.plan.shares_kernel
    }

    /// The description of the host; `None` until its agent has sent it.
    pub fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }

    /// The command that starts the agent.
    fn command(&self) -> Vec<String> {
        let own = [self.plan.program.clone(), "agent".to_owned()];
        self.plan.words.prefix.iter().cloned().chain(own).collect()
    }

    /// The command as shown in messages, without the argument `agent`, so that the reader can append another one.
    fn shown(&self) -> String {
        let mut words = self.command();
        words.pop();
        words.join(" ")
    }

    /// Starts an agent if none is running. Does not wait for the agent, so that several hosts can start at the same
    /// time; [`Host::greet`] waits.
    pub fn begin(&mut self) -> Result<(), HostError> {
        if self.line.is_some() {
            return Ok(());
        }
        let words = self.command();
        let fail = |why: String| HostError::NoProgram {
            host: self.name().to_owned(),
            program: words[0].clone(),
            why,
        };
        let line = Line::start(&careful(words.clone())).map_err(fail)?;
        // If the agent has already exited, its output will show it.
        let _ = line.write(greeting::line(greeting::CONTROLLER).as_bytes());
        let mechanisms = self.plan.mechanisms.clone();
        let _ = line.say(&ToAgent::Introduce { mechanisms });
        self.line = Some(line);
        Ok(())
    }

    /// Starts an agent if none is running, and waits until it has sent its greeting and described its host.
    pub fn greet(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
        self.begin()?;
        if self.line.as_ref().is_some_and(|line| line.greeted) {
            return Ok(());
        }
        self.hear_greeting(interrupt).inspect_err(|_| self.line = None)?;
        // Messages may have arrived together with the greeting.
        self.sort_in()?;
        let about = self.expect(ABOUT_LIMIT, interrupt, |message| match message {
            FromAgent::About { about } => Some(*about),
            _ => None,
        })?;
        self.about = Some(about);
        if let Some(line) = &mut self.line {
            line.greeted = true;
        }
        Ok(())
    }

    fn hear_greeting(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
        let begun = Instant::now();
        let limit = match self.greeted_after {
            Some(first) => (first * AGAIN_FACTOR).clamp(AGAIN_AT_LEAST, GREETING_LIMIT),
            None => GREETING_LIMIT,
        };
        let until = begun + limit;
        let shown = self.shown();
        let host = self.name().to_owned();
        let Some(line) = &mut self.line else {
            return Err(self.lost_error("never ran".to_owned()));
        };
        let said = loop {
            if let Some(said) = line.frames.first_line() {
                break said;
            }
            if !line.wait(until, interrupt)? {
                return Err(HostError::Silent { host, command: shown, limit });
            }
            if line.frames.read_some().is_err() {
                let leftover = line.frames.leftover();
                if leftover.trim().is_empty() {
                    let how = line.end();
                    return Err(HostError::NoAgent { host, command: shown, how });
                }
                break leftover;
            }
        };
        let Some(there) = greeting::read(greeting::AGENT, &said) else {
            let said = said.trim().chars().take(QUOTED_NONSENSE).collect();
            return Err(HostError::Nonsense { host, command: shown, said });
        };
        let here = Version::own();
        if there != here {
            return Err(HostError::OtherVersion { host, there, here });
        }
        self.greeted_after.get_or_insert_with(|| begun.elapsed());
        Ok(())
    }

    /// Makes sure that an agent is running: the current one, or a new one if it was lost.
    pub(crate) fn ready(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
        self.greet(interrupt).inspect_err(|error| {
            // A loss during the description has already been counted.
            if !matches!(error, HostError::Lost { .. }) {
                self.note_loss(error);
            }
        })
    }

    /// Closes the agent's input, which makes the agent exit. Dropping the host waits for the exit.
    pub(crate) fn hang_up(&mut self) {
        if let Some(line) = &mut self.line {
            line.hang_up();
        }
    }

    /// The most recent loss of an agent, or the error after which the host was abandoned; `None` if there was none.
    pub(crate) fn last_loss(&self) -> Option<&HostError> {
        self.last_loss.as_ref()
    }

    /// Whether an agent is running, as far as is known.
    pub(crate) fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// Stops using the host after this error; no further agent is started.
    pub(crate) fn give_up(&mut self, error: &HostError) {
        self.losses = u32::MAX;
        self.last_loss = Some(error.clone());
    }

    pub(crate) fn note_loss(&mut self, error: &HostError) {
        if *error != HostError::Interrupted {
            self.losses = self.losses.saturating_add(1);
            self.last_loss = Some(error.clone());
        }
    }

    /// The number of agents lost in a row; the maximum of the type if the host was abandoned.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// Resets the count of losses after a completed trial.
    pub fn note_success(&mut self) {
        self.losses = 0;
    }

    /// A new number for a role; numbers are never reused.
    pub(crate) fn next_role(&mut self) -> u32 {
        self.next_role += 1;
        self.next_role
    }

    /// Sends a message to the agent.
    pub(crate) fn say(&mut self, what: &ToAgent) -> Result<(), HostError> {
        let sent = self.line.as_ref().map_or(Err(ControlError::Closed), |line| line.say(what));
        sent.map_err(|error| self.lose(&error))
    }

    /// A descriptor that is readable when the agent has sent something or has exited.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(|line| line.frames.fd())
    }

    /// Receives what the agent has sent; call it when the descriptor is readable.
    pub(crate) fn read_some(&mut self) -> Result<(), HostError> {
        let Some(line) = &mut self.line else {
            return Err(self.lost_error("has exited".to_owned()));
        };
        let read = line.frames.read_some();
        read.map_err(|error| self.lose(&error))?;
        self.sort_in()
    }

    /// Extracts the complete messages from the received data.
    fn sort_in(&mut self) -> Result<(), HostError> {
        let Some(line) = &mut self.line else { return Ok(()) };
        loop {
            match line.frames.next() {
                Ok(Some(message)) => line.inbox.push_back(message),
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.lose(&error)),
            }
        }
    }

    /// Removes and returns the first received message that `wanted` accepts.
    pub(crate) fn take<T>(
        &mut self,
        mut wanted: impl FnMut(FromAgent) -> Result<T, FromAgent>,
    ) -> Option<T> {
        let inbox = &mut self.line.as_mut()?.inbox;
        for at in 0..inbox.len() {
            match wanted(inbox.remove(at)?) {
                Ok(message) => return Some(message),
                Err(message) => inbox.insert(at, message),
            }
        }
        None
    }

    /// Waits at most `limit` for an answer of the agent itself that `wanted` accepts. Messages from roles stay queued;
    /// any others are discarded.
    pub(crate) fn expect<T>(
        &mut self,
        limit: Duration,
        interrupt: Option<BorrowedFd<'_>>,
        mut wanted: impl FnMut(FromAgent) -> Option<T>,
    ) -> Result<T, HostError> {
        let until = Instant::now() + limit;
        loop {
            let found = self.take(|message| match message {
                role @ FromAgent::Role { .. } => Err(role),
                other => Ok(other),
            });
            match found.map(&mut wanted) {
                Some(Some(answer)) => return Ok(answer),
                // A late answer from a trial that failed.
                Some(None) => continue,
                None => {}
            }
            let command = self.shown();
            let host = self.name().to_owned();
            let Some(line) = &mut self.line else {
                return Err(self.lost_error("has exited".to_owned()));
            };
            if !line.wait(until, interrupt)? {
                let error = HostError::Silent { host, command, limit };
                self.note_loss(&error);
                self.line = None;
                return Err(error);
            }
            self.read_some()?;
        }
    }

    /// Closes the connection after an error. Returns the error to report, which says how the agent's command exited or
    /// why the connection failed.
    pub(crate) fn lose(&mut self, error: &ControlError) -> HostError {
        let how = match (&mut self.line, error) {
            (Some(line), ControlError::Closed) => line.end(),
            (_, error) => format!("failed ({error})"),
        };
        self.line = None;
        let error = self.lost_error(how);
        self.note_loss(&error);
        error
    }

    fn lost_error(&self, how: String) -> HostError {
        HostError::Lost { host: self.name().to_owned(), command: self.shown(), how }
    }

    /// Updates the offset between the agent's clock and ours from an answer that contains the time of the agent's
    /// clock.
    pub(crate) fn note_clock(&mut self, asked_ns: u64, its_now_ns: u64) {
        let now_ns = monotonic_ns();
        if let Some(line) = &mut self.line {
            line.offset_ns = its_now_ns as i64 - now_ns as i64;
            line.delay_ns = line.delay_ns.max(now_ns.saturating_sub(asked_ns));
        }
    }

    /// The agent's clock minus ours, nanoseconds; too small by at most the delay of the connection.
    pub(crate) fn offset_ns(&self) -> i64 {
        self.line.as_ref().map_or(0, |line| line.offset_ns)
    }

    /// The longest response time so far, nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.line.as_ref().map_or(0, |line| line.delay_ns)
    }

    /// Addresses at which other hosts may reach this host, best first: the one given on the command line, or else those
    /// reported by the agent.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        match (self.plan.words.address, &self.about) {
            (Some(address), _) => vec![address],
            (None, Some(about)) => about.addresses.clone(),
            (None, None) => Vec::new(),
        }
    }
}
