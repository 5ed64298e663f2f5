//! A section of the page: words, tables, folded text.

use serde::Serialize;

use crate::sheet::Sheet;

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
