//! Hosts: a host is a command prefix that runs `crossway agent`, which plays roles, reads meters and speaks over its standard
//! input and output.
//!
//! `agent -> controller` and `controller -> agent` each begin with one line of text, the `greeting`, whose form never
//! changes, so that any two versions can tell each other apart; then frames of JSON follow (`frames`). The agent ends, and
//! everything it started with it, when its standard input closes.

mod address;
mod clock;
mod errors;
mod frames;
mod greeting;
mod host;
mod line;
mod reach;
mod serve;

use std::net::IpAddr;

use crossway_mech::Probe;
use crossway_sys::clock::Ticker;
use crossway_sys::topology::Topology;
use serde::{Deserialize, Serialize};

pub(crate) use address::find_address;
pub(crate) use clock::own as own_clock;
pub use errors::HostError;
pub use host::{Host, HostPlan};
pub use serve::main;

use crate::control::{Answer, Order};
use crate::env::Environment;
use crate::meters::{HostAsk, HostReading};
use crate::record::Calibration;

/// The protocol's version: raised by any change of [`ToAgent`], [`FromAgent`] or what they carry.
pub(crate) const PROTOCOL: u32 = 2;

/// From the controller to an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "to")]
pub(crate) enum ToAgent {
    /// Tell of yourself, and which of these mechanisms work; answered by `About`.
    Introduce {
        /// Ids.
        mechanisms: Vec<String>,
    },
    /// Start a process for this role; what becomes of it comes as `Role`.
    Start {
        /// Its number, never used twice.
        role: u32,
        /// Its name, for messages.
        name: String,
    },
    /// Give the role this order, with descriptors that roles of this agent have offered.
    Tell {
        /// The role.
        role: u32,
        /// The order.
        order: Box<Order>,
        /// In the order in which the order names them.
        fds: Vec<HeldAt>,
    },
    /// Kill what still runs of the trial and remove what it left; answered by `Cleared`.
    Clear,
    /// Start the host's meters; answered by `Metering`.
    StartMeters {
        /// What to read.
        ask: HostAsk,
    },
    /// Read them; answered by `Read`.
    ReadMeters,
    /// Open a port that others can try to reach; answered by `Listening`.
    Listen,
    /// Try to reach another agent's port; answered by `Reached`.
    Reach {
        /// Where it may be.
        addresses: Vec<IpAddr>,
        /// Its port.
        port: u16,
        /// What it says to callers.
        password: String,
    },
    /// Close the port.
    StopListening,
}

/// Where the agent holds an offered descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldAt {
    /// The role that offered it.
    pub(crate) role: u32,
    /// Its place among all that this role offered.
    pub(crate) at: usize,
}

/// From an agent to the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub(crate) enum FromAgent {
    /// What there is on this host.
    About {
        /// All of it.
        about: Box<About>,
    },
    /// A role answers, or has ended.
    Role {
        /// Its number.
        role: u32,
        /// What it says.
        said: Said,
    },
    /// All roles are gone.
    Cleared,
    /// The meters run.
    Metering {
        /// CLOCK_MONOTONIC here, nanoseconds.
        now_ns: u64,
    },
    /// What they read.
    Read {
        /// The reading.
        reading: Box<HostReading>,
    },
    /// The port is open.
    Listening {
        /// Which; or why there is none.
        port: Result<u16, String>,
        /// What callers will hear.
        password: String,
    },
    /// What came of trying.
    Reached {
        /// The first of the addresses that led there; else what happened at each.
        outcome: Result<IpAddr, String>,
    },
}

/// What a role on another host says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// An answer.
    Answer {
        /// The answer.
        answer: Box<Answer>,
        /// How many descriptors came with it; the agent holds them.
        fds: usize,
    },
    /// It has ended.
    Ended {
        /// How, with its last words.
        how: String,
    },
}

/// What there is on a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// Its fingerprint.
    pub environment: Environment,
    /// Its processors.
    pub topology: Topology,
    /// Mechanisms by id.
    pub mechanisms: Vec<(String, Probe)>,
    /// Its clock for timed loops.
    pub ticker: Ticker,
    /// What is known of its instruments.
    pub calibration: Calibration,
    /// Its addresses, best first.
    pub addresses: Vec<IpAddr>,
    /// Names its CLOCK_MONOTONIC: hosts with the same name can compare instants.
    pub clock: String,
}
