//! Connects the controller to hosts. A host is reached by a command prefix with which `crossway agent` is started. The
//! agent runs roles, reads meters, and communicates through its standard input and output.
//!
//! Both directions begin with one line of text, the `greeting`. Its format never changes, so that any two versions can
//! recognise each other. Frames of JSON follow (`frames`). The agent, with everything it started, exits when its
//! standard input is closed.

mod address;
mod clock;
mod errors;
mod frames;
mod greeting;
mod host;
mod line;
mod push;
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
pub use push::AgentProgram;
pub(crate) use push::push;
pub use serve::main;

use crate::control::{Answer, Order};
use crate::env::Environment;
use crate::meters::{HostAsk, HostReading};
use crossway_records::record::Calibration;

/// Version of the protocol: incremented by every change of [`ToAgent`], [`FromAgent`] or the types in them.
pub(crate) const PROTOCOL: u32 = 3;

/// A message from the controller to an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "to")]
pub(crate) enum ToAgent {
    /// Describe this host, and test these mechanisms; answered by `About`.
    Introduce {
        /// Ids of the mechanisms.
        mechanisms: Vec<String>,
    },
    /// Start a process for this role; its answers and its exit are reported as `Role`.
    Start {
        /// The role's number, never reused.
        role: u32,
        /// Name of the role, for messages.
        name: String,
    },
    /// Send this order to the role, with descriptors that roles of this agent have offered.
    Tell {
        /// The role.
        role: u32,
        /// The order.
        order: Box<Order>,
        /// The descriptors, in the order in which the order refers to them.
        fds: Vec<HeldAt>,
    },
    /// Kill all processes of the trial that are still running and remove what they left behind; answered by `Cleared`.
    Clear,
    /// Start the host's meters; answered by `Metering`.
    StartMeters {
        /// Which meters to read.
        ask: HostAsk,
    },
    /// Read the meters; answered by `Read`.
    ReadMeters,
    /// Open a port to which others can connect; answered by `Listening`.
    Listen,
    /// Try to connect to another agent's port; answered by `Reached`.
    Reach {
        /// The other agent's possible addresses.
        addresses: Vec<IpAddr>,
        /// The other agent's port.
        port: u16,
        /// The password that the other agent sends to whoever connects.
        password: String,
    },
    /// Close the port.
    StopListening,
}

/// Identifies an offered descriptor held by the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldAt {
    /// The role that offered the descriptor.
    pub(crate) role: u32,
    /// The descriptor's index among all descriptors offered by this role.
    pub(crate) at: usize,
}

/// A message from an agent to the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub(crate) enum FromAgent {
    /// The description of this host.
    About {
        /// The description.
        about: Box<About>,
    },
    /// A role has answered or exited.
    Role {
        /// The role's number.
        role: u32,
        /// The role's answer, or how the role exited.
        said: Said,
    },
    /// All roles have ended.
    Cleared,
    /// The meters are running.
    Metering {
        /// CLOCK_MONOTONIC here, nanoseconds.
        now_ns: u64,
    },
    /// The readings of the meters.
    Read {
        /// The reading.
        reading: Box<HostReading>,
    },
    /// The port is open.
    Listening {
        /// The port, or the reason why none could be opened.
        port: Result<u16, String>,
        /// The password sent to whoever connects.
        password: String,
    },
    /// The result of connecting.
    Reached {
        /// The first address that worked, or what happened at each address.
        outcome: Result<IpAddr, String>,
    },
}

/// A message from a role on another host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// An answer to an order.
    Answer {
        /// The answer.
        answer: Box<Answer>,
        /// The number of descriptors attached to the answer; the agent keeps them.
        fds: usize,
    },
    /// The role has exited.
    Ended {
        /// The role's exit status and the last part of its output.
        how: String,
    },
}

/// The description of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// The host's fingerprint.
    pub environment: Environment,
    /// The host's CPU topology.
    pub topology: Topology,
    /// Probe results of the mechanisms, by id.
    pub mechanisms: Vec<(String, Probe)>,
    /// The calibrated clock for timed loops.
    pub ticker: Ticker,
    /// The properties of the measuring instruments: clock and empty loop.
    pub calibration: Calibration,
    /// The host's addresses, best first.
    pub addresses: Vec<IpAddr>,
    /// Identifies the host's CLOCK_MONOTONIC: time stamps of hosts with the same value can be compared.
    pub clock: String,
}
