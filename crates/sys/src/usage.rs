//! CPU time, context switches and page faults of a thread or process.
