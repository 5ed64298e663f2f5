//! Figures of a record are never negative: a line with a negative figure is damaged, and is not read.

use serde::de::{Deserialize, Deserializer, Error, Unexpected};

/// Reads a figure.
pub fn one<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(f64::deserialize(from)?)
}

/// Reads a figure that may be null.
pub(super) fn or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(from)?.map(checked).transpose()
}

/// Reads a list of figures.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    Vec::<f64>::deserialize(from)?.into_iter().map(checked).collect()
}

fn checked<E: Error>(figure: f64) -> Result<f64, E> {
    if figure.is_finite() && figure >= 0.0 {
        return Ok(figure);
    }
    Err(E::invalid_value(Unexpected::Float(figure), &"a figure of at least 0"))
}
