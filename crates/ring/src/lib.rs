//! The shared-memory rings: single producer, single consumer, lock-free, messages of any length.
//!
//! # Protocol
//!
//! A ring is `capacity` bytes of shared memory and a few control words. Positions count bytes since the ring was
//! created and never wrap; a position's offset is the position modulo `capacity`. Each message is a record: one 64-bit
//! header word, then the payload. The ring is mapped twice in a row, so that a record which crosses its end is still
//! contiguous and can be written and read in place; no space is lost to padding.
//!
//! There is no shared tail. **The header is the publication**: the consumer watches the header word at its own
//! position, and the producer stores it last, with release order. Before that the producer has zeroed the word where
//! the next header will be, so that the consumer never mistakes old payload for a header. Thus a message of 64 bytes
//! moves only two cache lines from core to core. The header carries the low bits of the record's sequence number, so
//! that corruption is detected.
//!
//! The consumer publishes its head after each message, with a store to a line that the producer reads only when it has
//! used up the free space it knows of.
//!
//! # Sleeping
//!
//! Each end has a state word: awake, asleep, closed. An end that finds nothing to do sets `ASLEEP`, executes a full
//! fence, checks again, and sleeps until the other end resets the word. The other end checks the word after each
//! publication and wakes only a sleeper, once: one system call per sleep, however many messages follow. A fence is also
//! needed between its store and its check (Dekker's pattern); with `membarrier` the sleeper's fence serves both sides,
//! so that the side that has work pays nothing ([`bell`]). Between processes it sometimes leaves out a CPU
//! ([`Reach::Registered`](crossway_sys::fence::Reach::Registered)), so the first sleep is short and the sleeper looks
//! again.
//!
//! # What a faulty or hostile peer can do
//!
//! The memory is shared with a process that may crash at any instruction or be hostile. Each control word and header is
//! loaded once, through an atomic, and checked before use: a length or a position never leads outside the ring. A
//! violation results in [`RecvError::Damaged`], permanently. The memory is a sealed memfd, so it cannot be truncated
//! while mapped.
//!
//! The payload is different: the receiver reads it through a plain `&[u8]` (in place) or copies it out with `memcpy`. A
//! correct peer does not touch a published record until the head has passed it, so with correct peers there is no data
//! race, which the loom model checks. A hostile peer can write to the record while we read. Rust's model calls such a
//! race undefined behaviour, as it does for every file mapped with `MAP_SHARED`, and no payload access at memory speed
//! avoids it. What is promised is the behaviour of the machine code: the bytes may change between two reads, nothing
//! else. Code that makes decisions on untrusted content therefore uses a receiving call that copies once, and inspects
//! the copy.

//! # Several consumers
//!
//! [`shared_rx`] is a receiving end for several threads and processes, which take turns ([`process_lock`]);
//! [`doorbell`] lets them wait for it through a socket that they already have.
//!
//! # Two producers
//!
//! [`handover`] lets a second producer publish messages that the first one could not, such as those of a forked child.

#![allow(unsafe_code)]

mod awaited;
pub mod bell;
pub mod biased;
pub mod consumer;
pub mod contract;
pub mod doorbell;
mod gather;
pub mod handover;
#[cfg(not(loom))]
pub mod heap;
pub mod layout;
pub mod memory;
pub mod pace;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod process_lock;
pub mod producer;
#[cfg(not(loom))]
pub mod receiver;
#[cfg(not(loom))]
pub mod region;
pub mod shared_rx;
pub mod sync;

pub use bell::Bell;
pub use consumer::RingRx;
pub use contract::{Deadline, RecvError, SendError, Wait};
pub use memory::RingMemory;
pub use producer::RingTx;
pub use shared_rx::SharedRx;

/// Runs the example of the crate's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
