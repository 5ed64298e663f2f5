//! io_uring: safe submission and completion for the few operations that the mechanisms use.
