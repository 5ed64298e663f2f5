//! The TIPC protocol as a sans-I/O state machine.
//!
//! Nothing in this crate opens a socket, starts a thread, reads a clock or has a random source of its own. The caller
//! passes frames, commands and the time to `handle_*` functions and gets frames, events and the next deadline from
//! `poll_*` functions. Two runs with the same seed and the same input behave identically, so `crossway-tipc-sim` can
//! reproduce every run that fails.
//!
//! The layers, from the bottom: [`wire`] encodes and decodes messages; [`link`] is one link to one peer; [`name_table`]
//! holds the bindings; [`socket`] is what an application uses; [`crypto`] encrypts frames; [`node`] combines all of them, discovers neighbours, and
//! defines the type that a caller drives.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
mod backlog;
mod bcast;
pub mod crypto;
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

/// Runs the example of the crate's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
