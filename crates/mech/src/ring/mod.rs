//! Channels of two shared-memory rings; the ring itself is [`crossway_ring`].

pub mod asymmetry;
pub mod backing;
pub mod channel;
pub mod semaphores;
