//! The hidden subcommands that `measure` starts: a role of a trial, and the reaper that cleans up after a killed run.

use std::path::PathBuf;
use std::process::ExitCode;

use super::Run;
use crate::ui::Ui;

/// Becomes one role of a trial; orders come from standard input
#[derive(clap::Args)]
pub(crate) struct Role {}

impl Run for Role {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        Ok(crossway_lab::role::main())
    }
}

/// Waits for the end of its parent, then removes what the parent's run left
#[derive(clap::Args)]
pub(crate) struct Reaper {
    /// The run's directory of leases
    dir: PathBuf,
}

impl Run for Reaper {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        crossway_sys::lease::reap_after_owner(&self.dir);
        // Looking at networks removes those whose owner is gone, as the parent is now.
        if let Err(error) = crossway_netlab::list() {
            tracing::warn!("{error}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
