//! `crossway completions SHELL`.

use std::process::ExitCode;

use clap::CommandFactory;

use super::Run;
use crate::ui::Ui;

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
        clap_complete::generate(self.shell, &mut command, "crossway", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
