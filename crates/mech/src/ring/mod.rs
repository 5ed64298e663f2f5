//! The shared-memory rings: single producer, single consumer, lock-free.
