//! Roles as processes: started here or by the agents of hosts, spoken to through one interface.

mod role_group;
mod role_process;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use crossway_sys::{OsError, lease};

pub(crate) use role_group::{HeldDescriptor, RoleGroup};
pub(crate) use role_process::{RoleProcess, exit_report};

use crate::agent::{Host, HostError};
use crate::testbed::Containers;

/// How long roles may take to close and go.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(20);

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
    /// A host was lost.
    #[error("{0}")]
    Host(HostError),
    /// The controller itself could not go on.
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
    /// The program that, given [`Launcher::args`], becomes a role ([`crate::role::main`]).
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Polls readable when the run should stop.
    pub interrupt: Option<OwnedFd>,
}

impl Launcher {
    /// What polls readable when the run should stop.
    pub(crate) fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(AsFd::as_fd)
    }
}

/// Where a trial is played.
#[derive(Debug)]
pub(crate) enum RoleSite<'a> {
    /// By children of this process.
    Local {
        /// How they are started.
        launcher: &'a Launcher,
        /// Where their leases are.
        run: &'a lease::Run,
        /// Each role in one of its own; null: as this process is.
        containers: Option<&'a Containers>,
    },
    /// By the agents of hosts: the connecting role on the first, the listening role on the last.
    Remote {
        /// One or two.
        hosts: Vec<&'a mut Host>,
        /// Polls readable when the run should stop.
        interrupt: Option<BorrowedFd<'a>>,
    },
}

impl<'a> RoleSite<'a> {
    /// The same place for other roles, where it is this machine; outside of its containers.
    pub(crate) fn here(&self) -> Option<RoleSite<'a>> {
        match self {
            RoleSite::Local { launcher, run, .. } => {
                Some(RoleSite::Local { launcher, run, containers: None })
            }
            RoleSite::Remote { .. } => None,
        }
    }
}
