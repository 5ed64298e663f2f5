//! TIPC as a state machine that its caller feeds and drains.
//!
//! Nothing in this crate opens a socket, starts a thread, reads a clock or draws a random number of its own: frames, commands
//! and the time go in through `handle_*`, frames, events and the next deadline come out through `poll_*`. Two runs with the
//! same seed and the same input do the same thing, which is what makes the simulation in `crossway-tipc-sim` worth having.
//!
//! The layers, from the bottom: [`wire`] knows the octets and nothing else; [`link`] holds one link to one peer; [`name_table`] knows who
//! is bound to what; [`socket`] is what an application holds; [`node`] joins them, finds neighbours and is what a caller drives.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
mod backlog;
mod bcast;
pub mod drops;
pub mod limits;
pub mod link;
mod monitor;
pub mod name_table;
pub mod node;
mod range_map;
mod reassembly;
mod receive_queue;
mod rng;
mod send_queue;
pub mod seq;
pub mod socket;
pub mod time;
mod window;
pub mod wire;
