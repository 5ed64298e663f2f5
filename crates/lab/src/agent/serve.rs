//! The agent: the remote end of the connection to a host. It starts roles as child processes, forwards their messages
//! and reads the host's meters. When its standard input is closed, it ends everything that it started, and exits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode};

use crossway_sys::clock::{Ticker, monotonic_ns};
use crossway_sys::topology::Topology;
use crossway_sys::{OsError, addresses, lease, poll};

use super::frames::{self, Frames};
use super::greeting::{self, Version};
use super::reach::{self, CallListener};
use super::{About, FromAgent, HeldAt, Said, ToAgent, clock};
use crate::catalogue;
use crate::control::{Answer, ControlError, Order};
use crate::env::Environment;
use crate::launcher::{LaunchError, Launcher, RoleProcess};
use crate::meters::HostMeter;
use crate::registers::RegistersLost;
use crossway_loops::calibrate;

/// The reason why an agent exits with an error.
#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error(
        "crossway agent is not for interactive use; it is started by: crossway measure --hosts"
    )]
    Terminal,
    #[error(
        "this agent is crossway {own} and its controller is {other}; install the same version on both hosts"
    )]
    OtherVersion { own: Version, other: Version },
    #[error("this agent was not started by crossway: it received '{0}'")]
    NoController(String),
    #[error("{0}")]
    Registers(#[from] RegistersLost),
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("{0}")]
    Launch(#[from] LaunchError),
    #[error("{0}")]
    Os(#[from] OsError),
}

/// The entry point of the subcommand.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) | Err(AgentError::Control(ControlError::Closed)) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "crossway agent: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), AgentError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(AgentError::Terminal);
    }
    RegistersLost::check()?;
    let dup = |fd: BorrowedFd<'_>, what| {
        fd.try_clone_to_owned().map_err(|e| OsError::new("dup", what, e))
    };
    let mut frames = Frames::new(dup(stdin.as_fd(), "standard input")?);
    let out = File::from(dup(std::io::stdout().as_fd(), "standard output")?);
    (&out)
        .write_all(greeting::line(greeting::AGENT).as_bytes())
        .map_err(|e| OsError::new("write", "standard output", e))?;
    check_controller(&mut frames)?;
    let program =
        std::env::current_exe().map_err(|e| OsError::new("readlink", "/proc/self/exe", e))?;
    let launcher = Launcher::of(program, None);
    let run = lease::Run::begin(Some(launcher.reaper()))?;
    let mut agent = Agent {
        out,
        launcher,
        run,
        ticker: None,
        processes: BTreeMap::new(),
        held: BTreeMap::new(),
        meter: None,
        listener: None,
    };
    agent.live(&mut frames)
}

/// Reads the controller's first line. Each side rejects any version other than its own, newer or older.
fn check_controller(frames: &mut Frames) -> Result<(), AgentError> {
    let line = loop {
        if let Some(line) = frames.first_line() {
            break line;
        }
        frames.read_some()?;
    };
    let other = greeting::read(greeting::CONTROLLER, &line)
        .ok_or_else(|| AgentError::NoController(line.trim().to_owned()))?;
    let own = Version::own();
    if own == other { Ok(()) } else { Err(AgentError::OtherVersion { own, other }) }
}

struct Agent {
    out: File,
    launcher: Launcher,
    run: lease::Run,
    ticker: Option<Ticker>,
    processes: BTreeMap<u32, RoleProcess>,
    /// Descriptors offered by roles, by role; each is held until an order passes it on to another role of this host.
    held: BTreeMap<u32, Vec<Option<OwnedFd>>>,
    meter: Option<HostMeter>,
    listener: Option<CallListener>,
}

/// Source of a message.
enum Speaker {
    Controller,
    Caller,
    Role(u32),
}

impl Agent {
    fn live(&mut self, frames: &mut Frames) -> Result<(), AgentError> {
        loop {
            while let Some(message) = frames.next::<ToAgent>()? {
                self.obey(message)?;
            }
            for speaker in self.listen(frames)? {
                match speaker {
                    Speaker::Controller => frames.read_some()?,
                    Speaker::Caller => self.listener.iter().for_each(CallListener::answer),
                    Speaker::Role(role) => self.pass_on(role)?,
                }
            }
        }
    }

    /// Waits until there is something to read; returns from which sources.
    fn listen(&self, frames: &Frames) -> Result<Vec<Speaker>, AgentError> {
        let mut fds = vec![frames.fd()];
        let mut speakers = vec![Speaker::Controller];
        for (role, process) in &self.processes {
            fds.push(process.wire.fd());
            speakers.push(Speaker::Role(*role));
        }
        if let Some(listener) = &self.listener {
            fds.push(listener.fd());
            speakers.push(Speaker::Caller);
        }
        let ready = poll::any_readable(&fds, None).map_err(|e| OsError::new("poll", "roles", e))?;
        Ok(speakers.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(s, _)| s).collect())
    }

    fn say(&self, what: &FromAgent) -> Result<(), AgentError> {
        Ok(frames::send(&self.out, what)?)
    }

    fn start_role(&self, name: &str) -> Result<RoleProcess, LaunchError> {
        RoleProcess::start(Command::new(&self.launcher.program), &self.launcher, name)
    }

    fn obey(&mut self, message: ToAgent) -> Result<(), AgentError> {
        match message {
            ToAgent::Introduce { mechanisms } => {
                let about = Box::new(about(&mechanisms)?);
                self.ticker = Some(about.ticker);
                self.say(&FromAgent::About { about })
            }
            ToAgent::Start { role, name } => match self.start_role(&name) {
                Ok(process) => {
                    self.processes.insert(role, process);
                    Ok(())
                }
                Err(error) => self.tell_end(role, format!("could not be started ({error})")),
            },
            ToAgent::Tell { role, order, fds } => self.tell(role, *order, &fds),
            ToAgent::Clear => {
                self.clear();
                self.say(&FromAgent::Cleared)
            }
            ToAgent::StartMeters { ask } => {
                self.meter = Some(HostMeter::start(&ask));
                self.say(&FromAgent::Metering { now_ns: monotonic_ns() })
            }
            ToAgent::ReadMeters => match self.meter.take() {
                Some(meter) => self.say(&FromAgent::Read { reading: Box::new(meter.stop()) }),
                None => Err(ControlError::Nonsense(
                    "it requests readings of meters that are not running".to_owned(),
                )
                .into()),
            },
            ToAgent::Listen => {
                let (port, password) = match CallListener::open().and_then(|d| Ok((d.port()?, d))) {
                    Ok((port, listener)) => {
                        let password = listener.password().to_owned();
                        self.listener = Some(listener);
                        (Ok(port), password)
                    }
                    Err(e) => (Err(e.to_string()), String::new()),
                };
                self.say(&FromAgent::Listening { port, password })
            }
            ToAgent::Reach { addresses, port, password } => {
                let outcome = reach::reach(&addresses, port, &password);
                self.say(&FromAgent::Reached { outcome })
            }
            ToAgent::StopListening => {
                self.listener = None;
                Ok(())
            }
        }
    }

    /// Forwards an order to a role. Adds the values that only this host knows and the descriptors that it holds.
    fn tell(&mut self, role: u32, mut order: Order, fds: &[HeldAt]) -> Result<(), AgentError> {
        if let Order::Begin { task, .. } = &mut order {
            task.leases = Some(self.run.dir().to_owned());
            task.ticker = self.ticker;
        }
        let mut taken = Vec::new();
        for HeldAt { role, at } in fds {
            let held = self.held.get_mut(role).and_then(|fds| fds.get_mut(*at)?.take());
            taken.push(held.ok_or_else(|| {
                ControlError::Nonsense(format!(
                    "it refers to descriptor {at} of role {role}, which this agent does not hold"
                ))
            })?);
        }
        // The exit of the role is reported separately.
        let Some(process) = self.processes.get_mut(&role) else { return Ok(()) };
        let borrowed: Vec<_> = taken.iter().map(AsFd::as_fd).collect();
        match process.wire.say(&order, &borrowed) {
            Ok(()) | Err(ControlError::Closed) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Forwards a role's next answer, or how the role exited, to the controller.
    fn pass_on(&mut self, role: u32) -> Result<(), AgentError> {
        let Some(process) = self.processes.get_mut(&role) else { return Ok(()) };
        match process.wire.hear::<Answer>() {
            Ok((answer, fds)) => {
                let said = Said::Answer { answer: Box::new(answer), fds: fds.len() };
                if !fds.is_empty() {
                    self.held.insert(role, fds.into_iter().map(Some).collect());
                }
                self.say(&FromAgent::Role { role, said })
            }
            Err(ControlError::Closed) => {
                let how = process.exit_report();
                self.forget(role);
                self.tell_end(role, how)
            }
            Err(error) => {
                process.kill();
                process.wait();
                self.forget(role);
                self.tell_end(role, format!("failed ({error})"))
            }
        }
    }

    fn tell_end(&self, role: u32, how: String) -> Result<(), AgentError> {
        self.say(&FromAgent::Role { role, said: Said::Ended { how } })
    }

    fn forget(&mut self, role: u32) {
        if let Some(process) = self.processes.remove(&role) {
            self.run.remove_leases_of(process.pid());
        }
    }

    /// Kills all roles, closes the descriptors that they offered, and stops the meters.
    fn clear(&mut self) {
        self.held.clear();
        self.meter = None;
        self.processes.values_mut().for_each(RoleProcess::kill);
        self.processes.values_mut().for_each(RoleProcess::wait);
        for role in self.processes.keys().copied().collect::<Vec<_>>() {
            self.forget(role);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.clear();
    }
}

fn about(mechanisms: &[String]) -> Result<About, OsError> {
    let instruments = calibrate::calibrate();
    let mechanisms = catalogue::all()
        .filter(|entry| mechanisms.iter().any(|id| id == entry.id()))
        .map(|entry| (entry.id().to_owned(), entry.probe()))
        .collect();
    Ok(About {
        environment: Environment::take()?,
        topology: Topology::read()?,
        mechanisms,
        ticker: instruments.ticker,
        calibration: instruments.calibration,
        addresses: addresses::own_addresses()?,
        clock: clock::own().to_owned(),
    })
}
