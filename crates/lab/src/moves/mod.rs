//! A process that moves to another node while it serves a client (item C9 of the cluster study).
//!
//! There are two nodes, each with a network namespace and a `tipcd`, and two programs that know only the name of their
//! channel: `crossway channel check`, which sends numbered messages, and `crossway channel listen --echo`, which sends
//! them back. The listening program moves from the client's node to the other one and back while messages flow. Each
//! trial gives one [`MoveRecord`].

mod record;
mod trial;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crossway_sys::{Obstacle, clock};

pub use record::{MOVES, MoveRecord, SCHEMA};

use crate::aside::{AsideError, in_room};
use crate::node_pair::NodePair;
use crate::run::new_name;
use crate::shutdown;
use crossway_records::record::Status;
use trial::Places;

/// Options of a set of trials.
#[derive(Debug)]
pub struct Options {
    /// Path of this program.
    pub program: PathBuf,
    /// Number of trials.
    pub trials: u32,
    /// Readable when the trials should stop.
    pub interrupt: Option<OwnedFd>,
}

/// Runs all trials. If the two nodes cannot be created, the result is a single record with status `skipped` and the
/// reason.
///
/// # Errors
/// See [`AsideError`].
pub fn run(options: &Options) -> Result<Vec<MoveRecord>, AsideError> {
    in_room("moves", |room| all(options, room))
}

fn all(options: &Options, room: &Path) -> Result<Vec<MoveRecord>, AsideError> {
    let name = new_name();
    let record = |trial| MoveRecord {
        schema: SCHEMA,
        run: name.clone(),
        started_unix_ms: clock::unix_ms(),
        trial,
        status: Status::Ok,
        reason: None,
        remedy: None,
        result: None,
    };
    let nodes = match NodePair::up(&options.program) {
        Ok(nodes) => nodes,
        Err(error) => {
            let Obstacle { why, remedy } = error.obstacle();
            let (reason, remedy) = (Some(why), Some(remedy));
            return Ok(vec![MoveRecord { status: Status::Skipped, reason, remedy, ..record(0) }]);
        }
    };
    let mut records = Vec::new();
    for number in 0..options.trials {
        if shutdown::asked(options.interrupt.as_ref()) {
            return Err(AsideError::Interrupted);
        }
        let places = Places {
            program: &options.program,
            hosts: nodes.hosts(),
            sockets: nodes.sockets(),
            room: room.join(format!("{number}")),
        };
        let mut record = record(number);
        match trial::run(&places) {
            Ok(result) => record.result = Some(result),
            Err(why) => (record.status, record.reason) = (Status::Failed, Some(why)),
        }
        records.push(record);
    }
    Ok(records)
}
