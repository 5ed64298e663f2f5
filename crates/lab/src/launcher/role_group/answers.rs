//! What roles say, wherever they are, and what really happened when one of them fails.

use std::time::{Duration, Instant};

use crossway_sys::{OsError, poll};

use super::{HeldDescriptor, RoleGroup, RoleHandle};
use crate::agent::{FromAgent, HeldAt, Said};
use crate::control::{Answer, ControlError};
use crate::launcher::LaunchError;

/// After one role failed, how long the others may take to say why they did.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Why a role does not answer.
pub(super) enum NoAnswer {
    /// It has ended; how, where that is known already.
    Ended(Option<String>),
    /// What it said cannot be understood.
    Nonsense(String),
}

/// Who woke the controller.
struct Waiting {
    here: Vec<usize>,
    there: Vec<usize>,
    interrupted: bool,
}

impl RoleGroup<'_> {
    /// What the roles, of those given, have said, if anything; nothing when the time is up.
    #[allow(clippy::type_complexity)]
    pub(super) fn wait(
        &mut self,
        roles: &[usize],
        until: Instant,
    ) -> Result<Vec<(usize, Result<(Answer, Vec<HeldDescriptor>), NoAnswer>)>, LaunchError> {
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

    /// What an agent has already passed on from a role.
    fn heard_from(
        &mut self,
        role: usize,
    ) -> Option<Result<(Answer, Vec<HeldDescriptor>), NoAnswer>> {
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
            // A host without a line is readable in the sense that asking it tells what is wrong.
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

    /// Finds out what really happened: the first to stumble is often not the first to fall. A role that was killed
    /// explains a peer that saw its end close.
    pub(super) fn failure(
        &mut self,
        first: usize,
        reason: Option<String>,
        how: Option<String>,
    ) -> LaunchError {
        let mut told = vec![(first, reason, how)];
        let delay =
            Duration::from_nanos(self.hosts.iter().map(|h| h.delay_ns()).max().unwrap_or(0));
        let until = Instant::now() + LAST_WORDS + delay;
        let mut others: Vec<usize> =
            (0..self.handles.len()).filter(|&role| role != first).collect();
        while !others.is_empty() {
            let ready = match self.wait(&others, until) {
                Ok(ready) if !ready.is_empty() => ready,
                Ok(_) => break,
                Err(e) => return e,
            };
            for (role, said) in ready {
                others.retain(|&other| other != role);
                match said {
                    Ok((Answer::Failed { reason, .. }, _)) => told.push((role, Some(reason), None)),
                    Err(NoAnswer::Ended(how)) => told.push((role, None, how)),
                    _ => {}
                }
            }
        }
        // Whoever closed ends; that explains nothing.
        let closing = self.phase == "closing";
        let worst = told.into_iter().min_by_key(|(_, reason, _)| match reason {
            None if closing => 3,
            None => 0,
            Some(reason) if !reason.contains("peer closed") => 1,
            Some(_) => 2,
        });
        let (role, reason, how) = worst.unwrap_or((first, None, None));
        let name = self.name(role).to_owned();
        LaunchError::Role(match reason {
            Some(reason) => format!("{name} failed while {}: {reason}", self.phase),
            None => {
                let how = how.unwrap_or_else(|| match &mut self.handles[role] {
                    RoleHandle::Local(process) => process.exit_report(),
                    RoleHandle::Remote { .. } => "ended".to_owned(),
                });
                format!("{name} {how} while {}", self.phase)
            }
        })
    }
}
