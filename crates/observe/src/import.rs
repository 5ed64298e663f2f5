//! Makes recordings from what people already have: logs of strace.

mod assembly;
mod strace;
mod strace_line;

pub use assembly::Assembly;
pub use strace::{BLIND_TO, TRACED_CALLS, read_strace};
