//! A process that moves to another node while it serves a client (item C9 of the cluster study).
//!
//! There are two nodes, each with a network namespace and a `tipcd`, and two programs that know only the name of their
//! channel: `crossway channel check`, which sends numbered messages, and `crossway channel listen --echo`, which sends
//! them back. The listening program moves from the client's node to the other one and back while messages flow. Each
//! trial gives one [`MoveRecord`].

mod record;
mod trial;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crossway_netlab::{Lab, Link, Topology};
use crossway_sys::lease::{self, Run};
use crossway_sys::{Obstacle, OsError, clock};
use crossway_tipc_client::LoneTipcd;

pub use record::{MOVES, MoveRecord, SCHEMA, read_moves_beside};

use crate::live_testbed::{TestbedError, tipcd_obstacle};
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

/// The reason why the trials were not completed.
#[derive(Debug, thiserror::Error)]
pub enum MovesError {
    /// A stop was requested; the records are incomplete.
    #[error("interrupted")]
    Interrupted,
    /// A directory for the two nodes cannot be created.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Runs all trials. If the two nodes cannot be created, the result is a single record with status `skipped` and the
/// reason.
///
/// # Errors
/// See [`MovesError`].
pub fn run(options: &Options) -> Result<Vec<MoveRecord>, MovesError> {
    let leases = Run::begin(None)?;
    let room = leases.room("moves")?;
    let records = all(options, &room);
    leases.clear_room(&room);
    records
}

fn all(options: &Options, room: &std::path::Path) -> Result<Vec<MoveRecord>, MovesError> {
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
    let skipped = |error: TestbedError| {
        let Obstacle { why, remedy } = error.obstacle();
        let (reason, remedy) = (Some(why), Some(remedy));
        vec![MoveRecord { status: Status::Skipped, reason, remedy, ..record(0) }]
    };
    let lab = match Lab::up(&Topology::of(&["a", "b"], Link::default())) {
        Ok(lab) => lab,
        Err(error) => return Ok(skipped(error.into())),
    };
    let tipcds = match tipcds(options, &lab) {
        Ok(tipcds) => tipcds,
        Err(error) => return Ok(skipped(error)),
    };
    let mut records = Vec::new();
    for number in 0..options.trials {
        if shutdown::asked(options.interrupt.as_ref()) {
            return Err(MovesError::Interrupted);
        }
        let places = Places {
            program: &options.program,
            hosts: &lab.network().hosts,
            sockets: tipcds.each_ref().map(|(socket, _)| socket.clone()),
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

/// Starts a `tipcd` on each node; returns each with the path of its socket.
fn tipcds(options: &Options, lab: &Lab) -> Result<[(PathBuf, LoneTipcd); 2], TestbedError> {
    let start = |n: usize| {
        let host = &lab.network().hosts[n];
        let socket = lease::fresh_path("moves")
            .map_err(|error| tipcd_obstacle(&host.name, &error.to_string()))?;
        let mut command = host.command(&options.program);
        command.args(["tipcd", "--id", &host.name, "--address", &format!("100{}", n + 1)]);
        command.arg(format!("eth:{}", host.interface));
        LoneTipcd::start(command, &socket)
            .map(|tipcd| (socket, tipcd))
            .map_err(|error| tipcd_obstacle(&host.name, &error.to_string()))
    };
    Ok([start(0)?, start(1)?])
}
