//! What carries the messages of a record's mechanism, and the family in which it is shown.

use crossway_mech::{Carrier, registry};

pub use crossway_mech::Family;

use crate::record::Record;

/// What carries the messages of the mechanism with this id; `None` for contenders, and for ids that occur only in
/// records of another version.
pub fn carrier(id: &str) -> Option<Carrier> {
    registry::find(id).map(|entry| entry.carrier)
}

/// The family of a record's mechanism: the one in its declaration if it is an external program. [`Family::Other`] if this
/// version of Crossway does not have the mechanism.
pub fn family_of(record: &Record) -> Family {
    let family = match &record.contender {
        Some(declared) => Family::of_contender(&declared.family),
        None => carrier(&record.mechanism).map(|carrier| carrier.family),
    };
    family.unwrap_or(Family::Other)
}
