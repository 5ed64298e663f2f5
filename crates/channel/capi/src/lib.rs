//! Channels for C, `include/crossway_channel.h`. Each function here matches a prototype there; a test compares the two.
//!
//! A channel may be used by several threads at a time, one of which sends and one receives; it is closed after the last use.

pub mod ffi;
