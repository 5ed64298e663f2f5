//! `crossway tipc run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use crossway_tipc_client::{Backend, Kind, Socket, unmodified};

/// Run an unmodified AF_TIPC program on a tipcd
///
/// A library that is loaded before the C library (LD_PRELOAD) handles the program's calls on AF_TIPC sockets with the help of the
/// tipcd; all other calls pass through. The program replaces this process, and the programs it starts inherit the library. Programs
/// cannot run this way if they are linked statically, run with another user's rights (setuid), or make system calls themselves (Go,
/// io_uring).
#[derive(clap::Args)]
pub(crate) struct RunProgram {
    /// Use the tipcd even where the kernel has AF_TIPC
    #[arg(long)]
    force: bool,
    /// The library [default: in the folder of crossway, or in ../lib]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

impl RunProgram {
    pub(super) fn run(self, tipcd: &Path) -> anyhow::Result<ExitCode> {
        if !self.force && Socket::open_on(&Backend::Kernel, Kind::Rdm).is_ok() {
            bail!(
                "this kernel has AF_TIPC itself: run the program without `crossway tipc run`, or give --force to have it use the tipcd"
            );
        }
        let library = match &self.library {
            Some(path) => unmodified::loadable(path)?,
            None => {
                let own = std::env::current_exe().context("cannot tell where crossway is")?;
                unmodified::library(&own)?
            }
        };
        // The program itself would only see an errno.
        Socket::open_on(&Backend::Node(tipcd.to_owned()), Kind::Rdm).map_err(|e| anyhow!("{e}"))?;
        let Some((program, arguments)) = self.program.split_first() else {
            bail!("no program given");
        };
        let error = unmodified::command(&library, tipcd, program, arguments)?.exec();
        Err(error).with_context(|| format!("cannot run {}", program.display()))
    }
}
