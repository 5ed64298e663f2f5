//! This program's own file, which it also starts for its roles.

use std::path::PathBuf;

use anyhow::Context;
use crossway_lab::launcher::Launcher;
use crossway_lab::shutdown;

/// The path of this program.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// Starts roles as this program, until the user interrupts it.
pub(crate) fn launcher() -> anyhow::Result<Launcher> {
    Ok(Launcher::of(program()?, Some(shutdown::listen()?)))
}
