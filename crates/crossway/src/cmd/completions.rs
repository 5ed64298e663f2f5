//! `crossway completions SHELL`.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use super::Run;
use crate::ui::{self, Ui};

/// Prints a completion script for a shell
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell to complete for
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Run for Completions {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        let mut command = crate::Cli::command();
        // Into memory first: the generator panics where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "crossway", &mut script);
        std::io::stdout().write_all(&script).map_err(ui::output_failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
