//! What is said between a program and its node, and between nodes. All numbers are big-endian, on a host too: one way to write them.

pub(crate) mod fields;

pub(crate) mod link;
pub(crate) mod local;
