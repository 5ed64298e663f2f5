//! A role's process on this host. It is controlled over a socket pair and never left running.

use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crossway_sys::{OsError, lease, proc};

use super::{LaunchError, Launcher};
use crate::control::Wire;
use crate::exit_report::{self, exit_report};

/// A running role.
#[derive(Debug)]
pub(crate) struct RoleProcess {
    pub(crate) name: String,
    pub(crate) wire: Wire,
    child: Child,
    stderr: PipeReader,
    _lease: lease::Lease,
}

impl RoleProcess {
    /// Starts a process that becomes a role. `command` is the launcher's program, or a command that runs it.
    pub(crate) fn start(
        mut command: Command,
        launcher: &Launcher,
        name: &str,
    ) -> Result<RoleProcess, LaunchError> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|e| OsError::new("socketpair", "control channel", e))?;
        let (stderr, stderr_end) =
            std::io::pipe().map_err(|e| OsError::new("pipe", "stderr of a role", e))?;
        command
            .args(&launcher.args)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(stderr_end)
            // Ctrl-C reaches only the controller, which then ends the roles.
            .process_group(0);
        if let Some((name, path)) = crossway_mech::mechanisms::tipc_node::variable() {
            command.env(name, path);
        }
        proc::die_with_parent(&mut command);
        exit_report::before_start();
        let child = command
            .spawn()
            .map_err(|e| OsError::new("start role", launcher.program.display(), e))?;
        // The command holds copies of the role's ends; while they are open, the role's death would go unnoticed.
        drop(command);
        let pid = child.id();
        let started_ticks = proc::started_ticks(pid).unwrap_or(0);
        let lease = lease::hold(lease::Resource::Process { pid, started_ticks })?;
        let wire = Wire::socket(ours.into()).map_err(|e| LaunchError::Role(e.to_string()))?;
        Ok(RoleProcess { name: name.to_owned(), child, wire, stderr, _lease: lease })
    }

    /// Waits for the process to exit; describes its exit status and what it wrote to standard error.
    pub(crate) fn exit_report(&mut self) -> String {
        let status = self.child.wait();
        let mut bytes = Vec::new();
        let _ = self.stderr.read_to_end(&mut bytes);
        exit_report(status, &String::from_utf8_lossy(&bytes))
    }

    /// Waits for the process, which must be about to exit.
    pub(crate) fn wait(&mut self) {
        let _ = self.child.wait();
    }

    /// Kills the process; does nothing if it has already been waited for.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// The role's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}
