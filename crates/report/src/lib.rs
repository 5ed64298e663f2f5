//! Turns the records of a run into a self-contained HTML page, terminal tables and static charts.
//!
//! The output depends only on the run's directory: [`Run::read`] reads it; [`html`], [`terminal`] and [`svg`] render
//! it. [`summary`] groups the trials by case, [`ranking`] and [`verdict`] draw conclusions, [`charts`] prepares the
//! data to draw. Spinning and blocking mechanisms are never ranked against each other, and no sentence claims more than
//! the intervals allow.

pub mod advice;
pub mod answers;
pub mod blocks;
pub mod bundle;
pub mod charts;
pub mod contender;
pub mod flame;
pub mod histograms;
pub mod html;
pub mod json;
pub mod limits;
pub mod machine;
pub mod observed;
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
