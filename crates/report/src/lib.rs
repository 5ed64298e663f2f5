//! Records to one self-contained HTML page, terminal tables and static charts.
//!
//! Everything here is a pure function of a run's directory: [`Run::read`] takes it in, [`html`], [`terminal`] and [`svg`]
//! give it out. [`summary`] puts the trials of a case together, [`ranking`] and [`verdict`] conclude, [`charts`] says what is
//! drawn. Spinning and blocking mechanisms never share a ranking, and no sentence claims more than the intervals allow.

pub mod advice;
pub mod answers;
pub mod blocks;
pub mod charts;
pub mod contender;
pub mod estimate;
pub mod flame;
pub mod histograms;
pub mod html;
pub mod json;
pub mod limits;
pub mod machine;
pub mod profile;
pub mod ranking;
pub mod raw;
pub mod run;
pub mod section;
pub mod sections;
pub mod sheet;
pub mod steps;
pub mod studies;
pub mod summary;
pub mod svg;
pub mod terminal;
pub mod units;
pub mod verdict;
pub mod wire;

pub use run::{Run, RunError};
