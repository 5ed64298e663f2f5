//! The local protocol between a program and its `tipcd`, version [`VERSION`]. See docs/decisions/0040 for the reasons.
//!
//! - A program has one **control connection** ([`control`]), AF_UNIX SEQPACKET, for requests and answers. It carries
//!   one request at a time: no further request is read before the program has received the answer to the last one. A
//!   program that is refused receives the reason ([`refusal`]).
//! - Each TIPC socket is a **data descriptor**: one end of an AF_UNIX socket pair, of which `tipcd` has the other end.
//!   The pair is of type SEQPACKET for sockets that preserve message boundaries (in the format of [`record`]), and
//!   STREAM for stream sockets, which carry the bytes unchanged.
//! - A few **shared words** ([`slot`], [`epoch`]), atomic 64-bit integers in shared memory, replace requests. They show
//!   the state of a socket's connection, how much the program has taken from its descriptor, and whether a destination
//!   that was reachable may have become unreachable.
//! - A busy socket can have **lanes** ([`lane`]) if its program requests them: rings in shared memory in addition to
//!   its descriptor, which avoid a system call per message. See docs/decisions/0042 for the reasons.
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
pub mod traffic;

/// Protocol version. A program and a `tipcd` of different versions refuse each other with an explicit error.
pub const VERSION: u16 = 6;

/// Maximum length of a message's payload, in bytes.
pub const MESSAGE_LEN_MAX: usize = 66_000;
