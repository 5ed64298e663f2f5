//! `crossway tipc run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use crossway_sys::start;
use crossway_tipc_client::{Backend, Socket, SocketKind, unmodified};

use crate::libraries;

/// Run an unmodified AF_TIPC program on a tipcd
///
/// A library that is preloaded (LD_PRELOAD) forwards the program's calls on AF_TIPC sockets to the tipcd and passes all
/// other calls through. The program replaces this process, and the programs it starts inherit the library. Programs
/// that are statically linked, run with another user's privileges (setuid), or make system calls without the C library
/// (Go) cannot be run in this way. io_uring, which would bypass the library, is refused unless TIPCD_IO_URING=allow is
/// set.
#[derive(clap::Args)]
pub(crate) struct RunProgram {
    /// Use the tipcd even if the kernel has AF_TIPC
    #[arg(long)]
    force: bool,
    /// Path of libcrossway_tipc_preload.so [default: in the directory of crossway, in ../lib, or contained]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Program to run and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

impl RunProgram {
    pub(super) fn run(self, tipcd: &Path) -> anyhow::Result<ExitCode> {
        if !self.force && Socket::open_on(&Backend::Kernel, SocketKind::Rdm).is_ok() {
            bail!(
                "this kernel supports AF_TIPC: run the program without `crossway tipc run`, or add --force to use the tipcd"
            );
        }
        let library = libraries::find(unmodified::LIBRARY, self.library.as_deref())?;
        // Check that the tipcd answers; otherwise the program would only see an errno.
        Socket::open_on(&Backend::Node(tipcd.to_owned()), SocketKind::Rdm)
            .map_err(|e| anyhow!("{e}"))?;
        let Some((program, arguments)) = self.program.split_first() else {
            bail!("no program given");
        };
        let mut command = unmodified::command(&library, tipcd, program, arguments)?;
        start::pass_on(&mut command);
        Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
    }
}
