//! TIPC as a state machine that its caller feeds and drains.
//!
//! Nothing in this crate opens a socket, starts a thread, reads a clock or draws a random number of its own: frames, commands
//! and the time go in through `handle_*`, frames, events and the next deadline come out through `poll_*`. Two runs with the
//! same seed and the same input do the same thing, which is what makes the simulation in `crossway-tipc-sim` worth having.
//!
//! The layers, from the bottom: [`wire`] knows the octets and nothing else.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod limits;
pub mod seq;
pub mod wire;
