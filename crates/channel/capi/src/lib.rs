//! Channels for C, `include/crossway_channel.h`. Each function here is its prototype there; a test holds the two together.
//!
//! A channel may be used by several threads at a time, one of which sends and one receives; who closes it must be the last.

pub mod ffi;
