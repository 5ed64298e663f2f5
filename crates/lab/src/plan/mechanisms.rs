//! Selects mechanisms by id, pattern or tag.

use crossway_mech::{Boundaries, Reliability};

use super::PlanError;
use super::at::At;
use crate::catalogue::{self, Entry};

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
            let tags: Vec<_> = TAGS.iter().map(|(tag, _)| *tag).collect();
            let ids: Vec<_> = entries.iter().map(Entry::id).collect();
            return Err(at.bad(format!(
                "unknown mechanism '{name}'; allowed: {}; a pattern with *; one of the tags {}; and any of these with \
                 a leading ! to exclude it",
                ids.join(", "),
                tags.join(", ")
            )));
        }
    }
    let ids: Vec<_> =
        entries.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(e, _)| e.id()).collect();
    if ids.is_empty() { Err(at.bad("no mechanism is selected")) } else { Ok(ids) }
}

fn matches(entry: &Entry, name: &str) -> bool {
    match TAGS.iter().find(|(tag, _)| *tag == name) {
        Some((_, holds)) => holds(entry),
        None => crate::pattern::matches_whole(name, entry.id()),
    }
}
