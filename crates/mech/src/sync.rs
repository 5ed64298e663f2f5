//! Atomics, real or loom's.
