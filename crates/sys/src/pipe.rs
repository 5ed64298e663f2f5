//! Pipes: size, vmsplice, non-blocking reads.
