//! The one suite that every mechanism passes.
