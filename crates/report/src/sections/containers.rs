//! The section that shows which mechanisms work between containers, and at what cost.

use std::collections::BTreeSet;

use crossway_records::figure::Figure;
use crossway_records::inputs::Workload;
use crossway_records::record::{LOCAL, Record, Status};
use crossway_records::sorting::{CollectTree, SortSmall};
use crossway_records::testbed::{APART, TestbedKind};

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::Quantity;

pub(super) fn containers(run: &Run) -> Option<Section> {
    let testbed = |record: &Record| match &record.inputs.testbed_spec {
        None => Some(LOCAL.to_owned()),
        Some(spec) if spec.kind == TestbedKind::Containers => Some(spec.name.clone()),
        Some(_) => None,
    };
    let here: Vec<(&Record, String)> =
        run.records.iter().filter_map(|record| Some((record, testbed(record)?))).collect();
    if here.iter().all(|(_, name)| name == LOCAL) {
        return None;
    }
    let mut places: Vec<String> = Vec::new();
    let mut shares = Vec::new();
    for (record, name) in &here {
        if !places.contains(name) {
            places.push(name.clone());
            if let Some(spec) = &record.inputs.testbed_spec {
                let words: Vec<&str> = spec.shares.iter().map(|share| share.name()).collect();
                let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
                shares.push(format!("`{name}` shares {words}"));
            }
        }
    }
    // The bare machine first, then the containers in the order of the plan.
    places.sort_small_by_key(|name| {
        let spec = |record: &Record| record.inputs.testbed_spec.as_ref().map(|s| s.shares.len());
        here.iter().find(|(_, n)| n == name).map_or(0, |(r, _)| spec(r).map_or(0, |n| n + 1))
    });
    shares.sort_unstable();
    let sizes: BTreeSet<u64> = here.iter().map(|(r, _)| r.inputs.size_bytes).collect_tree();
    let mut tables = Vec::new();
    for size in sizes {
        for (workload, title) in
            [(Workload::PingPong, "Round trip, p50"), (Workload::Throughput, "Throughput")]
        {
            let of: Vec<&(&Record, String)> = here
                .iter()
                .filter(|(r, _)| r.inputs.size_bytes == size && r.inputs.workload == workload)
                .collect();
            if of.iter().any(|(_, name)| name != LOCAL) {
                tables.push(table(&of, &places, workload, &format!("{title}, {size} bytes")));
            }
        }
    }
    Some(Section {
        id: "containers",
        title: "Between containers of one kernel",
        paragraphs: vec![format!(
            "Each end runs in its own mount, PID, IPC and network namespaces, except for what the containers share: \
             {}. Descriptors are passed over a socket that both ends are given, as a container engine can do. Where \
             there is a figure, the channel opened and every message was verified.",
            shares.join("; ")
        )],
        tables,
        ..Section::default()
    })
}

fn table(of: &[&(&Record, String)], places: &[String], workload: Workload, title: &str) -> Sheet {
    let mut mechanisms: Vec<&str> = Vec::new();
    for (record, _) in of {
        if !mechanisms.contains(&record.mechanism.as_str()) {
            mechanisms.push(&record.mechanism);
        }
    }
    let rows = mechanisms
        .into_iter()
        .map(|mechanism| {
            let own: Vec<&&(&Record, String)> =
                of.iter().filter(|(record, _)| record.mechanism == mechanism).collect();
            let mut cells = vec![Cell::text(mechanism), Cell::text(found_by(&own))];
            cells.extend(places.iter().map(|place| {
                let there: Vec<&Record> =
                    own.iter().filter(|(_, name)| name == place).map(|(r, _)| *r).collect();
                cell(&there, workload)
            }));
            Row { class: None, cells }
        })
        .collect();
    let mut heads = vec!["Mechanism".to_owned(), "Peer found by".to_owned()];
    heads.extend(places.iter().cloned());
    Sheet { title: title.to_owned(), heads, rows, sortable: true, notes: Vec::new() }
}

/// Returns how the two ends find each other, according to the offers in trials that passed.
fn found_by(of: &[&&(&Record, String)]) -> String {
    let mut words = BTreeSet::new();
    for (record, _) in of.iter().map(|one| **one) {
        for (fact, value) in &record.facts {
            let word = match fact.strip_prefix("offered_") {
                Some("descriptors") if *value > 0 => "descriptor",
                Some("up" | "down" | "path") => "path",
                Some("abstract") => "abstract name",
                Some("inbox" | "greeting" | "door" | "listener") => "socket's name",
                Some("address" | "port") => "address",
                Some("name" | "queue" | "segments" | "semaphores") => "name of an IPC object",
                Some("pid" | "process") => "process",
                _ => continue,
            };
            words.insert(word);
        }
    }
    if words.is_empty() {
        "–".to_owned()
    } else {
        words.into_iter().collect::<Vec<_>>().join(", ")
    }
}

fn cell(of: &[&Record], workload: Workload) -> Cell {
    let figure = match workload {
        Workload::PingPong => Figure::ROUND_TRIP,
        _ => Figure::ByteRate,
    };
    let mut figures: Vec<f64> = of.iter().filter_map(|r| figure.of(r)).collect();
    figures.sort_unstable_by(f64::total_cmp);
    if let Some(middle) = figures.get(figures.len() / 2) {
        let text = Quantity::of(figure).show(*middle);
        return Cell { text, sort: Some(*middle), ..Cell::default() };
    }
    let why = of.iter().find_map(|r| r.reason.clone());
    let failed = of.iter().any(|r| r.status == Status::Failed);
    match why {
        Some(why) => Cell {
            text: if failed { "failed" } else { "does not work" }.to_owned(),
            // The cell itself says that the ends cannot communicate.
            note: Some(why.strip_prefix(&format!("{APART}: ")).unwrap_or(&why).to_owned()),
            ..Cell::default()
        },
        None => Cell::text("–"),
    }
}
