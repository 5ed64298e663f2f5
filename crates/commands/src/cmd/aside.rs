//! What `crossway measure` measures beside trials: a process that moves between nodes, and MPI. The records are stored
//! in the run's folder.

use std::path::Path;

use crossway_lab::aside::AsideError;
use crossway_lab::{moves, mpi, shutdown};
use crossway_records::side_records::SideRecord;
use serde::Serialize;

use crate::output;
use crate::own;

/// How much the ranks of MPI do in a trial: about a second each on a machine with two CPUs.
const MPI_WORK: f64 = 1.0;

/// Moves a process. Returns false, and stores nothing, if the trials were interrupted.
pub(super) fn moves(dir: &Path, trials: u32) -> anyhow::Result<bool> {
    eprintln!(
        "moving a process to another node and back while it exchanges messages; trials: {trials}"
    );
    let interrupt = Some(shutdown::listen()?);
    store(dir, moves::run(&moves::Options { program: own::program()?, trials, interrupt }))
}

/// Runs MPI over TCP and over TIPC. Returns false, and stores nothing, if the trials were interrupted.
pub(super) fn mpi(dir: &Path, trials: u32) -> anyhow::Result<bool> {
    eprintln!("running MPI over TCP and over TIPC in its place; trials: {trials}");
    let (interrupt, work) = (Some(shutdown::listen()?), MPI_WORK);
    store(dir, mpi::run(&mpi::Options { program: own::program()?, trials, work, interrupt }))
}

/// Stores records in a run's folder. Returns false, and stores nothing, if the trials were interrupted.
fn store<T: SideRecord + Serialize>(
    dir: &Path,
    records: Result<Vec<T>, AsideError>,
) -> anyhow::Result<bool> {
    let records = match records {
        Err(AsideError::Interrupted) => return Ok(false),
        records => records?,
    };
    output::replace(&dir.join(T::FILE), "choose another folder with --out", |out| {
        output::write_lines(out, &records)
    })?;
    Ok(true)
}
