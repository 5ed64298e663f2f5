//! The connection to an agent: the started command, its three streams, and how it exits.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::{poll, proc, program};

use super::frames::{self, Frames};
use super::{FromAgent, HostError, ToAgent};
use crate::control::ControlError;
use crate::exit_report::exit_report;

/// Time limit for an agent to exit once its input is closed.
const END_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for an agent's standard error to be closed after the agent has exited. If the agent was killed, its
/// reaper holds the standard error open while it cleans up.
const REAPER_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the command to exit once its output is closed, and for the rest of its error output.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How many bytes of a command's standard error are kept.
const KEPT_ERRORS: usize = 4096;

/// A running agent.
#[derive(Debug)]
pub(super) struct Line {
    child: Child,
    to: Option<File>,
    pub(super) frames: Frames,
    errors: Arc<Mutex<Vec<u8>>>,
    /// Messages received and not yet consumed.
    pub(super) inbox: VecDeque<FromAgent>,
    /// The agent's clock minus ours, nanoseconds, accurate to the delay of the connection.
    pub(super) offset_ns: i64,
    /// The longest response time so far, nanoseconds.
    pub(super) delay_ns: u64,
    pub(super) greeted: bool,
}

impl Line {
    /// Runs the command; returns the reason if that is impossible.
    pub(super) fn start(words: &[String]) -> Result<Line, String> {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("PATH", program::search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Without a terminal, nothing can prompt for a password, and Ctrl-C reaches the controller only.
        proc::own_session(&mut command);
        proc::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let (Some(to), Some(from), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("it has no standard streams".to_owned());
        };
        Ok(Line {
            child,
            to: Some(File::from(OwnedFd::from(to))),
            frames: Frames::new(from.into()),
            errors: keep_errors(errors),
            inbox: VecDeque::new(),
            offset_ns: 0,
            delay_ns: 0,
            greeted: false,
        })
    }

    /// Sends raw bytes.
    pub(super) fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.to.as_ref().map_or(Ok(()), |mut to| to.write_all(bytes))
    }

    /// Sends a message.
    pub(super) fn say(&self, what: &ToAgent) -> Result<(), ControlError> {
        self.to.as_ref().map_or(Err(ControlError::Closed), |to| frames::send(to, what))
    }

    /// Closes the agent's input.
    pub(super) fn hang_up(&mut self) {
        self.to = None;
    }

    /// Waits until there is something to read; `false` on timeout.
    pub(super) fn wait(
        &self,
        until: Instant,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<bool, HostError> {
        let fds: Vec<_> = [Some(self.frames.fd()), interrupt].into_iter().flatten().collect();
        match poll::any_readable(&fds, Some(until)) {
            Ok(ready) if ready.get(1) == Some(&true) => Err(HostError::Interrupted),
            Ok(ready) => Ok(ready[0]),
            // The read that follows reports the error.
            Err(_) => Ok(true),
        }
    }

    /// Describes how the command exited; to be called when its output is closed. A command that does not exit then is
    /// killed.
    pub(super) fn end(&mut self) -> String {
        self.to = None;
        let until = Instant::now() + LAST_WORDS;
        let status = self.wait_end(until).unwrap_or_else(|| self.kill());
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        exit_report(status, &String::from_utf8_lossy(&errors))
    }

    /// Kills the command and the processes it started, which form a process group.
    fn kill(&mut self) -> std::io::Result<std::process::ExitStatus> {
        proc::kill_group(self.child.id());
        let _ = self.child.kill();
        self.child.wait()
    }

    /// The exit status of the command, if it exits before `until`. Also waits until all its error output has been read.
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
        // When its input ends, the agent ends everything on its host; the command then exits.
        self.to = None;
        if self.wait_end(Instant::now() + END_LIMIT).is_none() {
            let _ = self.kill();
        }
        self.wait_end(Instant::now() + REAPER_LIMIT);
    }
}

/// Starts a thread that reads a command's standard error until it is closed, so that the command never blocks on
/// writing to it. Keeps the last [`KEPT_ERRORS`] bytes.
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
