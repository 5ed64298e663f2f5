//! How two ends change from one transport to another without losing, duplicating or reordering a message: a state
//! machine without I/O.
//!
//! Each period during which the channel uses one transport is an *epoch*. The end that accepted the connection leads:
//! it alone offers the next epoch, so two switches can never collide. The other end can only ask for a switch.
//!
//! ```text
//!   leader                                   follower
//!   makes the transport, Offer(e)  ------->  opens it; from now on it can receive on it
//!   can receive on it, Go(e)       <-------  Ready(e)         (or Refuse(e): everything stays as it was)
//!   marker(e), then only new       ------->  Go(e): marker(e), then only new
//! ```
//!
//! The *marker* travels on the old transport, in order with the messages, and is the last item on it. It serves to
//! quiesce and drain the old transport and to switch: a receiver that has read the marker has read everything before
//! it, and all later messages are on the new transport. A sender never waits for the other end, so there is no pause,
//! and a receiver never reads from two transports. The marker states how many messages were sent before it; the
//! receiver compares that with its own count.
//!
//! A receiver that has followed the marker sends `Moved(e)`. An end is settled when its sender and its receiver have
//! moved and the peer has sent `Moved(e)`: then nothing is left on the old transport in either direction, and it is
//! dropped. A leader makes the next offer only when it is settled.
//!
//! When the peer dies, nothing is negotiated any more. The surviving receiver reads what is left, up to the marker,
//! and, if the marker was sent, also from the new transport. So it delivers a prefix of what was sent, in order. The
//! transports are anonymous (memory and sockets without a name), so they disappear with the processes.
//!
//! A driver reports events to a [`Switch`] and carries out each [`Action`] in order.

mod marker;
mod switch;

pub use marker::{Internal, MARKER_LEN, Marks};
pub use switch::{Action, Busy, Role, Signal, Switch, Violation};
