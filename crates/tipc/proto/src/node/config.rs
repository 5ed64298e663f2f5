//! The configuration of a node, and the capabilities that it announces and requires.

use crate::addr::{NetworkId, NodeAddr, NodeId};
use crate::limits::Limits;
use crate::socket::MulticastMethod;
use crate::wire::Capabilities;

/// Capabilities that this node announces: all those that Linux 6.1 announces.
pub const CAPABILITIES: Capabilities = Capabilities::SYN
    .and(Capabilities::BCAST_SYNCH)
    .and(Capabilities::BCAST_STATE_NACK)
    .and(Capabilities::BLOCK_FLOWCTL)
    .and(Capabilities::BCAST_RCAST)
    .and(Capabilities::NODE_ID128)
    .and(Capabilities::LINK_PROTO_SEQNO)
    .and(Capabilities::MCAST_RBCTL)
    .and(Capabilities::GAP_ACK_BLOCK)
    .and(Capabilities::TUNNEL_ENHANCED)
    .and(Capabilities::NAGLE)
    .and(Capabilities::NAMED_BCAST);

/// Capabilities that a peer must have. Kernels since Linux 4.17 (2018) have them. This node does
/// not support the alternatives that older kernels use, and makes no contact with such kernels
/// ([`Event::TooOld`](super::Event::TooOld)).
pub const REQUIRED: Capabilities = Capabilities::SYN
    .and(Capabilities::BCAST_SYNCH)
    .and(Capabilities::BCAST_STATE_NACK)
    .and(Capabilities::BLOCK_FLOWCTL)
    .and(Capabilities::NODE_ID128);

/// Configuration of a node.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Identity of the node; if `None`, it is derived from the first bearer.
    pub id: Option<NodeId>,
    /// A fixed address. If `None`, the node derives an address from its identity, and tries that address for a second
    /// before it adopts it.
    pub addr: Option<NodeAddr>,
    /// Network ID of the cluster.
    pub network: NetworkId,
    /// Seed of the node's random numbers. Must differ each time the node starts.
    pub seed: u64,
    /// Capabilities that this node neither announces nor uses, to emulate an older node; none by default. Other nodes
    /// of this implementation refuse a node that lacks one of [`REQUIRED`].
    pub withheld: Capabilities,
    /// Limits of the node's tables, and times.
    pub limits: Limits,
    /// How multicasts of sockets that do not choose a method are sent.
    pub multicasts: MulticastPolicy,
}

/// How multicasts are sent to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MulticastPolicy {
    /// Method for sockets that do not choose one.
    pub method: MulticastMethod,
    /// For the automatic method: replicast is used if the number of destination nodes is at most this percentage of the
    /// peers, plus one.
    pub replicast_percent: usize,
}

impl Default for MulticastPolicy {
    fn default() -> Self {
        Self {
            method: MulticastMethod::Automatic,
            replicast_percent: crate::limits::REPLICAST_PEERS_PERCENT,
        }
    }
}

impl Config {
    /// The capabilities that the node announces.
    pub(super) const fn announced(&self) -> Capabilities {
        CAPABILITIES.without(self.withheld)
    }
}
