//! Choosing mechanisms by id, pattern or tag.

use crossway_mech::registry::{self, Entry};
use crossway_mech::{Boundaries, Reliability};

use super::PlanError;
use super::at::At;

type Tag = (&'static str, fn(&Entry) -> bool);

/// What a plan may say instead of ids.
const TAGS: &[Tag] = &[
    ("all", |_| true),
    ("local", |e| !(e.caps)().crosses_hosts),
    ("network", |e| (e.caps)().crosses_hosts),
    ("stream", |e| (e.caps)().boundaries == Boundaries::Stream),
    ("message", |e| (e.caps)().boundaries == Boundaries::Message),
    ("lossy", |e| (e.caps)().reliability == Reliability::Lossy),
    ("in-place", |e| (e.caps)().in_place),
    ("reconnects", |e| (e.caps)().reconnects),
    ("can-block", |e| (e.caps)().can_block),
    ("can-spin", |e| (e.caps)().can_spin),
];

/// The mechanisms that the words name, in the registry's order. `!word` takes away.
pub(super) fn select(at: &At<'_>, words: &[String]) -> Result<Vec<&'static str>, PlanError> {
    let mut chosen = vec![false; registry::ALL.len()];
    for word in words {
        let (add, name) = match word.strip_prefix('!') {
            Some(name) => (false, name),
            None => (true, word.as_str()),
        };
        let mut known = TAGS.iter().any(|(tag, _)| *tag == name);
        for (entry, chosen) in registry::ALL.iter().zip(&mut chosen) {
            if matches(entry, name) {
                *chosen = add;
                known = true;
            }
        }
        if !known {
            let tags: Vec<_> = TAGS.iter().map(|(tag, _)| *tag).collect();
            let ids: Vec<_> = registry::ALL.iter().map(|e| e.id).collect();
            return Err(at.bad(format!(
                "unknown mechanism '{name}'; allowed: {}; a pattern with *; {}; and each with ! before it",
                ids.join(", "),
                tags.join(", ")
            )));
        }
    }
    let ids: Vec<_> =
        registry::ALL.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(e, _)| e.id).collect();
    if ids.is_empty() { Err(at.bad("no mechanism is left")) } else { Ok(ids) }
}

fn matches(entry: &Entry, name: &str) -> bool {
    match TAGS.iter().find(|(tag, _)| *tag == name) {
        Some((_, holds)) => holds(entry),
        None => crate::pattern::matches_whole(name, entry.id),
    }
}
