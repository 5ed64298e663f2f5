//! Receives the answers of roles on any host, and determines the cause when one of them fails.

use std::time::{Duration, Instant};

use crossway_sys::{OsError, poll};

use super::{HeldDescriptor, RoleGroup, RoleHandle};
use crate::agent::{FromAgent, HeldAt, Said};
use crate::control::{Answer, ControlError};
use crate::launcher::LaunchError;

/// How long the other roles may take to report their reasons after one role has failed.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The same time limit if every failure known so far may be a mere consequence (the role's peer closed), so that the
/// cause has not been reported yet.
const REASON_TO_COME: Duration = Duration::from_secs(5);

/// An answer with its descriptors, or the reason why there is none.
pub(super) type Heard = Result<(Answer, Vec<HeldDescriptor>), NoAnswer>;

/// The reason why a role does not answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The role has exited, with this exit status if that is already known.
    Ended(Option<String>),
    /// The role's message cannot be parsed.
    Nonsense(String),
}

/// The failure of a role.
#[derive(Debug)]
pub(super) struct Failure {
    role: usize,
    /// The reason that the role reported; `None` if it exited without an answer.
    reason: Option<String>,
    /// How the role exited; `None` if that is not yet known.
    how: Option<String>,
    unsupported: bool,
    own_fault: bool,
}

impl Failure {
    /// Returns the answer of a role, or its failure.
    pub(super) fn of(role: usize, said: Heard) -> Result<(Answer, Vec<HeldDescriptor>), Failure> {
        let silent =
            |how| Failure { role, reason: None, how, unsupported: false, own_fault: false };
        match said {
            Ok((Answer::Failed { reason, unsupported, own_fault }, _)) => {
                Err(Failure { reason: Some(reason), unsupported, own_fault, ..silent(None) })
            }
            Ok(answer) => Ok(answer),
            Err(NoAnswer::Ended(how)) => Err(silent(how)),
            Err(NoAnswer::Nonsense(what)) => {
                Err(Failure { reason: Some(what), own_fault: true, ..silent(None) })
            }
        }
    }

    /// How well the failure explains the failures of other roles: 0 explains best. A role that was killed, or whose own
    /// program violated the protocol, explains the failure of a role whose peer closed. While the roles are closing, an
    /// exit is normal and explains nothing.
    fn distance(&self, closing: bool) -> u8 {
        match &self.reason {
            None if closing => 4,
            None => 0,
            Some(_) if self.own_fault => 1,
            Some(reason) if !reason.contains("peer closed") => 2,
            Some(_) => 3,
        }
    }
}

/// The sources that have become readable.
struct Waiting {
    here: Vec<usize>,
    there: Vec<usize>,
    interrupted: bool,
}

impl RoleGroup<'_> {
    /// Waits for messages from these roles; returns an empty list on timeout.
    pub(super) fn wait(
        &mut self,
        roles: &[usize],
        until: Instant,
    ) -> Result<Vec<(usize, Heard)>, LaunchError> {
        loop {
            let mut said = Vec::new();
            for &role in roles {
                said.extend(self.heard_from(role).map(|what| (role, what)));
            }
            if !said.is_empty() {
                return Ok(said);
            }
            let Waiting { here, there, interrupted } = self.sleep(roles, until)?;
            if interrupted {
                return Err(LaunchError::Interrupted);
            }
            if here.is_empty() && there.is_empty() {
                return Ok(Vec::new());
            }
            for host in there {
                self.hosts[host].read_some()?;
            }
            for role in here {
                let RoleHandle::Local(process) = &mut self.handles[role] else { continue };
                let what = match process.wire.hear::<Answer>() {
                    Ok((answer, fds)) => {
                        Ok((answer, fds.into_iter().map(HeldDescriptor::Local).collect()))
                    }
                    Err(ControlError::Closed) => Err(NoAnswer::Ended(None)),
                    Err(e) => Err(NoAnswer::Nonsense(e.to_string())),
                };
                said.push((role, what));
            }
            if !said.is_empty() {
                return Ok(said);
            }
        }
    }

    /// A message of this role that its agent has already passed on; `None` if there is none.
    fn heard_from(&mut self, role: usize) -> Option<Heard> {
        let RoleHandle::Remote { host, role, .. } = self.handles[role] else { return None };
        let said = self.hosts[host].take(|message| match message {
            FromAgent::Role { role: whose, said } if whose == role => Ok(said),
            other => Err(other),
        })?;
        Some(match said {
            Said::Answer { answer, fds } => {
                let held = |at| HeldDescriptor::Remote(host, HeldAt { role, at });
                Ok((*answer, (0..fds).map(held).collect()))
            }
            Said::Ended { how } => Err(NoAnswer::Ended(Some(how))),
        })
    }

    fn sleep(&self, roles: &[usize], until: Instant) -> Result<Waiting, LaunchError> {
        let mut fds = Vec::new();
        let mut processes = Vec::new();
        let mut hosts: Vec<usize> = Vec::new();
        for &role in roles {
            match &self.handles[role] {
                RoleHandle::Local(process) => {
                    fds.push(process.wire.fd());
                    processes.push(role);
                }
                RoleHandle::Remote { host, .. } if !hosts.contains(host) => hosts.push(*host),
                RoleHandle::Remote { .. } => {}
            }
        }
        for &host in &hosts {
            // A host without a connection counts as readable, because reading returns the error.
            let Some(fd) = self.hosts[host].fd() else {
                return Ok(Waiting { here: Vec::new(), there: vec![host], interrupted: false });
            };
            fds.push(fd);
        }
        fds.extend(self.interrupt);
        let ready =
            poll::any_readable(&fds, Some(until)).map_err(|e| OsError::new("poll", "roles", e))?;
        let mut ready = ready.into_iter();
        let mut those = |of: Vec<usize>| -> Vec<usize> {
            let flags: Vec<bool> = ready.by_ref().take(of.len()).collect();
            of.into_iter().zip(flags).filter(|(_, ready)| *ready).map(|(one, _)| one).collect()
        };
        let (here, there) = (those(processes), those(hosts));
        Ok(Waiting { here, there, interrupted: ready.next() == Some(true) })
    }

    /// Determines the actual cause of a failure, which is often not the one that was reported first. `told` are the
    /// failures known so far; for some of them, it may only be known that the role has exited.
    pub(super) fn failure(&mut self, mut told: Vec<Failure>) -> LaunchError {
        // A role exits when it has closed.
        let closing = self.phase == "closing";
        let delay =
            Duration::from_nanos(self.hosts.iter().map(|h| h.delay_ns()).max().unwrap_or(0));
        let begun = Instant::now();
        let mut others: Vec<usize> = (0..self.handles.len()).collect();
        others.retain(|&role| told.iter().all(|failure| failure.role != role));
        while !others.is_empty() {
            let explained = closing || told.iter().any(|failure| failure.distance(closing) < 3);
            let patience = if explained { LAST_WORDS } else { REASON_TO_COME };
            let ready = match self.wait(&others, begun + patience + delay) {
                Ok(ready) if !ready.is_empty() => ready,
                Ok(_) => break,
                Err(e) => return e,
            };
            for (role, said) in ready {
                match Failure::of(role, said) {
                    Err(failure) => told.push(failure),
                    // It may have failed after it answered.
                    Ok(_) if told.is_empty() => continue,
                    Ok(_) => {}
                }
                others.retain(|&other| other != role);
            }
        }
        if let Some(failure) = told.iter_mut().find(|failure| failure.unsupported) {
            return LaunchError::Unsupported(failure.reason.take().unwrap_or_default());
        }
        let Some(worst) = told.into_iter().min_by_key(|failure| failure.distance(closing)) else {
            return LaunchError::Role(format!("a role closed its connection while {}", self.phase));
        };
        let name = self.name(worst.role).to_owned();
        LaunchError::Role(match worst.reason {
            Some(reason) => format!("{name} failed while {}: {reason}", self.phase),
            None => {
                let how = worst.how.unwrap_or_else(|| match &mut self.handles[worst.role] {
                    RoleHandle::Local(process) => process.exit_report(),
                    RoleHandle::Remote { .. } => "ended".to_owned(),
                });
                format!("{name} {how} while {}", self.phase)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::launcher::{Launcher, RoleProcess};

    /// A role that immediately reports `says` and exits; with `None`, it exits without an answer.
    fn role(name: &str, says: Option<&Answer>) -> RoleHandle {
        let frame = says.map_or_else(String::new, |answer| {
            let body = serde_json::to_string(answer).unwrap();
            let length: String =
                (body.len() as u32).to_be_bytes().iter().map(|b| format!("\\{b:03o}")).collect();
            format!("printf '{length}{body}' >&0; ")
        });
        let launcher = Launcher {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), frame + "exit 1"],
            interrupt: None,
        };
        let mut process = RoleProcess::start(Command::new("/bin/sh"), &launcher, name).unwrap();
        // Everything is written, and the connection closed, before the controller reads.
        assert_eq!(process.exit_report(), "ended with code 1");
        RoleHandle::Local(process)
    }

    fn failed(reason: &str, own_fault: bool) -> Answer {
        Answer::Failed { reason: reason.to_owned(), unsupported: false, own_fault }
    }

    fn group(says: [Option<&Answer>; 2]) -> RoleGroup<'static> {
        let [client, server] = says;
        RoleGroup {
            handles: vec![role("client", client), role("server", server)],
            hosts: Vec::new(),
            rooms: Vec::new(),
            run: None,
            interrupt: None,
            phase: "measuring",
            meter: None,
            over: false,
        }
    }

    fn reason(says: [Option<&Answer>; 2]) -> String {
        group(says).answers(&[0, 1], REASON_TO_COME).unwrap_err().to_string()
    }

    #[test]
    fn the_cause_is_reported_and_not_its_consequences() {
        let lied = failed("its figures are refused", true);
        let (ended, closed) =
            (failed("its program ended", false), failed("receiving: peer closed", false));
        let cause = "client failed while measuring: its figures are refused";
        // Both reported before the controller read: the second report is not lost.
        assert_eq!(reason([Some(&lied), Some(&lied)]), cause);
        for follows in [&ended, &closed] {
            assert_eq!(reason([Some(&lied), Some(follows)]), cause);
            let other_way = cause.replace("client", "server");
            assert_eq!(reason([Some(follows), Some(&lied)]), other_way);
        }
        assert_eq!(
            reason([Some(&closed), Some(&ended)]),
            "server failed while measuring: its program ended"
        );
        assert_eq!(reason([Some(&closed), None]), "server ended with code 1 while measuring");
        let cannot =
            Answer::Failed { reason: "no such option".into(), unsupported: true, own_fault: false };
        assert_eq!(reason([Some(&ended), Some(&cannot)]), "no such option");
    }

    /// A role that failed between two orders has closed its connection when the next order is sent, but the reason that
    /// it sent before can still be read.
    #[test]
    fn a_role_that_takes_no_order_is_heard_first() {
        let lied = failed("its figures are refused", true);
        let mut group = group([Some(&lied), Some(&lied)]);
        let error = group.order(0, &crate::control::Order::Accept, Vec::new()).unwrap_err();
        let error = error.to_string();
        assert!(error.ends_with("failed while measuring: its figures are refused"), "{error}");
    }
}
