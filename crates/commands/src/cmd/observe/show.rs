//! A map as text: a table of channels, where processes listen, and what follows.

use std::collections::BTreeMap;
use std::fmt::Write;

use crossway_observe::map::{Channel, Map, Party};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::{Quantity, size};

use super::Document;
use crate::table::{Align, Grid};
use crate::ui::Ui;
use crossway_records::sorting::SortSmall;

/// Number of parties at an end that are named; more are counted.
const NAMED: usize = 3;

/// Channels of the same kind between the same parties.
#[derive(Default)]
struct Group<'a> {
    channels: Vec<&'a Channel>,
}

/// Renders the map.
pub(super) fn text(ui: &Ui, document: &Document<'_>) -> String {
    let map = document.map;
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for channel in &map.channels {
        let key = (&channel.from, &channel.to, channel.carrier, channel.one_way, name(channel));
        groups.entry(key).or_default().channels.push(channel);
    }
    let watched = document.rates.is_some();
    let (forward, backward) =
        if watched { ("→ /s", "← /s") } else { ("→ bytes", "← bytes") };
    let mut grid = Grid::new([
        ("from", Align::Left),
        ("", Align::Left),
        ("to", Align::Left),
        ("by", Align::Left),
        ("number", Align::Right),
        (forward, Align::Right),
        (backward, Align::Right),
        ("queued", Align::Right),
    ]);
    for ((from, to, carrier, one_way, name), group) in &groups {
        let by = if name.is_empty() {
            carrier.name().to_owned()
        } else {
            format!("{} {name}", carrier.name())
        };
        let (forward, backward) = group.flow(document);
        grid.row([
            parties(map, from),
            (if *one_way { "→" } else { "↔" }).to_owned(),
            parties(map, to),
            by,
            group.channels.len().to_string(),
            forward,
            backward,
            group.queued(),
        ]);
    }
    let mut out = String::new();
    let count =
        |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let _ = writeln!(
        out,
        "{} observed, {}\n",
        count(map.observed.len(), "process", "processes"),
        count(map.channels.len(), "channel", "channels")
    );
    if !grid.is_empty() {
        let (fitted, left_out) = grid.fitted(ui, &["queued", "number", backward, forward]);
        let _ = writeln!(out, "{}", fitted.text(ui));
        if let Some(sentence) = left_out.sentence() {
            let _ = writeln!(out, "{}", wrap_indented(&sentence, ui.width, 0, 2));
        }
    }
    let mut line = |head: &str, text: &str| {
        let _ =
            writeln!(out, "{head} {}", wrap_indented(text, ui.width, head.chars().count() + 1, 2));
    };
    for listener in &map.listeners {
        let who: Vec<String> = listener.pids.iter().map(|pid| map.label(*pid)).collect();
        let who = shortened(who);
        line("waits:", &format!("{who} at {} {}", listener.carrier, listener.address));
    }
    if let Some(rates) = &document.rates {
        let mut busy: Vec<(u32, f64)> =
            rates.cpus.iter().map(|(pid, cpus)| (*pid, *cpus)).collect();
        busy.retain(|(_, cpus)| *cpus >= 0.01);
        busy.sort_small_by(|a, b| b.1.total_cmp(&a.1));
        for (pid, cpus) in busy.into_iter().take(10) {
            line("CPU:", &format!("{} uses {}", map.label(pid), Quantity::Share.show(cpus)));
        }
    }
    if map.within_one_process > 0 {
        line(
            "note:",
            &format!(
                "{} within one process, such as pipes between its threads, not listed",
                count(map.within_one_process, "channel is", "channels are")
            ),
        );
    }
    for gap in &map.gaps {
        line("note:", &format!("not seen: {}; to see it, {}", gap.what, gap.remedy));
    }
    for answer in &document.answers {
        line("answer:", &answer.text);
    }
    out
}

/// The name of a channel. Ports of clients differ from connection to connection, so that only servers' addresses are
/// names; these are grouped.
fn name(channel: &Channel) -> String {
    let used_by = channel.used_by.map(|user| format!(" ({user})")).unwrap_or_default();
    format!("{}{used_by}", channel.name)
}

fn parties(map: &Map, parties: &[Party]) -> String {
    shortened(parties.iter().map(|party| map.party(party)).collect())
}

fn shortened(mut names: Vec<String>) -> String {
    if names.len() > NAMED + 1 {
        let more = names.len() - NAMED;
        names.truncate(NAMED);
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

impl Group<'_> {
    /// The bytes in both directions: of all channels together, `-` if the kernel does not count them.
    fn flow(&self, document: &Document<'_>) -> (String, String) {
        let none = || ("-".to_owned(), "-".to_owned());
        if let Some(rates) = &document.rates {
            let found: Vec<_> =
                self.channels.iter().filter_map(|c| rates.channels.get(&c.id)).collect();
            if found.is_empty() {
                return none();
            }
            let show = |value: f64| Quantity::ByteRate.show(value);
            return (
                show(found.iter().map(|r| r.forward_bytes_per_s).sum()),
                show(found.iter().map(|r| r.backward_bytes_per_s).sum()),
            );
        }
        if let Some(bytes) = self.channels.iter().find_map(|c| c.mapped_bytes) {
            return (format!("{} mapped", size(bytes)), "-".to_owned());
        }
        let sum = |of: fn(&Channel) -> Option<u64>| {
            let known: Vec<u64> = self.channels.iter().filter_map(|c| of(c)).collect();
            (!known.is_empty()).then(|| known.iter().sum::<u64>())
        };
        match (sum(|c| c.forward_bytes), sum(|c| c.backward_bytes)) {
            (Some(forward), Some(backward)) => (decimal(forward), decimal(backward)),
            _ => none(),
        }
    }

    fn queued(&self) -> String {
        let known: Vec<u64> = self.channels.iter().filter_map(|c| c.queued_bytes).collect();
        if known.is_empty() { "-".to_owned() } else { decimal(known.iter().sum()) }
    }
}

/// Bytes in a decimal unit: `1.2 MB`.
fn decimal(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    Quantity::ByteRate.show(bytes as f64).replace("/s", "")
}
