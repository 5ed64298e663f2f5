//! Messages between the controller and its roles. A message is JSON, preceded by its length (a 32-bit big-endian
//! number); descriptors are attached to the first byte of the message.
//!
//! A role reads orders from its standard input. If that is a socket, the role answers through it, and offers may
//! include descriptors. Otherwise (behind a command prefix that transfers only bytes, such as ssh), the role answers on
//! standard output, and offers have strings only.

mod act;
mod offers;
mod outcome;
mod wire;

use std::path::PathBuf;

use crossway_mech::{Bind, Facts};
use crossway_sys::clock::Ticker;
use serde::{Deserialize, Serialize};

use crate::contender::Launch;
use crate::replay::RoleScript;
use crossway_records::inputs::Inputs;

pub use act::{Act, ActResult, ReportedError};
pub use offers::{OfferText, offers_from_text, offers_to_text};
pub use outcome::{Counters, LineSeen, Outcome, PaceSeen, Replayed, ServerUse};
pub(crate) use wire::LONGEST;
pub use wire::{ControlError, Wire};

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
    /// How to start the program if the mechanism is a contender.
    pub contender: Option<Box<Launch>>,
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

/// An order from the controller to a role. Each is answered by one [`Answer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum Order {
    /// Take over this task; answered by `Offers`.
    Begin {
        /// The task.
        task: Box<Task>,
    },
    /// Create the connecting ends; answered by `Opened`.
    Connect {
        /// One offer per channel.
        offers: Vec<OfferText>,
    },
    /// Complete the listening ends; answered by `Opened`.
    Accept,
    /// Verify one direction of one channel with random content; answered by `Verified`.
    Verify {
        /// The channel's number at this role.
        channel: u16,
        /// Whether this role sends in that direction.
        sends: bool,
        /// The sender's index, from which the seed of the content is derived.
        sender: u16,
    },
    /// Allocate and touch the memory needed for the window; answered by `Ready`.
    Prepare {
        /// The window.
        window: Window,
    },
    /// Run the prepared window; answered by `Done`.
    Go {
        /// The time on CLOCK_MONOTONIC, nanoseconds, at which the first message of a paced window is due, or at which a
        /// timed window ends.
        at_ns: u64,
    },
    /// End the open-ended window that is running, or the sending of end marks, which is then answered by `Done`. This
    /// order itself has no answer.
    Stop,
    /// Perform an act on the first channel while a fault is injected. The role records its progress in a file, whose
    /// descriptor is attached. Answered by `Acted` if the act ends.
    Act {
        /// What to do.
        act: Act,
    },
    /// Close everything; answered by `Closed`, after which the role exits.
    Close,
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
    /// Whether the window is open-ended: senders continue until they receive [`Order::Stop`].
    #[serde(default)]
    pub open: bool,
}

/// An answer from a role to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum Answer {
    /// The offers of the listeners, with their descriptors attached in the same order.
    Offers {
        /// One offer per listener.
        offers: Vec<OfferText>,
        /// Warnings about the figures.
        warnings: Vec<String>,
    },
    /// All channels are open.
    Opened {
        /// Values read back from the system.
        facts: Facts,
    },
    /// The direction was verified, as far as this end can tell.
    Verified {
        /// Number of messages transferred.
        messages: u32,
        /// CRC-32 over the messages' CRC-32 values.
        crc: u32,
    },
    /// The window is prepared.
    Ready,
    /// The window is over.
    Done {
        /// The results of the window.
        outcome: Box<Outcome>,
    },
    /// The act has ended.
    Acted {
        /// What the role observed.
        seen: Box<ActResult>,
    },
    /// Everything is closed.
    Closed,
    /// The order failed; the role exits.
    Failed {
        /// The error, in one sentence.
        reason: String,
        /// Whether the mechanism merely does not support what the case requests, as opposed to a failure.
        unsupported: bool,
        /// Whether the failure cannot be a consequence of a peer's failure. If several roles fail, the reason given by
        /// a role with this flag is reported.
        #[serde(default)]
        own_fault: bool,
    },
}
