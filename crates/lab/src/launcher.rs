//! Role processes, started here or by agents on other hosts, behind one interface.

mod role_group;
mod role_process;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use crossway_sys::{OsError, lease};

pub(crate) use role_group::{HeldDescriptor, RoleGroup};
pub(crate) use role_process::RoleProcess;

use crate::agent::{Host, HostError};
use crate::live_testbed::Containers;

/// Time limit for roles to close, and a second one of the same length for exiting.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(20);

/// The reason why a trial was not completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The user or the system requested a stop.
    #[error("interrupted")]
    Interrupted,
    /// The mechanism does not support what the case requests.
    #[error("{0}")]
    Unsupported(String),
    /// A role failed, died or hung.
    #[error("{0}")]
    Role(String),
    /// A host was lost.
    #[error("{0}")]
    Host(HostError),
    /// The controller itself failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

impl From<HostError> for LaunchError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Interrupted => LaunchError::Interrupted,
            error => LaunchError::Host(error),
        }
    }
}

/// How roles are started.
#[derive(Debug)]
pub struct Launcher {
    /// The program that becomes a role when it is started with [`Launcher::args`] ([`crate::role::main`]).
    pub program: PathBuf,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Readable when the run should stop.
    pub interrupt: Option<OwnedFd>,
}

/// The arguments with which `crossway` becomes a reaper.
pub const REAPER: &[&str] = &["reaper"];

impl Launcher {
    /// Starts roles as `program`, which is a `crossway`.
    pub fn of(program: PathBuf, interrupt: Option<OwnedFd>) -> Launcher {
        Launcher { program, args: vec!["role".to_owned()], interrupt }
    }

    /// The reaper of a run, which is the same program.
    pub fn reaper(&self) -> lease::Reaper<'_> {
        lease::Reaper { program: &self.program, args: REAPER }
    }

    /// The descriptor that is readable when the run should stop.
    pub(crate) fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(AsFd::as_fd)
    }
}

/// Where the roles of a trial run.
#[derive(Debug)]
pub(crate) enum RoleSite<'a> {
    /// In children of this process.
    Local {
        /// How the children are started.
        launcher: &'a Launcher,
        /// The run under which the roles' leases are registered.
        run: &'a lease::Run,
        /// The containers, one for each role; `None` without containers.
        containers: Option<&'a Containers>,
    },
    /// In children of agents on other hosts: connecting roles on the first, listening roles on the last.
    Remote {
        /// The hosts, one or two.
        hosts: Vec<&'a mut Host>,
        /// Readable when the run should stop.
        interrupt: Option<BorrowedFd<'a>>,
    },
}

impl<'a> RoleSite<'a> {
    /// The same site without its containers, for other roles on this machine; `None` if the site is not this machine.
    pub(crate) fn here(&self) -> Option<RoleSite<'a>> {
        match self {
            RoleSite::Local { launcher, run, .. } => {
                Some(RoleSite::Local { launcher, run, containers: None })
            }
            RoleSite::Remote { .. } => None,
        }
    }
}
