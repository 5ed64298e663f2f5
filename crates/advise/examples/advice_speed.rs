//! Measures how long `crossway advise` takes to read and judge 100,000 records.
//!
//! Copies the records of a run into several runs in a temporary folder until there are 100,000, and answers a question
//! from them.
//!
//! `cargo run --release -p crossway-advise --example advice_speed -- records/2026-11-26-epyc-2cpu`

use std::path::PathBuf;
use std::time::Instant;

use crossway_advise::candidate::Known;
use crossway_advise::{Library, NoBench, Question, Sources, advise};
use crossway_records::records_io::{ENVIRONMENT, RESULTS};

const RECORDS: usize = 100_000;
const RUNS: usize = 25;
const QUESTION: &str =
    "size_bytes = 64\n[properties]\norder = \"require\"\ndelivery = \"require\"\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run: PathBuf = std::env::args().nth(1).ok_or("name the folder of a run")?.into();
    let text = std::fs::read_to_string(run.join(RESULTS))?;
    let lines: Vec<&str> = text.lines().collect();
    let folder = tempfile::tempdir()?;
    let mut copied = lines.iter().cycle();
    for n in 0..RUNS {
        let copy = folder.path().join(format!("run-{n:02}"));
        std::fs::create_dir(&copy)?;
        let part: Vec<&str> = copied.by_ref().take(RECORDS / RUNS).copied().collect();
        std::fs::write(copy.join(RESULTS), part.join("\n"))?;
        std::fs::copy(run.join(ENVIRONMENT), copy.join(ENVIRONMENT))?;
    }
    let environment: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join(ENVIRONMENT))?)?;
    let machine = environment["machine_id"].as_str().unwrap_or_default();
    let question = Question::parse("speed", "speed", QUESTION)?;
    for _ in 0..5 {
        let begun = Instant::now();
        let library = Library::read(&[folder.path().to_owned()], machine, &question);
        let read = begun.elapsed();
        let sources = Sources {
            known: Known { probes: &[], faults: &[] },
            library: &library,
            folder: folder.path(),
            budget: None,
        };
        let advice = advise(&question, &sources, &mut NoBench, &mut |_| {})?;
        println!(
            "{} records, {} of them parsed: read in {:.3} s, answered after {:.3} s ({})",
            library.lines,
            library.parsed,
            read.as_secs_f64(),
            begun.elapsed().as_secs_f64(),
            advice.choice.as_deref().unwrap_or("no choice")
        );
    }
    Ok(())
}
