//! What was measured, and what follows from it.
//!
//! A [`record`] is the result of one trial. Everything that is said about records is decided here,
//! once: which trials belong together and which of them count ([`cases`]), what their figures are
//! ([`figure`], [`stats`]), which case is better ([`rank`], [`compare`]), which goals are met
//! ([`goals`]), and what bounds a figure ([`limits`]). The laboratory writes records; the report
//! shows and the advice chooses by what this crate says.

pub mod awake;
pub mod cases;
pub mod compare;
pub mod export;
pub mod family;
pub mod figure;
pub mod fit;
pub mod goals;
pub mod histogram;
pub mod inputs;
pub mod limits;
pub mod percentile;
pub mod rank;
pub mod record;
pub mod records_io;
pub mod regimes;
pub mod run_info;
pub mod runs;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod shell;
pub mod side_records;
pub mod sorting;
pub mod stats;
pub mod steps;
pub mod testbed;
pub mod ties;
