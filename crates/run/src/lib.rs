//! How two programs that run by `crossway run` put a UNIX stream pair in the place of a new TCP connection between them. The
//! library that is loaded into programs (`crates/preload`) and the supervisor of programs into which nothing can be loaded
//! (`crossway run`) both act for one end ([`ends`]), and find the other end by a table that all of a user's programs share
//! ([`rendezvous`]).

pub mod ends;
pub mod explain;
pub mod name;
pub mod porter;
pub mod reason;
pub mod rendezvous;
pub mod supervisor;
pub mod via;
pub mod wishes;
