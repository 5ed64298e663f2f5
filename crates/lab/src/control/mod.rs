//! Messages between the controller and its roles. A message is JSON, preceded by its length (a 32-bit big-endian
//! number); descriptors are attached to the first byte of the message.
//!
//! A role reads orders from its standard input. If that is a socket, the role answers through it, and offers may
//! include descriptors. Otherwise (behind a command prefix that transfers only bytes, such as ssh), the role answers on
//! standard output, and offers have strings only.

mod act;
mod offers;
mod wire;

use crossway_mech::Facts;
use serde::{Deserialize, Serialize};

use crate::contender::Launch;

pub use crossway_loops::{
    Counters, LineSeen, Outcome, PaceSeen, Part, Replayed, ServerUse, Task, Window,
};

pub use act::{Act, ActResult, ReportedError};
pub use offers::{OfferText, offers_from_text, offers_to_text};
pub use wire::{ControlError, Wire};
pub(crate) use wire::{body_len, frame, gone, message};

/// An order from the controller to a role. Each is answered by one [`Answer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum Order {
    /// Take over this task; answered by `Offers`.
    Begin {
        /// The task.
        task: Box<Task>,
        /// How to start the program if the mechanism is a contender.
        contender: Option<Box<Launch>>,
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
        /// How much later than `at_ns` the first message of each peer is due, nanoseconds; empty
        /// unless the peers have schedules of their own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        phases_ns: Vec<u64>,
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
