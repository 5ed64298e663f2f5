//! The TIPC protocol as a sans-I/O state machine.
//!
//! Nothing in this crate opens a socket, starts a thread, reads a clock or has a random source of its own: frames, commands and the time
//! go in through `handle_*`; frames, events and the next deadline come out through `poll_*`. Two runs with the same seed and the same
//! input behave identically, which is what makes the simulation in `crossway-tipc-sim` useful.
//!
//! The layers, from the bottom: [`wire`] encodes and decodes messages; [`link`] is one link to one peer; [`name_table`] holds the
//! bindings; [`socket`] is what an application uses; [`node`] combines them, discovers neighbours and is the type that a caller drives.
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
