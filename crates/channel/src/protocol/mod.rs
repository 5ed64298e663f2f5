//! How two ends leave one transport for another without losing, doubling or reordering a message: a state machine without I/O.
//!
//! Each period during which the channel uses one transport is an *epoch*. The end that accepted the connection leads: it alone offers the
//! next epoch, so that two switches never cross; the other end can only ask for one.
//!
//! ```text
//!   leader                                   follower
//!   makes the transport, Offer(e)  ------->  opens it; from now on it can receive on it
//!   can receive on it, Go(e)       <-------  Ready(e)         (or Refuse(e): everything stays as it was)
//!   marker(e), then only new       ------->  Go(e): marker(e), then only new
//! ```
//!
//! The *marker* travels on the old transport, in order with the messages, and is the last thing on it. That is the quiescence of the old
//! transport, its draining and the switch in one: a receiver that has read the marker has read everything before it, and whatever
//! follows is on the new transport. A sender does not wait for anybody, so there is no pause; a receiver never looks at two transports. The
//! marker states how many messages went before it, which the receiver compares with its own count.
//!
//! When a receiver has followed the marker it says `Moved(e)`. An end is settled when its sender and its receiver have moved and the
//! peer has said `Moved`: then nothing is on the old transport in either direction, and it is dropped. A leader makes the next offer only when
//! it is settled.
//!
//! When a peer dies, nothing is negotiated any more: its receiver reads what is left, up to the marker if that was sent, behind it too, and so
//! delivers a prefix of what was sent, in order. The transports are anonymous (memory and sockets without a name) and go with the processes.
//!
//! A driver feeds a [`Switch`] with what happened and carries out each [`Action`] in order.

mod marker;
mod switch;

pub use marker::{Internal, MARKER_LEN, Marks};
pub use switch::{Action, Busy, Role, Signal, Switch, Violation};
