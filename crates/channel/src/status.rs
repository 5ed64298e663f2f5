//! What a channel does now, for people and programs that look from outside.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::transport::Transport;

/// One end of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its number, the same at both ends.
    pub id: u64,
    /// The listening process, whose counts these are.
    pub pid: u32,
    /// The connected process; 0 if it lives in a PID namespace that the listener does not see.
    pub peer_pid: u32,
    /// Where the peer is, if on another host: the transport and its address there, or how it reached the listener.
    pub peer_host: Option<String>,
    /// The transport in use.
    pub transport: Transport,
    /// The one that a switch leads to.
    pub switching_to: Option<Transport>,
    /// Switches so far, refused ones included.
    pub epoch: u32,
    /// Messages sent by the listening process.
    pub sent_msgs: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages received by the listening process.
    pub received_msgs: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Messages that were sent to the listening process and lost on the way, where both ends allow that.
    #[serde(default)]
    pub lost_msgs: u64,
    /// The last entries of its log.
    pub log: Vec<Event>,
}
