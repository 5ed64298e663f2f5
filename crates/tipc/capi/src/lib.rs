//! TIPC sockets for C programs. `include/crossway_tipc.h` contains the prototype of each function; a test keeps the two
//! consistent.
//!
//! Every call that can fail returns 0, a number of bytes or a descriptor, or else a negative errno; `ctipc_error` says
//! why the last `ctipc_open` of the thread failed. Several threads may use a socket at the same time. A socket must be
//! closed only when no thread uses it any more.

pub mod ffi;
mod layout;
