//! The machine in words.

/// What the page says of the machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// In one line.
    pub line: String,
    /// Name and value, row by row.
    pub rows: Vec<(String, String)>,
}
