//! A role's samples by kind of work, function, source line and stack.

use crossway_records::sorting::{CollectTree, SortSmall};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::HotSpot;
use super::lines::{self, Places};
use super::part::{self, Part};
use super::script::{Frame, Sample};

/// The number of samples of a function, and of each of its source lines.
type Lines = (u64, BTreeMap<String, u64>);

/// A role's samples.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pub(super) samples: u64,
    pub(super) parts: BTreeMap<Part, u64>,
    pub(super) stacks: BTreeMap<String, u64>,
    /// For each function, file and kind of work: the number of samples in total and by source line.
    functions: BTreeMap<(String, String, Part), Lines>,
}

impl Sampled {
    /// The places with the most samples.
    pub(super) fn hottest(&self, count: usize) -> Vec<HotSpot> {
        let mut all: Vec<HotSpot> = self
            .functions
            .iter()
            .map(|((function, of, part), (samples, lines))| HotSpot {
                function: function.clone(),
                of: of.clone(),
                line: lines.iter().max_by_key(|(_, n)| **n).map(|(line, _)| line.clone()),
                part: *part,
                samples: *samples,
            })
            .collect();
        all.sort_small_by(|a, b| {
            b.samples.cmp(&a.samples).then_with(|| a.function.cmp(&b.function))
        });
        all.truncate(count);
        all
    }
}

/// Looks up the samples' addresses in programs and libraries. The result contains only files with known source lines.
pub(super) fn look_up(samples: &[Sample]) -> BTreeMap<String, Places> {
    let mut wanted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for sample in samples {
        let Some(frame) = sample.frames.iter().find(|frame| !frame.is_kernel()) else { continue };
        if frame.dso.starts_with('/') {
            wanted.entry(frame.dso.clone()).or_default().insert(frame.ip);
        }
    }
    wanted
        .into_iter()
        .map(|(dso, offsets)| {
            let places = lines::look_up(Path::new(&dso), &offsets);
            (dso, places)
        })
        .filter(|(_, places)| places.values().flatten().any(|place| !place.line.is_empty()))
        .collect_tree()
}

/// Adds one sample to the counts by kind of work, by innermost function and by stack.
pub(super) fn enter(
    into: &mut Sampled,
    role: &str,
    sample: &Sample,
    places: &BTreeMap<String, Places>,
) {
    let kernel: Vec<&Frame> = sample.frames.iter().take_while(|f| f.is_kernel()).collect();
    // Programs are compiled without frame pointers: their frames beyond the innermost are invalid.
    let program = sample.frames.get(kernel.len());
    let inlined = program
        .and_then(|frame| places.get(&frame.dso)?.get(&frame.ip))
        .map_or(&[][..], Vec::as_slice);
    let part = part::of(&sample.frames, inlined);
    into.samples += 1;
    *into.parts.entry(part).or_default() += 1;
    let mut stack = vec![role.to_owned()];
    match program {
        Some(_) if !inlined.is_empty() => {
            stack.extend(inlined.iter().rev().map(|place| place.function.clone()));
        }
        Some(frame) if !frame.symbol.is_empty() => stack.push(lines::plain(&frame.symbol)),
        Some(frame) if !frame.dso.is_empty() => {
            stack.push(format!("[{}]", lines::file_name(&frame.dso)));
        }
        _ => {}
    }
    let name = |frame: &&Frame| {
        if frame.symbol.is_empty() { "[kernel]".to_owned() } else { frame.symbol.clone() }
    };
    stack.extend(kernel.iter().rev().map(|frame| format!("{}_[k]", name(frame))));
    let joined: Vec<String> = stack.iter().map(|frame| frame.replace([';', '\n'], ":")).collect();
    *into.stacks.entry(joined.join(";")).or_default() += 1;
    let (function, of, line) = match (kernel.first(), program) {
        (Some(frame), _) => (name(frame), "kernel".to_owned(), None),
        (None, Some(frame)) => {
            let function = inlined.first().map(|place| place.function.clone());
            let symbol = lines::plain(&frame.symbol);
            let line = inlined.first().map(|p| p.line.clone()).filter(|line| !line.is_empty());
            let of = lines::file_name(&frame.dso);
            (
                function.unwrap_or(if symbol.is_empty() { "[unknown]".into() } else { symbol }),
                of,
                line,
            )
        }
        (None, None) => ("[unknown]".to_owned(), String::new(), None),
    };
    let entry = into.functions.entry((function, of, part)).or_default();
    entry.0 += 1;
    if let Some(line) = line {
        *entry.1.entry(line).or_default() += 1;
    }
}
