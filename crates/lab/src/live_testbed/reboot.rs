//! Reboots guests that died during the run, so that later trials can run.

use std::os::fd::BorrowedFd;

use crossway_netlab::Guest;
use crossway_sys::Obstacle;

use super::error::TestbedError;
use super::running::{LiveTestbed, boot_one};
use super::tipc::{self, GUEST_SOCKET, Tipcd};
use crate::agent::HostError;
use crossway_records::testbed::{NAMES, Tipc};

/// Maximum number of reboots of a guest in one run; a guest that dies more often has a systematic problem.
const MOST_BOOTS: u32 = 2;

impl LiveTestbed {
    /// Makes sure that agents are running on these hosts, after rebooting guests that died.
    pub(crate) fn ready(
        &mut self,
        on: &[usize],
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<(), HostError> {
        for &at in on {
            self.revive(at)?;
            self.hosts[at].ready(interrupt)?;
        }
        Ok(())
    }

    fn revive(&mut self, at: usize) -> Result<(), HostError> {
        // If a guest's agent answers, the guest is alive; check the others.
        if self.hosts[at].has_line() {
            return Ok(());
        }
        let Some(guest) = self.guests.get_mut(at) else { return Ok(()) };
        if guest.as_mut().is_some_and(Guest::lives) {
            return Ok(());
        }
        let host = self.hosts[at].name().to_owned();
        let gone = |obstacle| HostError::Gone { host: host.clone(), obstacle };
        if self.again.boots[at] >= MOST_BOOTS {
            let error = gone(Obstacle::new(
                format!("its guest died {} times in this run", MOST_BOOTS + 1),
                "see the reasons of the failed trials; test a guest manually: crossway guest up",
            ));
            self.hosts[at].give_up(&error);
            return Err(error);
        }
        self.again.boots[at] += 1;
        self.boot_again(at).map_err(|error| {
            let Obstacle { why, remedy } = error.obstacle();
            let why = format!("its guest died and could not be booted again: {why}");
            let error = gone(Obstacle { why, remedy });
            self.hosts[at].note_loss(&error);
            error
        })?;
        self.warnings.push(format!(
            "host '{host}' died during this run and was booted again before this trial (reboot {})",
            self.again.boots[at]
        ));
        Ok(())
    }

    /// Reboots a guest. What is left of the old guest is removed first, because the rebooted guest gets the same name
    /// and place on the network.
    fn boot_again(&mut self, at: usize) -> Result<(), TestbedError> {
        let Some(lab) = &self.lab else { return Ok(()) };
        if let Some(tipcd) = self.tipcds.get_mut(at) {
            *tipcd = None;
        }
        self.guests[at] = None;
        let guest = boot_one(lab, &self.again.program, &self.again.kernel, NAMES[at])?;
        if self.again.tipc.contains(&Tipc::Kernel) {
            tipc::join_kernels(&[&guest])?;
        }
        if self.again.tipc.contains(&Tipc::Node) {
            let program = self.again.program.display().to_string();
            let tipcd = Tipcd::start(NAMES[at], &guest.prefix(), &program, GUEST_SOCKET)?;
            tipcd.wait_for_link()?;
            self.tipcds[at] = Some(tipcd);
        }
        self.guests[at] = Some(guest);
        Ok(())
    }
}
