//! The C interface to channels, `include/crossway_channel.h`. Each function here matches a prototype there; a test
//! compares the two.
//!
//! Several threads may use a channel at the same time; a thread that sends does not wait for a thread that receives. A
//! channel must not be closed while a thread still uses it.

mod failure;
pub mod ffi;
