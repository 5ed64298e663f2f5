//! The page's sections of words and tables: fits, machine, what was asked, what did not run, method.

mod asked;
mod fits;
mod method;
mod troubles;

use serde::Serialize;

use crate::limits;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::steps::{self, Shapes};

pub use troubles::status_name;

/// Text that is folded away.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// Its heading.
    pub title: String,
    /// The text.
    pub text: String,
}

/// A section.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Anchor on the page.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Words.
    pub paragraphs: Vec<String>,
    /// Tables.
    pub tables: Vec<Sheet>,
    /// Folded text.
    pub blocks: Vec<Block>,
}

/// All for which there is something to say, in the order of the page.
pub fn all(run: &Run, shapes: &Shapes) -> Vec<Section> {
    [
        steps::section(run, shapes),
        limits::section(run),
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
