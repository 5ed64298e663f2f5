//! The roles of one trial on all hosts, with one watchdog. No role outlives its trial.

mod answers;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crossway_sys::clock::monotonic_ns;
use crossway_sys::lease;

use answers::{Failure, NoAnswer};

use super::{CLOSE_LIMIT, LaunchError, RoleProcess, RoleSite};
use crate::agent::{FromAgent, HeldAt, Host, ToAgent, own_clock};
use crate::control::{Answer, ControlError, Order};
use crate::meters::{HostAsk, HostMeter, HostReading};
use crossway_records::record::LOCAL;

/// Time limit for starting or reading a host's meters, the same as for any other step of a trial.
const METERS_LIMIT: Duration = Duration::from_secs(35);

/// A descriptor offered by a role.
#[derive(Debug)]
pub(crate) enum HeldDescriptor {
    /// A descriptor that this process received.
    Local(OwnedFd),
    /// A descriptor that the agent of the host with this index holds.
    Remote(usize, HeldAt),
}

/// Where a role runs.
#[derive(Debug)]
enum RoleHandle {
    /// In a child of this process.
    Local(RoleProcess),
    /// In a child of a host's agent.
    Remote { name: String, host: usize, role: u32 },
}

/// The roles of one trial. Dropping the group kills the roles that are still running and removes what they left behind.
#[derive(Debug)]
pub(crate) struct RoleGroup<'a> {
    handles: Vec<RoleHandle>,
    hosts: Vec<&'a mut Host>,
    run: Option<&'a lease::Run>,
    interrupt: Option<BorrowedFd<'a>>,
    phase: &'static str,
    meter: Option<HostMeter>,
    over: bool,
    /// The directories of roles in containers, by role; empty without containers.
    rooms: Vec<PathBuf>,
}

impl<'a> RoleGroup<'a> {
    /// Starts one process per role. `roles` contains each role's name and whether it listens.
    pub(crate) fn start(
        site: RoleSite<'a>,
        roles: &[(String, bool)],
    ) -> Result<RoleGroup<'a>, LaunchError> {
        let mut group = RoleGroup {
            handles: Vec::new(),
            hosts: Vec::new(),
            run: None,
            interrupt: None,
            phase: "starting",
            meter: None,
            over: false,
            rooms: Vec::new(),
        };
        match site {
            RoleSite::Local { launcher, run, containers } => {
                group.interrupt = launcher.interrupt();
                group.run = Some(run);
                if let Some(containers) = containers {
                    for at in 0..roles.len() {
                        group.rooms.push(containers.room(run, at)?);
                    }
                }
                for (at, (name, listens)) in roles.iter().enumerate() {
                    let mut command = Command::new(&launcher.program);
                    if let Some(containers) = containers {
                        let mut others = group.rooms.clone();
                        others.remove(at);
                        let end = usize::from(*listens);
                        command = containers.command(end, &others, &launcher.program);
                    }
                    let role = RoleProcess::start(command, launcher, name)?;
                    group.handles.push(RoleHandle::Local(role));
                }
            }
            RoleSite::Remote { hosts, interrupt } => {
                group.interrupt = interrupt;
                group.hosts = hosts;
                for (name, listens) in roles {
                    let at = if *listens { group.hosts.len() - 1 } else { 0 };
                    let host = &mut group.hosts[at];
                    let role = host.next_role();
                    let name = format!("{name} on host '{}'", host.name());
                    host.say(&ToAgent::Start { role, name: name.clone() })?;
                    group.handles.push(RoleHandle::Remote { name, host: at, role });
                }
            }
        }
        Ok(group)
    }

    /// The directory in which a role registers its leases; `None` if an agent provides it.
    pub(crate) fn leases(&self, role: usize) -> Option<&Path> {
        self.rooms.get(role).map(PathBuf::as_path).or_else(|| self.run.map(lease::Run::dir))
    }

    /// The name of the host on which a role runs.
    pub(crate) fn host_of(&self, role: usize) -> &str {
        match &self.handles[role] {
            RoleHandle::Local(_) => LOCAL,
            RoleHandle::Remote { host, .. } => self.hosts[*host].name(),
        }
    }

    /// Whether time stamps of all roles can be compared.
    pub(crate) fn one_clock(&self) -> bool {
        let mut clocks = self.hosts.iter().map(|host| host.about().map(|about| &about.clock));
        let first = clocks.next();
        clocks.all(|clock| Some(clock) == first)
    }

    /// For each role, the same instant on that role's own clock: `lead_ns` from now, plus twice the longest delay of
    /// the connections to agents. Roles that share a clock get the same value.
    pub(crate) fn instants_ns(&self, lead_ns: u64) -> Vec<u64> {
        let way_ns = 2 * self.hosts.iter().map(|host| host.delay_ns()).max().unwrap_or(0);
        let at_ns = monotonic_ns() + lead_ns + way_ns;
        let clock = |host: &Host| host.about().map(|about| about.clock.clone());
        let offset_ns = |host: &Host| {
            let own = clock(host);
            if own.as_deref() == Some(own_clock()) {
                return 0;
            }
            // All hosts with the same clock use the offset of the first.
            self.hosts.iter().find(|h| clock(h) == own).map_or(0, |h| h.offset_ns())
        };
        self.handles
            .iter()
            .map(|handle| match handle {
                RoleHandle::Local(_) => at_ns,
                RoleHandle::Remote { host, .. } => {
                    at_ns.saturating_add_signed(offset_ns(self.hosts[*host]))
                }
            })
            .collect()
    }

    /// Sets the phase of the trial, such as "closing", for error messages.
    pub(crate) fn phase(&mut self, phase: &'static str) {
        self.phase = phase;
    }

    /// Sends an order to one role, with descriptors. Only descriptors held on the role's host can be sent.
    pub(crate) fn order(
        &mut self,
        role: usize,
        order: &Order,
        fds: Vec<HeldDescriptor>,
    ) -> Result<(), LaunchError> {
        let refused =
            |name: &str| LaunchError::Role(format!("{name}: {}", ControlError::NoDescriptors));
        let told = match &mut self.handles[role] {
            RoleHandle::Local(process) => {
                let mut own = Vec::new();
                for fd in fds {
                    let HeldDescriptor::Local(fd) = fd else { return Err(refused(&process.name)) };
                    own.push(fd);
                }
                let borrowed: Vec<_> = own.iter().map(AsFd::as_fd).collect();
                process.wire.say(order, &borrowed).map_err(|e| (process.name.clone(), e))
            }
            RoleHandle::Remote { name, host, role } => {
                let mut held = Vec::new();
                for fd in fds {
                    match fd {
                        HeldDescriptor::Remote(at, fd) if at == *host => held.push(fd),
                        _ => return Err(refused(name)),
                    }
                }
                let order = Box::new(order.clone());
                self.hosts[*host].say(&ToAgent::Tell { role: *role, order, fds: held })?;
                Ok(())
            }
        };
        match told {
            Ok(()) => Ok(()),
            Err((_, ControlError::Closed)) => Err(self.failure(Vec::new())),
            Err((name, e)) => Err(LaunchError::Role(format!("{name}: {e}"))),
        }
    }

    /// Waits for one answer from each of `roles`, and returns the answers in the order of `roles`. Fails if a role
    /// fails or does not answer within `limit`.
    pub(crate) fn answers(
        &mut self,
        roles: &[usize],
        limit: Duration,
    ) -> Result<Vec<(Answer, Vec<HeldDescriptor>)>, LaunchError> {
        self.answers_then(roles, limit, |_, _| Ok(()))
    }

    /// Like [`RoleGroup::answers`], and calls `then` with each role that has answered.
    pub(crate) fn answers_then(
        &mut self,
        roles: &[usize],
        limit: Duration,
        mut then: impl FnMut(&mut Self, usize) -> Result<(), LaunchError>,
    ) -> Result<Vec<(Answer, Vec<HeldDescriptor>)>, LaunchError> {
        let until = Instant::now() + limit;
        let mut heard: Vec<Option<(Answer, Vec<HeldDescriptor>)>> =
            roles.iter().map(|_| None).collect();
        while heard.iter().any(Option::is_none) {
            let waiting: Vec<usize> = (0..roles.len()).filter(|&i| heard[i].is_none()).collect();
            let ready = self.wait(&waiting.iter().map(|&i| roles[i]).collect::<Vec<_>>(), until)?;
            if ready.is_empty() {
                let names: Vec<_> = waiting.iter().map(|&i| self.name(roles[i])).collect();
                return Err(LaunchError::Role(format!(
                    "{} did not answer within {:.1} s while {}",
                    names.join(" and "),
                    limit.as_secs_f64(),
                    self.phase
                )));
            }
            let mut failed = Vec::new();
            let mut answered = Vec::new();
            for (role, said) in ready {
                match Failure::of(role, said) {
                    Ok(answer) => {
                        let at = roles.iter().position(|&r| r == role).unwrap_or(0);
                        heard[at] = Some(answer);
                        answered.push(role);
                    }
                    Err(failure) => failed.push(failure),
                }
            }
            if !failed.is_empty() {
                return Err(self.failure(failed));
            }
            for role in answered {
                then(self, role)?;
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    fn name(&self, role: usize) -> &str {
        match &self.handles[role] {
            RoleHandle::Local(process) => &process.name,
            RoleHandle::Remote { name, .. } => name,
        }
    }

    /// The names and process ids of the roles that run on this machine.
    pub(crate) fn processes(&self) -> Vec<(String, u32)> {
        let local = |handle: &RoleHandle| match handle {
            RoleHandle::Local(process) => Some((process.name.clone(), process.pid())),
            RoleHandle::Remote { .. } => None,
        };
        self.handles.iter().filter_map(local).collect()
    }

    /// Starts the meters of every host.
    pub(crate) fn start_meters(&mut self, ask: &HostAsk) -> Result<(), LaunchError> {
        if self.hosts.is_empty() {
            self.meter = Some(HostMeter::start(ask));
            return Ok(());
        }
        let asked_ns = monotonic_ns();
        for host in &mut self.hosts {
            let own_cpus_only = host.shares_kernel();
            host.say(&ToAgent::StartMeters { ask: HostAsk { own_cpus_only, ..ask.clone() } })?;
        }
        for host in &mut self.hosts {
            let now_ns = host.expect(METERS_LIMIT, self.interrupt, |message| match message {
                FromAgent::Metering { now_ns } => Some(now_ns),
                _ => None,
            })?;
            host.note_clock(asked_ns, now_ns);
        }
        Ok(())
    }

    /// Reads the meters of every host; each reading has the host's name.
    pub(crate) fn read_meters(&mut self) -> Result<Vec<HostReading>, LaunchError> {
        for host in &mut self.hosts {
            host.say(&ToAgent::ReadMeters)?;
        }
        let mut readings: Vec<HostReading> =
            self.meter.take().map(|meter| meter.stop().named(LOCAL)).into_iter().collect();
        for host in &mut self.hosts {
            let reading = host.expect(METERS_LIMIT, self.interrupt, |message| match message {
                FromAgent::Read { reading } => Some(*reading),
                _ => None,
            })?;
            readings.push(reading.named(host.name()));
        }
        Ok(readings)
    }

    /// Waits until all processes have exited. To be called after they have been ordered to close.
    pub(crate) fn finish(mut self) -> Result<(), LaunchError> {
        let until = Instant::now() + CLOSE_LIMIT;
        let mut left: Vec<usize> = (0..self.handles.len()).collect();
        while !left.is_empty() {
            // When a role's process ends, its connection ends too.
            let ready = self.wait(&left, until)?;
            if ready.is_empty() {
                let name = self.name(left[0]);
                return Err(LaunchError::Role(format!(
                    "{name} did not exit within {CLOSE_LIMIT:?}"
                )));
            }
            for (role, said) in ready {
                if matches!(said, Err(NoAnswer::Ended(_))) {
                    left.retain(|&other| other != role);
                }
            }
        }
        for handle in &mut self.handles {
            if let RoleHandle::Local(process) = handle {
                process.wait();
            }
        }
        self.over = true;
        Ok(())
    }

    /// Makes every agent end the roles of an aborted trial.
    fn clear(&mut self) {
        for host in &mut self.hosts {
            // The roles of a lost agent have ended with it.
            if host.fd().is_none() || host.say(&ToAgent::Clear).is_err() {
                continue;
            }
            let _ = host.expect(CLOSE_LIMIT, None, |message| match message {
                FromAgent::Cleared => Some(()),
                _ => None,
            });
        }
    }
}

impl Drop for RoleGroup<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.clear();
        }
        let mut processes: Vec<&mut RoleProcess> = Vec::new();
        for handle in &mut self.handles {
            if let RoleHandle::Local(process) = handle {
                process.kill();
                processes.push(process);
            }
        }
        for process in processes {
            process.wait();
            if let Some(run) = self.run {
                run.remove_leases_of(process.pid());
            }
        }
        if let Some(run) = self.run {
            self.rooms.iter().for_each(|room| run.clear_room(room));
        }
    }
}
