//! `crossway man DIR`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::Run;
use crate::ui::Ui;

/// Write the man pages into a directory
#[derive(clap::Args)]
pub(crate) struct Man {
    /// The directory, e.g. /usr/local/share/man/man1; created if it does not exist
    dir: PathBuf,
}

impl Run for Man {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        std::fs::create_dir_all(&self.dir)
            .with_context(|| format!("cannot create the directory {}", self.dir.display()))?;
        clap_mangen::generate_to(crate::command(), &self.dir)
            .with_context(|| format!("cannot write man pages into {}", self.dir.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
