//! TIPC sockets for C, `include/crossway_tipc.h`. Each function here has its prototype there; a test keeps the two consistent.
//!
//! Every call returns 0 or a count, or a negative errno; `ctipc_error` describes why the last `ctipc_open` of the thread failed.
//! Several threads may use a socket at the same time; it must be closed only when no other thread uses it.

pub mod ffi;
mod layout;
