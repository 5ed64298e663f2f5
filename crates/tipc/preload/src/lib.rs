//! Enables unmodified programs to use AF_TIPC on kernels without it: preloaded before the C library (LD_PRELOAD), it
//! implements the calls on TIPC sockets and forwards all others. docs/decisions/0041 gives the reasons,
//! docs/TIPC-CONFORMANCE.md lists the intercepted calls.
//!
//! A TIPC socket is one end of a socket pair whose other end belongs to `tipcd` (docs/decisions/0040), so calls that
//! only wait for descriptors, copy them or pass them on work unchanged. All other state of a socket is in memory that
//! `tipcd` and all processes with this socket share. A process itself records only which of its descriptors are TIPC
//! sockets (`table`).
//!
//! A call on any other descriptor costs one additional load. Memory is allocated only for a process's connection to
//! `tipcd` and for new sockets, and locks are held only with signals blocked. Signal handlers may therefore send,
//! receive and accept.

mod accept;
mod adopt;
mod connect;
mod control;
mod ffi;
mod option;
mod process;
mod reach;
mod receive;
mod request;
mod send;
mod socket;
mod table;
mod traffic;
