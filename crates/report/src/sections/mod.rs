//! The page's sections of text and tables, such as goals, faults, limits, the machine and the method.

mod asked;
mod containers;
mod faults;
mod fits;
pub mod goals;
mod limits;
mod method;
pub(crate) mod mpi;
mod troubles;

use crate::run::Run;
use crate::section::Section;
use crate::steps::{self, Shapes};
use crate::studies;

pub(crate) use faults::lines as fault_lines;

/// Returns all sections that have content for this run, in the order of the page.
pub fn all(run: &Run, shapes: &Shapes) -> Vec<Section> {
    [
        goals::section(run),
        steps::section(run, shapes),
        studies::enea::section(run, shapes),
        containers::containers(run),
        mpi::section(run),
        faults::faults(run),
        limits::limits(run),
        fits::fits(run),
        troubles::troubles(run),
        asked::asked(run),
        run.machine.section(),
        Some(method::method(run)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
