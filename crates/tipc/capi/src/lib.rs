//! TIPC sockets for C, `include/crossway_tipc.h`. Each function here is its prototype there; a test holds the two together.
//!
//! Every call returns 0 or a count, or a negative errno; `ctipc_error` says in words why the last `ctipc_open` of the thread failed.
//! A socket may be used by several threads at a time; who closes it must be the last.

pub mod ffi;
mod layout;
