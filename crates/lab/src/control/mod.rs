//! What the controller and its roles say to each other: JSON behind a 32-bit big-endian length, descriptors attached to
//! its first byte.
//!
//! A role reads orders from its standard input. If that is a socket, answers go back through it and offers may carry
//! descriptors; otherwise (a role behind a command prefix that only passes bytes, such as ssh) answers go to standard
//! output and offers are words only.

mod offers;
mod outcome;
mod wire;

use std::path::PathBuf;

use crossway_mech::Facts;
use crossway_sys::clock::Ticker;
use serde::{Deserialize, Serialize};

use crate::contender::Launch;
use crate::faults::{Act, Seen};
use crate::inputs::Inputs;

pub use offers::{OfferText, offers_from_text, offers_to_text};
pub use outcome::{Counters, Outcome, PaceSeen, ServerUse};
pub(crate) use wire::LONGEST;
pub use wire::{ControlError, Wire};

/// What a role is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends one way.
    Sender,
    /// Receives one way.
    Receiver,
    /// Asks and waits for the answer.
    Client,
    /// Answers.
    Server,
}

impl Part {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Part::Sender => "sender",
            Part::Receiver => "receiver",
            Part::Client => "client",
            Part::Server => "server",
        }
    }
}

/// All that a role is told of its case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The mechanism's id.
    pub mechanism: String,
    /// How its program is started, where it is a contender.
    pub contender: Option<Box<Launch>>,
    /// The case.
    pub inputs: Inputs,
    /// What it is.
    pub part: Part,
    /// Its number among those of the same part; senders put it into their sequence numbers.
    pub index: u16,
    /// The logical CPU to run on.
    pub cpu: Option<u32>,
    /// How many listeners it makes.
    pub listeners: u16,
    /// How many of the other part feed or drain it.
    pub peers: u16,
    /// The number of its first peer.
    pub first_peer: u16,
    /// The calibrated clock for timed loops; null: calibrate one (another host).
    pub ticker: Option<Ticker>,
    /// Bytes over which the sender rotates its messages.
    pub working_set_bytes: u64,
    /// The run's directory of leases; null on another host.
    pub leases: Option<PathBuf>,
    /// The address a listener binds to; null: loopback.
    pub bind_address: Option<std::net::IpAddr>,
}

/// From the controller to a role. Each is answered by one [`Answer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum Order {
    /// Become this; answered by `Offers`.
    Begin {
        /// The task.
        task: Box<Task>,
    },
    /// Make the connecting ends; answered by `Opened`.
    Connect {
        /// One per channel.
        offers: Vec<OfferText>,
    },
    /// Complete the listening ends; answered by `Opened`.
    Accept,
    /// Prove one direction of one channel with random content; answered by `Verified`.
    Verify {
        /// The channel's number at this role.
        channel: u16,
        /// Whether this role sends.
        sends: bool,
        /// The sender's index, part of the content's seed.
        sender: u16,
    },
    /// Allocate and touch what the window needs; answered by `Ready`.
    Prepare {
        /// The window.
        window: Window,
    },
    /// Do it now; answered by `Done`.
    Go {
        /// On CLOCK_MONOTONIC: the first intended instant of paced windows, the end of timed ones.
        at_ns: u64,
    },
    /// End the open window that runs, which is then answered by `Done`; this order has no answer of its own.
    Stop,
    /// Do this on the first channel while a fault is brought about; a descriptor for the progress is attached. Answered by
    /// `Acted`, if it ends.
    Act {
        /// What.
        act: Act,
    },
    /// Close everything; answered by `Closed`, then the role ends.
    Close,
}

/// One stretch of work, for warming up or measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Number of the window within the trial.
    pub number: u32,
    /// Messages (round trips, exchanges) to do; 0 in timed and open windows.
    pub messages: u64,
    /// Messages per timed sample.
    pub batch: u32,
    /// Whether it counts.
    pub measured: bool,
    /// Whether it has no end of its own: those who send go on until [`Order::Stop`].
    #[serde(default)]
    pub open: bool,
}

/// From a role to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum Answer {
    /// The offers of the listeners, descriptors attached in order.
    Offers {
        /// One per listener.
        offers: Vec<OfferText>,
        /// What a reader of the figures should know.
        warnings: Vec<String>,
    },
    /// All channels are open.
    Opened {
        /// Values read back.
        facts: Facts,
    },
    /// The direction was proved, as far as this end can tell.
    Verified {
        /// Messages that went over.
        messages: u32,
        /// CRC-32 over their CRC-32s.
        crc: u32,
    },
    /// Prepared.
    Ready,
    /// The window is over.
    Done {
        /// What came of it.
        outcome: Box<Outcome>,
    },
    /// The act is over.
    Acted {
        /// What came of it.
        seen: Box<Seen>,
    },
    /// Closed.
    Closed,
    /// It went wrong; the role ends.
    Failed {
        /// What, in one sentence.
        reason: String,
        /// The mechanism cannot do what the case asks: nothing broke.
        unsupported: bool,
        /// Nothing that happened to its peer can have brought it about: where several roles fail, this is the reason.
        #[serde(default)]
        own_fault: bool,
    },
}
