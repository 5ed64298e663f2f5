//! The octets of TIPC version 2, as Linux 6.1 sends and expects them.
//!
//! Two forms of every message. [`View`] looks at received octets through named accessors; it is total: any octets that pass
//! [`View::parse`] can be asked for anything without a panic. The value forms ([`Discovery`], [`LinkProtocol`], [`Message`]...)
//! hold only what is legal, so an illegal frame is refused once, at decoding, and an illegal frame cannot be encoded.
//!
//! [`Frame::decode`] and [`Frame::encode`] join the two; the golden tests hold them to the kernel's own frames bit for bit.

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
mod link_protocol;
mod monitor;
mod name;
mod tunnel;
mod user;

pub use bcast::BcastInit;
pub use bundle::{Bundle, BundleBuilder, BundleItems};
pub use conn::{ConnManager, ConnManagerKind};
pub use data::{DataKind, DataMessage, GroupCast};
pub use discovery::{Capabilities, Discovery, DiscoveryKind};
pub use fragment::{Fragment, FragmentKind};
pub use frame::{Frame, LinkFields, Message, refresh_link_fields, set_sequence};
pub use gap_ack::{GapAck, GapAckBlocks};
pub use group::{GroupProtocol, GroupProtocolKind};
pub use header::{HeaderWords, View, WireError};
pub use link_protocol::{InterfaceName, LinkProtocol, LinkProtocolKind, Reset, State};
pub use monitor::DomainRecord;
pub use name::{NameItem, NameItems, NameMessage, NameSeries};
pub use tunnel::{Tunnel, TunnelKind};
pub use user::{ErrorCode, User};

/// Length of the header of messages between connected sockets, in octets.
pub const SHORT_HEADER_LEN: usize = 24;
/// Length of the header of messages to a port, in octets.
pub const BASIC_HEADER_LEN: usize = 32;
/// Length of the header of messages to a service and of nearly all internal users, in octets.
pub const NAMED_HEADER_LEN: usize = 40;
/// Length of the header of multicast and group messages, in octets.
pub const MCAST_HEADER_LEN: usize = 44;
/// Length of the header of discovery messages, in octets.
pub const DISCOVERY_HEADER_LEN: usize = 60;
