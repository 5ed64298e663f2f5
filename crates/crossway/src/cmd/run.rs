//! `crossway run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use crossway_tipc_client::unmodified::{self, CannotRun};

use super::Run;
use crate::ui::Ui;

/// File name of the preloaded library (crates/preload).
const LIBRARY: &str = "libcrossway_preload.so";

/// Run an unmodified program so that its TCP connections within this host become UNIX stream pairs
///
/// A connection is moved if both programs run so, belong to the same user, and the listening program accepts at once; any
/// other one stays as it is. A library that is preloaded (LD_PRELOAD) does this when a connection is made; the bytes then
/// go through the kernel's own UNIX sockets. The program replaces this process, and the programs that it starts inherit the
/// library. Statically linked programs, Go programs and programs that gain privileges cannot be run so. docs/RUN.md says
/// what differs from TCP.
#[derive(clap::Args)]
pub(crate) struct RunUnmodified {
    /// Say for each connection what carries it and why, in FILE or on standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    explain: Option<PathBuf>,
    /// Path of libcrossway_preload.so [default: in the directory of crossway, or in ../lib]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Program to run and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

impl Run for RunUnmodified {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        let library = match &self.library {
            Some(path) => unmodified::loadable(path)?,
            None => {
                let own = std::env::current_exe().context("cannot find this program's own file")?;
                unmodified::library_named(LIBRARY, &own)?
            }
        };
        let Some((program, arguments)) = self.program.split_first() else {
            bail!("no program given");
        };
        let mut command =
            unmodified::preloading(&library, program, arguments).map_err(|error| match error {
                CannotRun::Static { path } => anyhow!(
                    "{} is linked statically, so its calls cannot be intercepted: link it dynamically, or run it without `crossway run`",
                    path.display()
                ),
                CannotRun::Go { path } => anyhow!(
                    "{} is a Go program, which makes its system calls itself, so they cannot be intercepted: run it without `crossway run`",
                    path.display()
                ),
                error => error.into(),
            })?;
        if let Some(place) = &self.explain {
            // Absolute, so that it stays valid if the program changes its directory.
            let place = match place.as_os_str() {
                standard_error if standard_error == "-" => place.clone(),
                _ => std::path::absolute(place).unwrap_or_else(|_| place.clone()),
            };
            command.env("CROSSWAY_RUN_EXPLAIN", place);
        }
        Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
    }
}
