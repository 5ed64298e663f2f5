//! Measures a process that moves between nodes, as part of `crossway measure`.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use crossway_lab::moves::{self, MOVES, MovesError, Options};
use crossway_lab::shutdown;

use crate::output;

/// Runs the trials and stores their records in a run's folder. Returns false, and stores nothing, if they were
/// interrupted.
pub(super) fn take_beside(dir: &Path, trials: u32) -> anyhow::Result<bool> {
    eprintln!(
        "moving a process to another node and back while it exchanges messages; trials: {trials}"
    );
    let options = Options {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        trials,
        interrupt: Some(shutdown::listen()?),
    };
    let records = match moves::run(&options) {
        Err(MovesError::Interrupted) => return Ok(false),
        records => records?,
    };
    output::write(&dir.join(MOVES), "choose another folder with --out", |out| {
        for record in &records {
            serde_json::to_writer(&mut *out, record)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })?;
    Ok(true)
}
