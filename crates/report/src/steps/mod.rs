//! Steps, staircases and knees in a run's series: they are found in the trials, compared with what facts about the
//! channel and the machine predict, drawn into the charts and listed.

mod facts;
mod find;
mod series;
mod show;

pub use find::{Found, Shape, Shapes};
pub use series::{Over, Series, gather};
pub use show::{lines, mark, section, sheet};
