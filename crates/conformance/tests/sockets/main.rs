//! Tests the client library's sockets on both of their back ends: a `tipcd` here, and a kernel's AF_TIPC in a guest.
//!
//! The tests cover everything that a socket of a lone node can do, including errors. A test that distinguishes the back
//! ends explains why.

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
