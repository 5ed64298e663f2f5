//! The wire format of TIPC version 2, as sent and expected by Linux 6.1.
//!
//! Every message has two representations: bytes and values. [`View`] reads received bytes through named accessors, none
//! of which can panic after [`View::parse`] has accepted the input. [`Packet`] owns its bytes. Queues contain packets,
//! so each message is checked only when it arrives. The value types ([`Discovery`], [`LinkProtocol`], [`Message`] and
//! others) can represent only legal values, so an illegal frame is refused when it is decoded, and cannot be encoded.
//!
//! [`Frame::decode`] and [`Frame::encode`] convert between the two. The golden tests compare their results with frames
//! captured from kernels, bit by bit.

mod bcast;
mod bundle;
mod conn;
mod data;
mod discovery;
mod fragment;
mod frame;
mod gap_ack;
mod group;
mod header;
mod key;
mod link_protocol;
mod monitor;
mod name;
mod packet;
mod tunnel;
mod user;

pub use bcast::BcastInit;
pub use bundle::{Bundle, BundleBuilder, BundleItems};
pub use conn::{ConnManager, ConnManagerKind};
pub use data::{DataKind, DataMessage, GroupCast};
pub use discovery::{Capabilities, Discovery, DiscoveryKind};
pub use fragment::{Fragment, FragmentKind};
pub(crate) use frame::refresh_link_fields;
pub use frame::{Frame, LinkFields, Message};
pub use gap_ack::{GapAck, GapAckBlocks};
pub use group::{GroupProtocol, GroupProtocolKind};
pub use header::{HeaderWords, View, WireError};
pub use key::KeyMessage;
pub use link_protocol::{InterfaceName, LinkProtocol, LinkProtocolKind, Reset, State};
pub use monitor::DomainRecord;
pub use name::{NameItem, NameItems, NameMessage, NameSeries};
pub(crate) use packet::Inbound;
pub use packet::Packet;
pub use tunnel::{Tunnel, TunnelKind};
pub use user::{ErrorCode, User};

/// Header length of messages between connected sockets, in bytes.
pub const SHORT_HEADER_LEN: usize = 24;
/// Header length of messages to a port, in bytes.
pub const BASIC_HEADER_LEN: usize = 32;
/// Header length of messages to a service, and of nearly all messages of the protocol itself, in bytes.
pub const NAMED_HEADER_LEN: usize = 40;
/// Header length of multicast and group messages, in bytes.
pub const MCAST_HEADER_LEN: usize = 44;
/// Header length of discovery messages, in bytes.
pub const DISCOVERY_HEADER_LEN: usize = 60;
