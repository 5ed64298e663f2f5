//! The fault matrix: what the ends of a channel observe when something breaks.
//!
//! For each mechanism and contender, a real fault is injected into one of two processes. The other process, the
//! survivor, is observed: how and how soon it is notified of the fault, whether it hangs, which messages it received
//! that were never sent, which sent messages were lost, and what is left behind on the machine. Each attempt gives one
//! [`FaultRecord`]. Enea's study rates data integrity and monitoring by colours without describing its method (item E23
//! of that study); these records provide measurements instead.

mod act;
mod attempt;
mod bench;
mod cells;
mod estimate;
mod matrix;
mod message;
mod observation;
mod outside;
mod places;
mod record;
mod resources;
mod summary;
mod vandal;
mod worker;

pub use crate::control::{Act, ActResult, ReportedError};
pub(crate) use act::perform;
pub use matrix::{FaultEvent, MatrixError, Options, run};
pub use record::{
    Detection, FAULTS, Fault, FaultRecord, Leftover, LeftoverKind, Outcome, Remover, SCHEMA, Side,
    State, read_faults,
};
pub use summary::{FaultSummary, Summary, summaries};
pub use worker::work;
