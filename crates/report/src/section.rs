//! A section of the page: paragraphs, tables and collapsible text.

use serde::Serialize;

use crate::sheet::Sheet;

/// Text that is collapsed until the reader opens it.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// The heading; a click on it opens the text.
    pub title: String,
    /// The preformatted text.
    pub text: String,
}

/// A section of the page that contains no charts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// The section's anchor on the page.
    pub id: &'static str,
    /// The heading of the section.
    pub title: &'static str,
    /// Paragraphs above the tables.
    pub paragraphs: Vec<String>,
    /// Tables, in order.
    pub tables: Vec<Sheet>,
    /// Collapsible text below the tables.
    pub blocks: Vec<Block>,
}
