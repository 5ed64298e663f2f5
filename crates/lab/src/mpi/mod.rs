//! MPI, unmodified, over TCP and over TIPC in its place (item C12 of the cluster study).
//!
//! Two ranks run on two hosts of a virtual network, each with a `tipcd`. Each trial gives one [`MpiRecord`] for each
//! implementation of MPI that is installed and for each [`Way`]; the ways are measured in turn.

mod record;
mod trial;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crossway_sys::{Obstacle, clock, program};

pub use record::{Library, MPI, MpiRecord, MpiResult, SCHEMA, Way};

use crate::aside::{AsideError, in_room};
use crate::node_pair::NodePair;
use crate::run::new_name;
use crate::shutdown;
use crossway_records::record::Status;
use trial::{Places, built};

/// Options of a set of trials.
#[derive(Debug)]
pub struct Options {
    /// Path of this program.
    pub program: PathBuf,
    /// Number of trials.
    pub trials: u32,
    /// How much the ranks do in a trial, as a multiple of about a second.
    pub work: f64,
    /// Readable when the trials should stop.
    pub interrupt: Option<OwnedFd>,
}

/// Runs all trials. If MPI is not installed or the two nodes cannot be created, the result is a single record with
/// status `skipped` and the reason.
///
/// # Errors
/// See [`AsideError`].
pub fn run(options: &Options) -> Result<Vec<MpiRecord>, AsideError> {
    in_room("mpi", |room| all(options, room))
}

impl Library {
    /// The part of its commands' names that Debian adds.
    fn suffix(self) -> &'static str {
        match self {
            Library::OpenMpi => "openmpi",
            Library::Mpich => "mpich",
        }
    }

    fn is_installed(self) -> bool {
        let there = |command| program::find(format!("{command}.{}", self.suffix())).is_some();
        there("mpirun") && there("mpicc")
    }
}

fn all(options: &Options, room: &Path) -> Result<Vec<MpiRecord>, AsideError> {
    let name = new_name();
    let record = |trial, case: Option<(Library, Way)>| MpiRecord {
        schema: SCHEMA,
        run: name.clone(),
        started_unix_ms: clock::unix_ms(),
        trial,
        library: case.map(|(library, _)| library),
        way: case.map(|(_, way)| way),
        status: Status::Ok,
        reason: None,
        remedy: None,
        result: None,
    };
    let skipped = |Obstacle { why, remedy }: Obstacle| {
        let (reason, remedy) = (Some(why), Some(remedy));
        vec![MpiRecord { status: Status::Skipped, reason, remedy, ..record(0, None) }]
    };
    let libraries: Vec<Library> = Library::ALL.into_iter().filter(|l| l.is_installed()).collect();
    if libraries.is_empty() {
        let remedy = "apt-get install openmpi-bin libopenmpi-dev (or: mpich libmpich-dev)";
        return Ok(skipped(Obstacle::new("neither Open MPI nor MPICH is installed", remedy)));
    }
    let mut ranks = Vec::new();
    for library in libraries {
        match built(library, room) {
            Ok(program) => ranks.push((library, program)),
            Err(obstacle) => return Ok(skipped(obstacle)),
        }
    }
    let nodes = NodePair::up(&options.program)
        .and_then(|nodes| nodes.wait_for_link(&options.program).map(|()| nodes));
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(error) => return Ok(skipped(error.obstacle())),
    };
    let places = Places::new(&options.program, &nodes, room)?;
    let mut records: Vec<MpiRecord> = Vec::new();
    for number in 0..options.trials {
        for (library, program) in &ranks {
            // Another way begins each round, so that none always follows the same one.
            for at in 0..Way::ALL.len() {
                if shutdown::asked(options.interrupt.as_ref()) {
                    return Err(AsideError::Interrupted);
                }
                let way = Way::ALL[(at + number as usize) % Way::ALL.len()];
                let mut record = record(number, Some((*library, way)));
                let first = records.iter().find_map(|r| r.result).map(|r| r.halo_sum);
                match trial::run(&places, *library, way, program, options.work) {
                    Ok(result) if first.is_none_or(|sum| sum == result.halo_sum) => {
                        record.result = Some(result);
                    }
                    Ok(result) => {
                        record.status = Status::Failed;
                        let sum = result.halo_sum;
                        record.reason =
                            Some(format!("the grid's sum is {sum}, not {}", first.unwrap_or(sum)));
                    }
                    Err(why) => (record.status, record.reason) = (Status::Failed, Some(why)),
                }
                records.push(record);
            }
        }
    }
    Ok(records)
}
