//! The one suite that both back ends of the client library's socket pass: a `tipcd` here, and the AF_TIPC of a kernel in a guest.
//!
//! Everything that a socket of a lone node can do, errors included. Where a test knows which back end it runs on, it says why.

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
