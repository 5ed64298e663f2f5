//! Measurements of communication mechanisms: plan, case, trial, record.
//!
//! A [`plan`] is a TOML file that defines cases as cross products of inputs. Each case is run in several trials,
//! interleaved with those of competing cases, and each trial becomes one record. Comparisons, rankings, exports and
//! the report are pure functions of records.

pub mod agent;
pub mod aside;
mod assemble;
pub mod case;
pub mod catalogue;
pub mod channel_profile;
pub mod contender;
pub mod control;
pub mod doctor;
pub mod env;
pub mod estimate;
pub mod examination;
mod exit_report;
pub mod faults;
pub mod launcher;
pub mod limits;
mod live_testbed;
pub mod load;
pub mod meters;
pub mod moves;
pub mod mpi;
mod node_pair;
pub mod other_work;
pub mod pattern;
pub mod placement;
pub mod plan;
pub mod preflight;
pub mod profile;
pub mod registers;
pub mod replay;
pub mod role;
mod role_layout;
pub mod run;
pub mod shutdown;
pub mod similar;
pub mod tools;
mod trial;
mod verify;

pub use crossway_loops::{calibrate, payload};

/// Types of `crossway-channel` that occur in the records of moves.
pub mod channel {
    pub use crossway_channel::Transport;
    pub use crossway_channel::check::{Checked, Leg, Move};
}
