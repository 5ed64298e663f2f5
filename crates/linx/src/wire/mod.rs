//! The protocols between a program and its node, and between nodes. All numbers are big-endian, even on one host, so
//! that there is only one encoding.

pub(crate) mod body;
pub(crate) mod fields;

pub(crate) mod link;
pub(crate) mod local;
