//! Futexes on shared memory.
