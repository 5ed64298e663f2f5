//! `crossway completions SHELL`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::env::Shells;

use super::Run;
use crate::ui::{self, Ui};

/// Print a completion script for a shell
///
/// The script calls crossway to complete subcommands, options, plans, mechanisms, runs, and the networks and guests
/// that are up.
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Shell for which to print the script
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Shell {
    const fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Elvish => "elvish",
            Shell::Fish => "fish",
            Shell::Powershell => "powershell",
            Shell::Zsh => "zsh",
        }
    }
}

impl Run for Completions {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        let name = self.shell.name();
        let shells = Shells::builtins();
        let shell = shells.completer(name).with_context(|| format!("no completion for {name}"))?;
        let mut script = Vec::new();
        shell.write_registration(
            crate::COMPLETE,
            "crossway",
            "crossway",
            "crossway",
            &mut script,
        )?;
        std::io::stdout().write_all(&script).map_err(ui::output_failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
