//! Starts roles as processes, talks to all of them with one watchdog, and lets none of them outlive its trial.

use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::{OsError, lease, poll, proc};

use crate::control::{Answer, ControlError, Order, Wire};

/// After one role failed, how long the others may take to say why they did.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// How long roles may take to close and go.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// How much of a role's standard error is quoted.
const QUOTED: usize = 400;

/// Why a trial did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The person or the system asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The mechanism cannot do what the case asks.
    #[error("{0}")]
    Unsupported(String),
    /// A role failed, died or hung.
    #[error("{0}")]
    Role(String),
    /// The controller itself could not go on.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// How roles are started.
#[derive(Debug)]
pub struct Launcher {
    /// The program that, given [`Launcher::args`], becomes a role ([`crate::role::main`]).
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Polls readable when the run should stop.
    pub interrupt: Option<OwnedFd>,
}

/// A running role.
#[derive(Debug)]
struct Player {
    name: String,
    child: Child,
    wire: Wire,
    stderr: PipeReader,
    _lease: lease::Lease,
}

/// The roles of one trial. Dropping it kills what still runs and removes what they left.
#[derive(Debug)]
pub(crate) struct Troupe<'a> {
    players: Vec<Player>,
    run: &'a lease::Run,
    interrupt: Option<BorrowedFd<'a>>,
    phase: &'static str,
}

impl<'a> Troupe<'a> {
    /// Starts one process per name.
    pub(crate) fn start(
        launcher: &'a Launcher,
        run: &'a lease::Run,
        names: &[String],
    ) -> Result<Troupe<'a>, LaunchError> {
        let interrupt = launcher.interrupt.as_ref().map(AsFd::as_fd);
        let mut troupe = Troupe { players: Vec::new(), run, interrupt, phase: "starting" };
        for name in names {
            troupe.players.push(launch(launcher, name)?);
        }
        Ok(troupe)
    }

    /// Names the phase for error messages.
    pub(crate) fn phase(&mut self, phase: &'static str) {
        self.phase = phase;
    }

    /// Gives one role an order.
    pub(crate) fn order(
        &mut self,
        role: usize,
        order: &Order,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), LaunchError> {
        match self.players[role].wire.say(order, fds) {
            Ok(()) => Ok(()),
            Err(ControlError::Closed) => Err(self.failure(role, None)),
            Err(e) => Err(LaunchError::Role(format!("{}: {e}", self.players[role].name))),
        }
    }

    /// Waits for one answer of each of these roles, in any order of arrival; `limit` is the watchdog.
    pub(crate) fn answers(
        &mut self,
        roles: &[usize],
        limit: Duration,
    ) -> Result<Vec<(Answer, Vec<OwnedFd>)>, LaunchError> {
        let until = Instant::now() + limit;
        let mut heard: Vec<Option<(Answer, Vec<OwnedFd>)>> = roles.iter().map(|_| None).collect();
        while heard.iter().any(Option::is_none) {
            let waiting: Vec<usize> = (0..roles.len()).filter(|&i| heard[i].is_none()).collect();
            let ready = self.wait(&waiting.iter().map(|&i| roles[i]).collect::<Vec<_>>(), until)?;
            if ready.is_empty() {
                let names: Vec<_> =
                    waiting.iter().map(|&i| self.players[roles[i]].name.as_str()).collect();
                return Err(LaunchError::Role(format!(
                    "{} did not answer within {limit:?} while {}",
                    names.join(" and "),
                    self.phase
                )));
            }
            for role in ready {
                let said = self.players[role].wire.hear::<Answer>();
                match said {
                    Ok((Answer::Failed { reason, unsupported: true }, _)) => {
                        return Err(LaunchError::Unsupported(reason));
                    }
                    Ok((Answer::Failed { reason, .. }, _)) => {
                        return Err(self.failure(role, Some(reason)));
                    }
                    Ok(answer) => {
                        let at = roles.iter().position(|&r| r == role).unwrap_or(0);
                        heard[at] = Some(answer);
                    }
                    Err(ControlError::Closed) => return Err(self.failure(role, None)),
                    Err(e) => return Err(LaunchError::Role(e.to_string())),
                }
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    /// The roles, of those given, that have something to say; none when the time is up.
    fn wait(&self, roles: &[usize], until: Instant) -> Result<Vec<usize>, LaunchError> {
        let mut fds: Vec<_> = roles.iter().map(|&r| self.players[r].wire.fd()).collect();
        fds.extend(self.interrupt);
        let ready =
            poll::any_readable(&fds, Some(until)).map_err(|e| OsError::new("poll", "roles", e))?;
        if ready.len() > roles.len() && ready[roles.len()] {
            return Err(LaunchError::Interrupted);
        }
        Ok(roles.iter().zip(ready).filter(|(_, ready)| *ready).map(|(&role, _)| role).collect())
    }

    /// Finds out what really happened: the first to stumble is often not the first to fall. A role that was killed
    /// explains a peer that saw its end close.
    fn failure(&mut self, first: usize, reason: Option<String>) -> LaunchError {
        let mut told = vec![(first, reason)];
        let until = Instant::now() + LAST_WORDS;
        let mut others: Vec<usize> =
            (0..self.players.len()).filter(|&role| role != first).collect();
        while !others.is_empty() {
            let ready = match self.wait(&others, until) {
                Ok(ready) if !ready.is_empty() => ready,
                Ok(_) => break,
                Err(e) => return e,
            };
            others.retain(|role| !ready.contains(role));
            for role in ready {
                match self.players[role].wire.hear::<Answer>() {
                    Ok((Answer::Failed { reason, .. }, _)) => told.push((role, Some(reason))),
                    Err(ControlError::Closed) => told.push((role, None)),
                    _ => {}
                }
            }
        }
        let worst = told.iter().min_by_key(|(_, reason)| match reason {
            None => 0,
            Some(reason) if !reason.contains("peer closed") => 1,
            Some(_) => 2,
        });
        let (role, reason) = worst.map_or((first, &None), |(role, reason)| (*role, reason));
        let name = self.players[role].name.clone();
        LaunchError::Role(match reason {
            Some(reason) => format!("{name} failed while {}: {reason}", self.phase),
            None => format!("{name} {} while {}", self.players[role].obituary(), self.phase),
        })
    }

    /// Waits until all processes are gone; call it after they were told to close.
    pub(crate) fn finish(mut self) -> Result<(), LaunchError> {
        let until = Instant::now() + CLOSE_LIMIT;
        for player in &mut self.players {
            let wire = [player.wire.fd()];
            // End of file on the wire comes with the process's end.
            let ended = poll::any_readable(&wire, Some(until)).is_ok_and(|ready| ready[0]);
            if !ended {
                return Err(LaunchError::Role(format!("{} did not end", player.name)));
            }
            let _ = player.child.wait();
        }
        Ok(())
    }
}

impl Drop for Troupe<'_> {
    fn drop(&mut self) {
        for player in &mut self.players {
            // Both fail only when the process was waited for already.
            let _ = player.child.kill();
        }
        for player in &mut self.players {
            let _ = player.child.wait();
            self.run.remove_leases_of(player.child.id());
        }
    }
}

impl Player {
    /// How it ended, with what it wrote to standard error.
    fn obituary(&mut self) -> String {
        let how = match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("was killed by signal {signal}"),
                (None, Some(code)) => format!("ended with code {code}"),
                (None, None) => "ended".to_owned(),
            },
            Err(e) => format!("is gone ({e})"),
        };
        let mut bytes = Vec::new();
        let _ = self.stderr.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if text.is_empty() {
            return how;
        }
        let from = text.char_indices().rev().take(QUOTED).last().map_or(0, |(at, _)| at);
        format!("{how} (it wrote: {})", text[from..].replace('\n', " "))
    }
}

fn launch(launcher: &Launcher, name: &str) -> Result<Player, LaunchError> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|e| OsError::new("socketpair", "control channel", e))?;
    let (stderr, stderr_end) =
        std::io::pipe().map_err(|e| OsError::new("pipe", "stderr of a role", e))?;
    let mut command = Command::new(&launcher.program);
    command
        .args(&launcher.args)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(stderr_end)
        // Ctrl-C reaches the controller only, which then ends the roles.
        .process_group(0);
    proc::die_with_parent(&mut command);
    let child =
        command.spawn().map_err(|e| OsError::new("start role", launcher.program.display(), e))?;
    // The command holds the role's ends, whose closing must be noticed.
    drop(command);
    let pid = child.id();
    let started_ticks = proc::started_ticks(pid).unwrap_or(0);
    let lease = lease::hold(lease::Resource::Process { pid, started_ticks })?;
    let wire = Wire::socket(ours.into()).map_err(|e| LaunchError::Role(e.to_string()))?;
    Ok(Player { name: name.to_owned(), child, wire, stderr, _lease: lease })
}
