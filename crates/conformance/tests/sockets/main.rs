//! The one suite for both back ends of the client library's socket: a `tipcd` here, and the AF_TIPC of a kernel in a
//! guest.
//!
//! Tests everything that a socket of a lone node can do, including errors. A test that distinguishes the back ends
//! explains why.

mod connections;
mod ends;
mod groups;
mod guest;
#[path = "../in_guest/mod.rs"]
mod in_guest;
mod lanes;
mod messages;
mod site;
mod topology;
