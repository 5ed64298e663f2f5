//! The record of one trial of MPI: a line of `mpi.jsonl`, documented in docs/RECORDS.md.

use serde::{Deserialize, Serialize};

use crossway_records::record::Status;
use crossway_records::side_records::SideRecord;

/// File name of these records in a run's folder.
pub const MPI: &str = "mpi.jsonl";
/// Current value of [`MpiRecord::schema`].
pub const SCHEMA: u32 = 1;

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Library {
    /// Open MPI, by its transport `tcp`.
    OpenMpi,
    /// MPICH, by UCX's or libfabric's transport `tcp`.
    Mpich,
}

impl Library {
    /// All implementations that can be measured.
    pub const ALL: [Library; 2] = [Library::OpenMpi, Library::Mpich];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Library::OpenMpi => "Open MPI",
            Library::Mpich => "MPICH",
        }
    }
}

/// What carries the bytes between the two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// TCP, as the library was written for.
    Tcp,
    /// TIPC in its place, by `crossway run --via tipc`.
    Tipc,
    /// The same, but both ranks use one node, so that there is no link between them.
    TipcOneNode,
}

impl Way {
    /// All ways, TCP first.
    pub const ALL: [Way; 3] = [Way::Tcp, Way::Tipc, Way::TipcOneNode];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Way::Tcp => "TCP",
            Way::Tipc => "TIPC",
            Way::TipcOneNode => "TIPC, one node",
        }
    }
}

/// One trial: two ranks, every byte checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpiRecord {
    /// Version of this format.
    pub schema: u32,
    /// Name of the set of trials.
    pub run: String,
    /// Start of the trial, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// Number of the trial, from 0.
    pub trial: u32,
    /// The implementation; null if no trial was possible.
    pub library: Option<Library>,
    /// What carried the bytes; null as above.
    pub way: Option<Way>,
    /// `ok`, `failed` or `skipped`.
    pub status: Status,
    /// The reason if the trial failed or was skipped.
    pub reason: Option<String>,
    /// The step that would make the trial possible; null if there is none.
    pub remedy: Option<String>,
    /// The figures; null unless the status is `ok`.
    pub result: Option<MpiResult>,
}

/// What the ranks measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpiResult {
    /// Half the round trip of 8 bytes, the mean, nanoseconds.
    pub small_one_way_ns: f64,
    /// Half the round trip of 64 KiB, the mean, nanoseconds.
    pub large_one_way_ns: f64,
    /// Messages of 8 bytes per second, 64 in flight.
    pub small_msgs_per_s: f64,
    /// Bytes per second in messages of 64 KiB, 64 in flight.
    pub large_bytes_per_s: f64,
    /// Time of the application, which relaxes a grid and exchanges the edges of its two strips in each step, nanoseconds.
    pub halo_ns: f64,
    /// The share of that time that was spent in MPI, 0 to 1.
    pub halo_in_mpi: f64,
    /// The sum of the grid's points, which must not depend on what carries the bytes.
    pub halo_sum: f64,
}

impl SideRecord for MpiRecord {
    const FILE: &'static str = MPI;
    const SCHEMA: u32 = SCHEMA;
    const WHAT: &'static str = "record of MPI";

    fn schema(&self) -> u32 {
        self.schema
    }
}
