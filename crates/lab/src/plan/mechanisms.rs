//! Selects mechanisms by id, pattern or tag.

use crossway_mech::{Boundaries, Reliability};

use super::PlanError;
use super::at::At;
use crate::catalogue::{self, Entry};
use crate::similar::similar;

type Tag = (&'static str, fn(&Entry) -> bool);

/// Tags that a plan may use instead of ids. All except `contenders` select Crossway's mechanisms only, so that a plan
/// does not depend on what is declared on a machine.
const TAGS: &[Tag] = &[
    ("all", |e| !e.is_contender()),
    ("contenders", |e| e.is_contender()),
    ("local", |e| !e.is_contender() && !e.caps().crosses_hosts),
    ("network", |e| !e.is_contender() && e.caps().crosses_hosts),
    ("stream", |e| !e.is_contender() && e.caps().boundaries == Boundaries::Stream),
    ("message", |e| !e.is_contender() && e.caps().boundaries == Boundaries::Message),
    ("lossy", |e| !e.is_contender() && e.caps().reliability == Reliability::Lossy),
    ("in-place", |e| !e.is_contender() && e.caps().in_place),
    ("reconnects", |e| !e.is_contender() && e.caps().reconnects),
    ("can-block", |e| !e.is_contender() && e.caps().can_block),
    ("can-spin", |e| !e.is_contender() && e.caps().can_spin),
];

/// The mechanisms selected by `words` (ids, patterns and tags), in the registry's order. A word that begins with `!`
/// excludes what the rest of the word selects.
pub(super) fn select(at: &At<'_>, words: &[String]) -> Result<Vec<&'static str>, PlanError> {
    let entries: Vec<Entry> = catalogue::all().collect();
    let mut chosen = vec![false; entries.len()];
    for word in words {
        let (add, name) = match word.strip_prefix('!') {
            Some(name) => (false, name),
            None => (true, word.as_str()),
        };
        let mut known = TAGS.iter().any(|(tag, _)| *tag == name);
        for (entry, chosen) in entries.iter().zip(&mut chosen) {
            if matches(entry, name) {
                *chosen = add;
                known = true;
            }
        }
        if !known {
            return Err(at.bad(unknown(name)));
        }
    }
    let ids: Vec<_> =
        entries.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(e, _)| e.id()).collect();
    if ids.is_empty() { Err(at.bad("no mechanism is selected")) } else { Ok(ids) }
}

/// Says that a word is no mechanism, with the word that may have been meant.
fn unknown(name: &str) -> String {
    let tags = || TAGS.iter().map(|(tag, _)| *tag);
    let ids: Vec<&str> = catalogue::all().map(|entry| entry.id()).collect();
    match similar(name, ids.into_iter().chain(tags())) {
        Some(meant) => {
            format!("unknown mechanism '{name}'; did you mean {meant}? `crossway list` names all")
        }
        None => format!(
            "unknown mechanism '{name}'; allowed: what `crossway list` names; a pattern with *; one of the tags {}; and \
             any of these with a leading ! to exclude it",
            tags().collect::<Vec<_>>().join(", ")
        ),
    }
}

fn matches(entry: &Entry, name: &str) -> bool {
    match TAGS.iter().find(|(tag, _)| *tag == name) {
        Some((_, holds)) => holds(entry),
        None => crate::pattern::matches_whole(name, entry.id()),
    }
}
