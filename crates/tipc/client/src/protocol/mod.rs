//! The local protocol between a program and its `tipcd`, version [`VERSION`]. docs/decisions/0040 gives the reasons.
//!
//! - A program has one **control connection** ([`control`]), AF_UNIX SEQPACKET, on which it asks and is answered, one request at a time: while an answer
//!   was not received, no further request is read. Who is not let in is told why ([`refusal`]).
//! - Each TIPC socket is a **data descriptor**: one end of an AF_UNIX pair whose other end is `tipcd`'s. SEQPACKET for sockets that
//!   keep boundaries ([`record`] says what a message looks like on it), STREAM for stream sockets, whose octets pass as they are.
//! - A few **shared words** ([`slot`], [`epoch`]) tell what would otherwise cost a request: the state of a socket's connection, how much
//!   the program has taken out of its descriptor, and whether a destination that was reachable may no longer be.
//! - A busy socket of a program that asks for it has **lanes** ([`lane`]): rings in shared memory beside its descriptor, which spare the system
//!   call for each message. docs/decisions/0042 gives the reasons.
//!
//! All integers are in the host's byte order: both ends are on one host.

mod answers;
pub mod control;
pub mod epoch;
mod fields;
pub mod lane;
pub mod record;
pub mod refusal;
pub mod slot;

/// The version of everything here. A program and a `tipcd` of different versions refuse each other by name.
pub const VERSION: u16 = 3;

/// Largest payload of one message, in octets.
pub const MESSAGE_LEN_MAX: usize = 66_000;
