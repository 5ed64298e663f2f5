//! Lets unmodified programs of one host exchange the bytes of their TCP connections over UNIX stream pairs. Preloaded before
//! the C library (LD_PRELOAD) by `crossway run`; docs/RUN.md says what is moved and what is not, docs/decisions/0120 why so.
//!
//! When a program connects to a program that runs with this library, too, both libraries agree on the connection
//! (`crossway_run`) before the programs see it, and put the ends of a UNIX stream pair in the place of the two descriptors
//! (`moving`). Each end remains an ordinary descriptor of the kernel: waiting, copying, forking and passing it on need no help.
//! The TCP connection stays open at a number that the program does not know, the *aside*, and answers what only it can: names,
//! options, states.
//!
//! With a CPU budget, calls that wait for a connection look at it for a moment before they sleep (`spin`).
//!
//! If anything is missing, the connection stays as it is. Nothing is ever written into the program's TCP connection.

mod ffi;
mod moving;
mod process;
mod replacing;
mod spin;
mod table;
mod via;
mod watch;
