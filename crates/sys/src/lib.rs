//! Safe wrappers of operating-system calls. Does not depend on the rest of Crossway.
//!
//! All OS calls are made here, and all `unsafe` code is here except that of the rings, of the C interfaces and of the
//! preload library. A failing call returns an [`OsError`] that names the call, the object and the errno; calls on
//! measured paths return the bare errno.
#![allow(unsafe_code)]

pub mod addresses;
pub mod affinity;
pub mod binder;
mod blocking;
pub mod boot;
pub mod cache;
pub mod clock;
pub mod cma;
pub mod confinement;
pub mod datagrams;
pub mod epoll;
pub mod error;
pub mod eventfd;
pub mod fallback;
pub mod family;
pub mod fd_sets;
pub mod fdpass;
pub mod file_caps;
pub mod fork_mark;
pub mod futex;
pub mod heap;
pub mod interrupt;
pub mod kcmp;
pub mod kept;
pub mod kernel;
pub mod lease;
pub mod lifeline;
pub mod link_watch;
pub mod mqueue;
pub mod multicast;
pub mod named_semaphore;
pub mod netns;
pub mod obstacle;
pub mod packet;
pub mod packet_ring;
pub mod packet_send_ring;
pub mod pages;
pub mod patience;
pub mod peer_watch;
pub mod perf;
pub mod pipe;
pub mod poll;
pub mod port;
pub mod proc;
pub mod processes;
pub mod procfs;
pub mod program;
pub mod protocol_counters;
pub mod pty;
pub mod random;
pub mod real;
pub mod record_lock;
pub mod records;
pub mod seccomp;
pub mod shm;
pub mod shm_kinds;
pub mod signal_queue;
pub mod sock_diag;
pub mod socket;
pub mod spin;
pub mod start;
pub mod supervision;
pub mod sysv;
pub mod sysv_queue;
pub mod text_file;
pub mod timerfd;
pub mod tipc;
pub mod tipc_option;
pub mod tipc_raw;
pub mod topology;
pub mod trust;
pub mod uring;
pub mod usage;
pub mod vmsplice;
pub mod vsock;
pub mod words;
pub mod xstate;
pub mod yardstick;
pub mod zerocopy;

pub use error::{Errno, OsError};
pub use obstacle::Obstacle;
