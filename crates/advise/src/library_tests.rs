//! Tests of records that are read for a question: which count, and where the commands of an answer find them.

use super::candidate::Known;
use super::goal_tests::with_maxima;
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_records::runs::QUESTION;
use crossway_records::samples;

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

/// A folder with one run, whose records are these lines.
fn run_of(lines: &[String]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("2026-run");
    std::fs::create_dir(&run).expect("a run");
    std::fs::write(run.join(crossway_records::records_io::RESULTS), lines.join("\n"))
        .expect("written");
    dir
}

fn line(record: &crossway_records::record::Record) -> String {
    serde_json::to_string(record).expect("JSON")
}

#[test]
fn records_are_read_slim_and_bad_lines_are_left_out_loudly() {
    let records = samples::trials("pipe", 64, &[5000, 5001], 1.0);
    let mut lines: Vec<String> = records.iter().map(line).collect();
    lines.push("{\"schema\":2}".to_owned());
    let dir = run_of(&lines);
    let asked = question("size_bytes = 64");
    let library = Library::read(&[dir.path().to_owned()], "this machine", &asked);
    assert_eq!((library.own.len(), library.foreign.len()), (0, 2));
    assert_eq!(library.foreign[0], Trial::of(&records[0]));
    assert!(library.warnings[0].contains("1 line that is not a record"), "{:?}", library.warnings);
}

#[test]
fn of_many_records_only_those_that_may_answer_are_parsed() {
    let mut lines = Vec::new();
    for size in 0..4_000_u64 {
        lines.extend(samples::trials("pipe", size, &[5000], 1.0).iter().map(line));
    }
    // The format of another program: it may answer the question, so it is parsed.
    let other = lines[64].replace("\"size_bytes\":", "\"size_bytes\": ");
    lines.push(other.replace("\"trial\":0", "\"trial\":1"));
    assert!(lines.iter().map(String::len).sum::<usize>() > 5_000_000);
    let dir = run_of(&lines);
    let asked = question("size_bytes = [{ bytes = 64, share = 1 }, { bytes = 3999, share = 1 }]");
    let library = Library::read(&[dir.path().to_owned()], "this machine", &asked);
    assert_eq!((library.lines, library.parsed, library.foreign.len()), (4_001, 3, 3));
    assert!(library.foreign.iter().all(|t| [64, 3999].contains(&t.inputs.size_bytes)));
}

#[test]
fn a_folder_without_runs_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = Library::read(&[dir.path().to_owned()], "m", &question("size_bytes = 64"));
    assert_eq!(library.empty, [dir.path()]);
    let known = Known { probes: &[], faults: &[] };
    let sources = Sources { known, library: &library, folder: dir.path(), budget: None };
    let advice = advise(&question(UNPINNED), &sources, &mut NoBench, &mut |_| {}).expect("answer");
    assert!(advice.notes.iter().any(|n| n.ends_with("contains no runs")), "{:?}", advice.notes);
}

#[test]
fn commands_name_the_folder_in_which_a_run_lies() {
    let lines: Vec<String> = with_maxima("pipe", 900.0, &[100; 7])
        .iter()
        .map(|r| serde_json::to_string(r).expect("JSON"))
        .collect();
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("renamed");
    std::fs::create_dir(&run).expect("a run");
    std::fs::write(run.join(crossway_records::records_io::RESULTS), lines.join("\n"))
        .expect("written");
    let library = Library::read(&[dir.path().to_owned()], "this machine", &question(UNPINNED));
    let known = Known { probes: &[], faults: &[] };
    let sources = Sources { known, library: &library, folder: dir.path(), budget: None };
    let advice = advise(&question(UNPINNED), &sources, &mut NoBench, &mut |_| {}).expect("answer");
    // The repetition goes where the question looks for it.
    let (plan, folder) = (run.join("plan.toml"), dir.path());
    let command = format!("crossway measure {} -o {}", plan.display(), folder.display());
    assert_eq!(advice.commands, [command]);
}

#[test]
fn the_runs_of_an_answer_are_read_and_their_repetitions_go_beside_it() {
    let lines: Vec<String> = with_maxima("pipe", 900.0, &[100; 7]).iter().map(line).collect();
    let dir = run_of(&lines);
    let answer = dir.path().join("answer");
    std::fs::create_dir(&answer).expect("an answer");
    std::fs::write(answer.join(QUESTION), UNPINNED).expect("written");
    std::fs::rename(dir.path().join("2026-run"), answer.join("2026-run")).expect("moved");
    // By the folder that has the answer, and by the answer's own.
    for (folder, beside) in [(dir.path(), dir.path()), (&answer, dir.path())] {
        let library = Library::read(&[folder.to_owned()], "this machine", &question(UNPINNED));
        assert_eq!(library.foreign.len(), 7);
        let known = Known { probes: &[], faults: &[] };
        let sources = Sources { known, library: &library, folder, budget: None };
        let advice =
            advise(&question(UNPINNED), &sources, &mut NoBench, &mut |_| {}).expect("answer");
        let plan = answer.join("2026-run/plan.toml");
        let command = format!("crossway measure {} -o {}", plan.display(), beside.display());
        assert_eq!(advice.commands, [command]);
    }
}

#[test]
fn lines_with_impossible_figures_are_not_evidence() {
    let mut values: Vec<serde_json::Value> = with_maxima("pipe", 900.0, &[100; 7])
        .iter()
        .map(|r| serde_json::to_value(r).expect("JSON"))
        .collect();
    values[1]["throughput"]["msgs_per_s"] = serde_json::json!(-5.0);
    values[2]["cost"]["cpu_ns_per_msg"] = serde_json::json!(-1.0);
    values[3]["counts"] = serde_json::Value::Null;
    let lines: Vec<String> = values.iter().map(ToString::to_string).collect();
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join(crossway_records::records_io::RESULTS), lines.join("\n"))
        .expect("written");
    let library = Library::read(&[dir.path().to_owned()], "this machine", &question(UNPINNED));
    assert_eq!(library.foreign.len(), 4);
    let warning = library.warnings.first().expect("a warning");
    assert!(warning.ends_with("skipped 3 lines that are not records"), "{warning}");
}

#[test]
fn copies_of_a_run_and_folders_named_twice_count_once() {
    let lines: Vec<String> = with_maxima("pipe", 900.0, &[100; 7])
        .iter()
        .map(|r| serde_json::to_string(r).expect("JSON"))
        .collect();
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| {
        let run = dir.path().join(name);
        std::fs::create_dir(&run).expect("a run");
        std::fs::write(run.join(crossway_records::records_io::RESULTS), lines.join("\n"))
            .expect("written");
    };
    let read = |folders: &[&std::path::Path]| {
        let folders: Vec<PathBuf> = folders.iter().map(|f| f.to_path_buf()).collect();
        Library::read(&folders, "this machine", &question(UNPINNED))
    };
    folder("run");
    let twice = read(&[dir.path(), &dir.path().join("."), &dir.path().join("run")]);
    assert_eq!((twice.foreign.len(), &twice.warnings[..]), (7, &[][..]));
    folder("copy");
    let copied = read(&[dir.path()]);
    assert_eq!(copied.foreign.len(), 7);
    assert!(copied.warnings[0].starts_with("7 trials are copies of others"), "{copied:?}");
}
