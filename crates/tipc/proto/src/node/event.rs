//! What a node passes to its caller: frames to be sent, and events.

use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId, Port, SocketAddr};
use crate::drops::DropReason;
use crate::link::LinkDownReason;
use crate::name_table::Binding;
use crate::socket::SocketError;
use crate::wire::Capabilities;

/// Destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One station, by its address on the medium.
    Unicast(MediaAddr),
    /// All stations, through the medium's broadcast or multicast address or, if the bearer has a list of remotes, by
    /// one copy to each remote.
    Broadcast,
}

/// A frame to be sent; its bytes are in the buffer passed to
/// [`Node::poll_transmit`](super::Node::poll_transmit).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The bearer to send on.
    pub bearer: BearerId,
    /// Destination on that bearer's medium.
    pub dest: Destination,
    /// The node at the other end of the link that sends the frame; `None` for discovery messages and broadcasts.
    pub peer: Option<NodeAddr>,
}

/// An event for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The address trial has ended: this is the node's address from now on.
    AddressSettled(NodeAddr),
    /// A node announces this node's address or that of a peer in contact, but is another node, or is found at another
    /// station than the peer. The announcement is ignored.
    DuplicateAddress {
        /// The address that is already in use.
        addr: NodeAddr,
        /// Identity of the announcing node.
        id: NodeId,
        /// Media address that the node announces.
        media: MediaAddr,
    },
    /// Frames are dropped for a reason that an operator may have to act upon. After this event,
    /// there is none for the same reason for [`REFUSAL_REPORT`](crate::limits::REFUSAL_REPORT);
    /// [`Node::drops`](super::Node::drops) counts all of them.
    FramesRefused {
        /// The bearer on which the frame arrived.
        bearer: BearerId,
        /// The station that sent the frame, as far as that is known.
        from: Option<MediaAddr>,
        /// The reason, one of [`DropReason::UnlistedSource`], [`DropReason::WrongSource`], [`DropReason::TooManyPeers`],
        /// [`DropReason::NeverAnswered`], and those of encryption: [`DropReason::Encrypted`], [`DropReason::Plain`],
        /// [`DropReason::NoKey`] and [`DropReason::NotGenuine`].
        reason: DropReason,
    },
    /// A node was found that lacks a required capability ([`REQUIRED`](super::REQUIRED)). There is
    /// no contact with it.
    TooOld {
        /// Address of the node.
        peer: NodeAddr,
        /// Capabilities that the node lacks.
        missing: Capabilities,
    },
    /// A link came up. [`Event::PeerUp`] follows if it is the first link to the peer.
    LinkUp {
        /// The node at the other end.
        peer: NodeAddr,
        /// Bearer at our end.
        bearer: BearerId,
    },
    /// A link went down. [`Event::PeerDown`] follows if it was the last link to the peer.
    LinkDown {
        /// The node at the other end.
        peer: NodeAddr,
        /// Bearer at our end.
        bearer: BearerId,
        /// Why the link went down.
        reason: LinkDownReason,
    },
    /// Contact with a node was established.
    PeerUp {
        /// Address of the node.
        peer: NodeAddr,
    },
    /// Contact with a node was lost, along with everything in flight from and to it.
    PeerDown {
        /// Address of the node.
        peer: NodeAddr,
    },
    /// A binding was added to the table.
    Published(Binding),
    /// A binding was removed from the table.
    Withdrawn(Binding),
    /// A socket of this node that is in the group can no longer reach one of the other members.
    GroupShrank {
        /// Service type of the group.
        group: u32,
    },
    /// The topology service has disconnected a subscriber, because its user has used up the share of subscriptions or of
    /// subscribers, or the node has no more ([`Limits::subscriptions_per_user`](crate::limits::Limits)).
    SubscriberRefused {
        /// The subscriber's socket.
        subscriber: SocketAddr,
    },
    /// A socket's readiness may have changed; see [`Node::readiness`](super::Node::readiness).
    SocketReady(Port),
    /// A connection request was accepted.
    Connected {
        /// The socket that made the request.
        port: Port,
        /// The socket that accepted the request.
        peer: SocketAddr,
    },
    /// A connection request failed.
    ConnectFailed {
        /// The socket that made the request.
        port: Port,
        /// Whether the request was refused or timed out.
        error: SocketError,
    },
}
