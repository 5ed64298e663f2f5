//! The current state of a channel, for people and programs that observe it from outside.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::transport::Transport;

/// The state of one end of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The channel's name.
    pub name: String,
    /// The channel's id, the same at both ends.
    pub id: u64,
    /// Process id of the listening end. The counts below refer to this process.
    pub pid: u32,
    /// Process id of the connecting end; 0 if it is in a PID namespace that the listening end cannot see, or on another
    /// host.
    pub peer_pid: u32,
    /// The transport and address of a peer that is connected over the network; `None` for a peer on this host.
    pub peer_host: Option<String>,
    /// The transport in use.
    pub transport: Transport,
    /// The new transport while a switch is in progress.
    pub switching_to: Option<Transport>,
    /// Number of switches so far, including refused ones.
    pub epoch: u32,
    /// Number of messages sent by the listening process.
    pub sent_msgs: u64,
    /// Payload bytes of the messages sent.
    pub sent_bytes: u64,
    /// Number of messages received by the listening process.
    pub received_msgs: u64,
    /// Payload bytes of the messages received.
    pub received_bytes: u64,
    /// Number of messages to the listening process that were lost in transit, where both ends allow loss.
    #[serde(default)]
    pub lost_msgs: u64,
    /// The last entries of the channel's log.
    pub log: Vec<Event>,
}
