//! The README against the reference run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{path, run};

/// Returns the rows of the Markdown table whose first column has this head, as maps from head to cell.
fn rows(text: &str, first_head: &str) -> Vec<BTreeMap<String, String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let begin = format!("| {first_head} |");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&begin));
    let heads = cells(lines.next().expect("a table"));
    let table = lines.skip(1).take_while(|line| line.starts_with('|'));
    table.map(|line| heads.iter().cloned().zip(cells(line)).collect()).collect()
}

#[test]
fn the_readme_shows_what_this_program_makes_of_the_reference_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| fs::read_to_string(root.join(name)).expect(name);
    let readme = read("README.md");
    let folder = |text: &str| -> Option<String> {
        let (_, rest) = text.split_once("](records/20")?;
        Some(format!("records/20{}", rest.split_once("/)")?.0))
    };
    let dir = folder(&readme).expect("a link to the reference run");
    let run_dir = root.join(&dir);
    let (markdown, _, code) = run(&["report", "--markdown", path(&run_dir)]);
    assert_eq!(code, 0);

    // Every figure of the table, without marks: a row that needs a caveat says so in a word.
    let (shown, made) = (rows(&readme, "Mechanism"), rows(&markdown, "Mechanism"));
    assert!((6..=8).contains(&shown.len()), "{} rows", shown.len());
    let plain = |cell: &str| cell.trim_end_matches([' ', '*', '†', '°']).replace('*', "");
    for row in &shown {
        let name = &row["Mechanism"];
        let of_run = made.iter().find(|r| r["Mechanism"] == *name).expect(name);
        assert!(row.len() <= 6, "{name}: {} columns", row.len());
        assert_eq!(row["Waits by"], of_run["Waits by"], "{name}");
        for (head, cell) in row {
            assert_eq!(*cell, plain(&of_run[head]), "{name}: {head}");
        }
    }

    // The numbers around it.
    let records = read(&format!("{dir}/results.jsonl"));
    let records: Vec<Value> =
        records.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let measured = records.iter().filter(|r| r["status"] != "skipped").count();
    assert!(readme.contains(&format!("all {measured} trials")), "{measured} trials");
    let of_all = format!("{} of the {} mechanisms", shown.len(), made.len());
    assert!(readme.contains(&of_all), "{of_all}");

    let (picture, _, _) = run(&["report", "--chart", "round-trip", path(&run_dir)]);
    assert!(read("docs/img/round-trip.svg") == picture, "crossway report --chart round-trip {dir}");
}
