//! The loops that are measured: what a role does with its channels in each workload, compiled once for each mechanism,
//! and the messages that it sends and checks.
//!
//! A crate of its own, because these loops are optimised for speed in the published program, and what plans, starts and
//! evaluates them is optimised for size (docs/decisions/0170-smaller-program.md). Therefore no function of this crate that
//! touches messages in a measured loop may be generic over anything that its callers choose: it would be compiled where it
//! is called. For the same reason, what runs loops for other crates is never inlined, as a function that is inlined is
//! optimised like its caller. Callers use [`Loops`].

mod arena;
pub mod calibrate;
mod ends;
mod error;
pub mod line_buffer;
mod outcome;
pub mod payload;
mod role;
mod role_context;
mod role_meter;
mod script;
mod task;
mod workload;

pub use error::LoopError;
pub use outcome::{Counters, LineSeen, Outcome, PaceSeen, Replayed, ServerUse};
pub use role::Loops;
pub use role_context::{Distribution, OPEN_TIMEOUT};
pub use role_meter::open_counters;
pub use script::{Exchange, RoleScript, Script, Step, When};
pub use task::{Part, Task, Window};
