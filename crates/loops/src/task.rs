//! What a role has to do: its task, and the windows of its trial.

use std::path::PathBuf;

use crossway_mech::Bind;
use crossway_sys::clock::Ticker;
use serde::{Deserialize, Serialize};

use crate::script::RoleScript;
use crossway_records::inputs::Inputs;

/// The part that a role plays in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends in one direction.
    Sender,
    /// Receives in one direction.
    Receiver,
    /// Sends requests and waits for replies.
    Client,
    /// Receives requests and sends replies.
    Server,
}

impl Part {
    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Part::Sender => "sender",
            Part::Receiver => "receiver",
            Part::Client => "client",
            Part::Server => "server",
        }
    }
}

/// Everything that a role needs to know about its case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The mechanism's id.
    pub mechanism: String,
    /// The inputs of the case.
    pub inputs: Inputs,
    /// What the role does, if the workload is a recording.
    #[serde(default)]
    pub script: Option<Box<RoleScript>>,
    /// The part that the role plays.
    pub part: Part,
    /// The role's index among the roles with the same part; senders include it in their sequence numbers.
    pub index: u16,
    /// The logical CPU to run on; null if the role is not pinned.
    pub cpu: Option<u32>,
    /// Number of listeners that the role creates.
    pub listeners: u16,
    /// Number of roles of the opposite part that are connected to this role.
    pub peers: u16,
    /// Index of the role's first peer.
    pub first_peer: u16,
    /// The calibrated clock for timed loops; null if the role runs on another host and has to calibrate the clock
    /// itself.
    pub ticker: Option<Ticker>,
    /// Total size of the messages that the sender uses in turn, bytes.
    pub working_set_bytes: u64,
    /// The run's directory of leases; null on another host, where the agent has a directory of its own.
    pub leases: Option<PathBuf>,
    /// Where a listener can be found.
    pub bind: Bind,
}

/// A part of the warm-up or of the measurement that a role runs without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Number of the window within the trial.
    pub number: u32,
    /// Number of messages (round trips, exchanges); 0 in timed and open-ended windows.
    pub messages: u64,
    /// Messages per timed sample.
    pub batch: u32,
    /// Whether the window is measured; otherwise it belongs to the warm-up.
    pub measured: bool,
    /// Whether the window is open-ended: senders continue until they are ordered to stop.
    #[serde(default)]
    pub open: bool,
}
