//! Lets unmodified programs use AF_TIPC where the kernel has none: loaded before the C library (LD_PRELOAD), it answers the calls that
//! concern TIPC sockets and hands all others on. docs/decisions/0041 gives the reasons, docs/TIPC.md what is caught.
//!
//! A TIPC socket here is the program's end of a pair whose other end is `tipcd`'s (docs/decisions/0040), so whatever only waits for
//! descriptors, copies them or gives them away works by itself. What a socket is beyond that lies in words that it shares with `tipcd`
//! and with every process that has it: a process keeps no more than which descriptor is which (`table`).
//!
//! A call on any other descriptor costs one load. Nothing here allocates memory between the first socket and the last but a
//! process's connection to `tipcd` and a new socket; locks are held with signals blocked. So a handler may send, receive and accept.

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
