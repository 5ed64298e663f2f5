//! Performance counters.
