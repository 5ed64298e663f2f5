//! The controller's side of a host: starts its agent, knows what there is, and starts another agent when one is lost.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::clock::monotonic_ns;
use crossway_sys::{poll, proc};

use super::frames::{self, Frames};
use super::greeting::{self, Version};
use super::{About, FromAgent, HostError, ToAgent};
use crate::control::ControlError;
use crate::launcher::obituary;
use crate::testbed::HostWords;

/// How long an agent may take to greet: a connection, or a job's start.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// How long an agent may take to tell of itself (probes and calibration take a second on an idle machine).
const ABOUT_LIMIT: Duration = Duration::from_secs(60);
/// How long an agent may take to end once its line is closed.
const END_LIMIT: Duration = Duration::from_secs(3);
/// How long the command may take to end once its output is closed, and its last words to come.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// So much of a command's standard error is kept.
const KEPT_ERRORS: usize = 4096;
/// So much of nonsense is quoted.
const QUOTED_NONSENSE: usize = 80;

/// How a host is reached and used.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its name, prefix and perhaps its address.
    pub words: HostWords,
    /// The program that is the agent there.
    pub program: String,
    /// It shares its kernel with other hosts of the testbed: only the CPUs that its agent may use are its own.
    pub shares_kernel: bool,
    /// Mechanisms that will be measured.
    pub mechanisms: Vec<String>,
}

/// A host, as the controller holds it.
#[derive(Debug)]
pub struct Host {
    plan: HostPlan,
    line: Option<Line>,
    about: Option<About>,
    /// Agents lost in a row.
    losses: u32,
    /// The last loss.
    last_loss: Option<HostError>,
    next_role: u32,
}

/// A running agent.
#[derive(Debug)]
struct Line {
    child: Child,
    to: Option<File>,
    frames: Frames,
    errors: Arc<Mutex<Vec<u8>>>,
    inbox: VecDeque<FromAgent>,
    /// Its clock minus ours at the same instant, nanoseconds, to within the line's delay.
    offset_ns: i64,
    /// The longest time in which it answered.
    delay_ns: u64,
    greeted: bool,
}

impl Host {
    /// A host that is not yet spoken to.
    pub fn new(plan: HostPlan) -> Host {
        Host { plan, line: None, about: None, losses: 0, last_loss: None, next_role: 0 }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.plan.words.name
    }

    /// Its name and how it is reached.
    pub fn words(&self) -> &HostWords {
        &self.plan.words
    }

    /// Whether it shares its kernel with other hosts of the testbed.
    pub fn shares_kernel(&self) -> bool {
        self.plan.shares_kernel
    }

    /// What there is on it, once an agent has told.
    pub fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }

    /// The words of the command that is the agent.
    fn command(&self) -> Vec<String> {
        let own = [self.plan.program.clone(), "agent".to_owned()];
        self.plan.words.prefix.iter().cloned().chain(own).collect()
    }

    /// What was run, for people: without `agent`, so that a word can be added.
    fn shown(&self) -> String {
        let mut words = self.command();
        words.pop();
        words.join(" ")
    }

    /// Starts an agent if none runs; [`Host::greet`] waits for it. So several can start at the same time.
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
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        proc::own_session(&mut command);
        proc::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|e| fail(e.to_string()))?;
        let (Some(to), Some(from), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(fail("its standard streams are not there".to_owned()));
        };
        let to = File::from(OwnedFd::from(to));
        // An agent that is gone already shows at its output.
        let _ = (&to).write_all(greeting::line(greeting::CONTROLLER).as_bytes());
        let mechanisms = self.plan.mechanisms.clone();
        let _ = frames::send(&to, &ToAgent::Introduce { mechanisms });
        self.line = Some(Line {
            child,
            to: Some(to),
            frames: Frames::new(from.into()),
            errors: keep_errors(errors),
            inbox: VecDeque::new(),
            offset_ns: 0,
            delay_ns: 0,
            greeted: false,
        });
        Ok(())
    }

    /// Waits until the agent has greeted and told of its host.
    pub fn greet(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
        self.begin()?;
        if self.line.as_ref().is_some_and(|line| line.greeted) {
            return Ok(());
        }
        self.hear_greeting(interrupt).inspect_err(|_| self.line = None)?;
        // Messages may have come together with the greeting.
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
        let until = Instant::now() + GREETING_LIMIT;
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
                return Err(HostError::Silent { host, command: shown, limit: GREETING_LIMIT });
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
        if there == here { Ok(()) } else { Err(HostError::OtherVersion { host, there, here }) }
    }

    /// Sees to it that an agent runs: this one, or another one if it was lost.
    pub(crate) fn ready(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
        self.greet(interrupt).inspect_err(|error| {
            // One that is lost while it tells of itself was noted already.
            if !matches!(error, HostError::Lost { .. }) {
                self.note_loss(error);
            }
        })
    }

    /// Closes the line's way there, which ends the agent; dropping the host waits for that.
    pub(crate) fn hang_up(&mut self) {
        if let Some(line) = &mut self.line {
            line.to = None;
        }
    }

    /// The last loss.
    pub(crate) fn last_loss(&self) -> Option<&HostError> {
        self.last_loss.as_ref()
    }

    fn note_loss(&mut self, error: &HostError) {
        if *error != HostError::Interrupted {
            self.losses += 1;
            self.last_loss = Some(error.clone());
        }
    }

    /// So many agents were lost in a row.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// A trial went to its end.
    pub fn note_success(&mut self) {
        self.losses = 0;
    }

    /// A number for a role, never used before.
    pub(crate) fn next_role(&mut self) -> u32 {
        self.next_role += 1;
        self.next_role
    }

    /// Tells the agent something.
    pub(crate) fn say(&mut self, what: &ToAgent) -> Result<(), HostError> {
        let sent = match self.line.as_ref().and_then(|line| line.to.as_ref()) {
            Some(to) => frames::send(to, what),
            None => Err(ControlError::Closed),
        };
        sent.map_err(|error| self.lose(&error))
    }

    /// What polls readable when the agent says something or is gone.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(|line| line.frames.fd())
    }

    /// Takes in what the agent has said; call it when the descriptor is readable.
    pub(crate) fn read_some(&mut self) -> Result<(), HostError> {
        let Some(line) = &mut self.line else { return Err(self.lost_error("is gone".to_owned())) };
        let read = line.frames.read_some();
        read.map_err(|error| self.lose(&error))?;
        self.sort_in()
    }

    /// Takes the whole messages out of what was read.
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

    /// Takes the first message that `wanted` wants out of what was heard.
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

    /// Waits for an answer that is no role's; what else comes meanwhile stays for others.
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
                // An answer out of turn, left over from a trial that failed.
                Some(None) => continue,
                None => {}
            }
            let command = self.shown();
            let host = self.name().to_owned();
            let Some(line) = &mut self.line else {
                return Err(self.lost_error("is gone".to_owned()));
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

    /// Gives the line up, and says why.
    pub(crate) fn lose(&mut self, error: &ControlError) -> HostError {
        let how = match (&mut self.line, error) {
            (Some(line), ControlError::Closed) => line.end(),
            (_, error) => error.to_string(),
        };
        self.line = None;
        let error = self.lost_error(how);
        self.note_loss(&error);
        error
    }

    fn lost_error(&self, how: String) -> HostError {
        HostError::Lost { host: self.name().to_owned(), command: self.shown(), how }
    }

    /// Learns how the agent's clock stands to ours, from an answer that carries its instant.
    pub(crate) fn note_clock(&mut self, asked_ns: u64, its_now_ns: u64) {
        let now_ns = monotonic_ns();
        if let Some(line) = &mut self.line {
            line.offset_ns = its_now_ns as i64 - now_ns as i64;
            line.delay_ns = line.delay_ns.max(now_ns.saturating_sub(asked_ns));
        }
    }

    /// Its clock minus ours, nanoseconds; early by the line's delay at most.
    pub(crate) fn offset_ns(&self) -> i64 {
        self.line.as_ref().map_or(0, |line| line.offset_ns)
    }

    /// The longest time in which it answered so far, nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.line.as_ref().map_or(0, |line| line.delay_ns)
    }

    /// Where others may find it, best first: what the command line says, else what the agent does.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        match (self.plan.words.address, &self.about) {
            (Some(address), _) => vec![address],
            (None, Some(about)) => about.addresses.clone(),
            (None, None) => Vec::new(),
        }
    }
}

/// The address at which `to` can be reached by `from`, really tried.
pub(crate) fn find_address(
    from: &mut Host,
    to: &mut Host,
    interrupt: Option<BorrowedFd<'_>>,
) -> Result<IpAddr, HostError> {
    let (caller, callee) = (from.name().to_owned(), to.name().to_owned());
    let unreachable = |why: String| HostError::Unreachable { from: caller, to: callee, why };
    to.say(&ToAgent::Listen)?;
    let (port, password) = to.expect(ABOUT_LIMIT, interrupt, |message| match message {
        FromAgent::Listening { port, password } => Some((port, password)),
        _ => None,
    })?;
    let outcome = match port {
        Ok(port) => {
            from.say(&ToAgent::Reach { addresses: to.addresses(), port, password })?;
            from.expect(ABOUT_LIMIT, interrupt, |message| match message {
                FromAgent::Reached { outcome } => Some(outcome),
                _ => None,
            })?
        }
        Err(why) => Err(why),
    };
    to.say(&ToAgent::StopListening)?;
    outcome.map_err(unreachable)
}

impl Line {
    /// Waits until there is something to read; `false`: the time is up.
    fn wait(&self, until: Instant, interrupt: Option<BorrowedFd<'_>>) -> Result<bool, HostError> {
        let fds: Vec<_> = [Some(self.frames.fd()), interrupt].into_iter().flatten().collect();
        match poll::any_readable(&fds, Some(until)) {
            Ok(ready) if ready.get(1) == Some(&true) => Err(HostError::Interrupted),
            Ok(ready) => Ok(ready[0]),
            // The read that follows says what is wrong.
            Err(_) => Ok(true),
        }
    }

    /// How the command ended, once its output is closed.
    fn end(&mut self) -> String {
        self.to = None;
        let until = Instant::now() + LAST_WORDS;
        let status = self.wait_end(until).unwrap_or_else(|| self.kill());
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        obituary(status, &String::from_utf8_lossy(&errors))
    }

    /// Kills the command and what it started: it leads a process group of its own.
    fn kill(&mut self) -> std::io::Result<std::process::ExitStatus> {
        proc::kill_group(self.child.id());
        let _ = self.child.kill();
        self.child.wait()
    }

    /// Its status if it ends in time and its last words have been read.
    fn wait_end(&mut self, until: Instant) -> Option<std::io::Result<std::process::ExitStatus>> {
        loop {
            match self.child.try_wait() {
                // The thread that reads its errors holds the other reference until they end.
                Ok(Some(status)) if Arc::strong_count(&self.errors) == 1 => {
                    return Some(Ok(status));
                }
                Ok(Some(status)) if Instant::now() >= until => return Some(Ok(status)),
                Ok(_) if Instant::now() >= until => return None,
                Ok(_) => std::thread::sleep(Duration::from_millis(2)),
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The end of its input tells the agent to end everything there; the command then ends of itself.
        self.to = None;
        if self.wait_end(Instant::now() + END_LIMIT).is_none() {
            let _ = self.kill();
        }
    }
}

/// Reads a command's standard error for as long as it is open and keeps the end of it, so that the command never waits for
/// a reader.
fn keep_errors(mut from: ChildStderr) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let ours = Arc::clone(&kept);
    std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut all = ours.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&bytes[..count]);
            let excess = all.len().saturating_sub(KEPT_ERRORS);
            all.drain(..excess);
        }
    });
    kept
}

/// The tools of a network are where an ordinary user's PATH may not lead.
fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/local/sbin:/usr/sbin:/sbin")
}
