//! The record of one trial with a moving process: a line of `moves.jsonl`, documented in docs/RECORDS.md.

use crossway_channel::check::Checked;
use serde::{Deserialize, Serialize};

use crossway_records::record::Status;
use crossway_records::side_records::SideRecord;

/// File name of these records in a run's folder.
pub const MOVES: &str = "moves.jsonl";
/// Current value of [`MoveRecord::schema`].
pub const SCHEMA: u32 = 1;

/// One trial: a move to the other node and one back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// Version of this format.
    pub schema: u32,
    /// Name of the set of trials.
    pub run: String,
    /// Start of the trial, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// Number of the trial, from 0.
    pub trial: u32,
    /// `ok`, `failed` or `skipped`.
    pub status: Status,
    /// The reason if the trial failed or was skipped.
    pub reason: Option<String>,
    /// The step that would make the trial possible; null if there is none.
    pub remedy: Option<String>,
    /// What the client counted; null unless the status is `ok`.
    pub result: Option<Checked>,
}

impl SideRecord for MoveRecord {
    const FILE: &'static str = MOVES;
    const SCHEMA: u32 = SCHEMA;
    const WHAT: &'static str = "record of a move";

    fn schema(&self) -> u32 {
        self.schema
    }
}
