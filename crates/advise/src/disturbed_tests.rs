//! Tests of what an answer says about busy CPUs: those that the ends kept busy, and those that other programs used.

use super::candidate::{Known, field};
use super::figure::Open;
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_records::inputs::Placement;
use crossway_records::record::{HostMeters, Record};
use crossway_records::samples;

const NOTHING_KNOWN: Known<'static> = Known { probes: &[], faults: &[] };

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

fn round_trips(mechanism: &str, p50_ns: u64, cpu_ns: f64) -> Vec<Record> {
    let p50s: Vec<u64> = (0..7).map(|n| p50_ns + n).collect();
    let mut records = samples::trials(mechanism, 64, &p50s, cpu_ns);
    for record in &mut records {
        record.run = "first".to_owned();
        record.inputs.placement = Placement::Unpinned;
    }
    records
}

/// The records of [`round_trips`], changed as if the ends had hardly ever slept.
fn awake(mechanism: &str, p50_ns: u64, cpu_ns: f64) -> Vec<Record> {
    let mut records = round_trips(mechanism, p50_ns, cpu_ns);
    records.iter_mut().flat_map(|r| &mut r.roles).for_each(|role| role.switches_voluntary = 1);
    records
}

fn answer(text: &str, records: &[Record]) -> Advice {
    let own = records.iter().map(Trial::of).collect();
    let library = Library { own, ..Library::default() };
    let folder = std::path::Path::new("out");
    let sources = Sources { known: NOTHING_KNOWN, library: &library, folder, budget: None };
    advise(&question(text), &sources, &mut NoBench, &mut |_| {}).expect("an answer")
}

#[test]
fn a_wish_to_avoid_spinning_does_not_make_it_a_candidate() {
    let labels = |properties: &str| -> Vec<String> {
        let asked = question(&format!("size_bytes = 64\n{properties}"));
        let field = field(&asked, &NOTHING_KNOWN, catalogue::all());
        field.candidates.iter().map(candidate::Candidate::label).collect()
    };
    let spinning = |wish: &str| labels(&format!("[properties]\nspinning = \"{wish}\""));
    assert_eq!(spinning("avoid"), labels(""));
    assert!(spinning("prefer").contains(&"shm-spin (spin)".to_owned()));
}

#[test]
fn ends_that_kept_their_cpus_busy_are_told_apart_from_those_that_slept() {
    let mut records = awake("sysv-shm", 4_000, 8_000.0);
    records.extend(round_trips("pipe", 5_000, 900.0));
    let advice = answer(UNPINNED, &records);
    assert_eq!(advice.choice.as_deref(), Some("sysv-shm"), "{:?}", advice.abstained);
    let kept_awake =
        |id: &str| advice.compared.iter().find(|c| c.mechanism == id).map(|c| c.kept_awake);
    assert_eq!((kept_awake("sysv-shm"), kept_awake("pipe")), (Some(true), Some(false)));
    let advice = answer(&format!("{UNPINNED}[properties]\nspinning = \"prohibit\""), &records);
    assert_eq!(advice.choice.as_deref(), Some("pipe"), "{:?}", advice.abstained);
    let why = advice.ruled_out.iter().find(|r| r.candidate == "sysv-shm").expect("a reason");
    assert!(why.why.contains("slept in fewer than one of ten waits"), "{why:?}");
    // The table shows the same reason, which no goal shows.
    let row = advice.compared.iter().find(|c| c.candidate == "sysv-shm").expect("a row");
    assert_eq!((row.verdict, &row.why[..]), ("fails", &[why.why.clone()][..]));
}

#[test]
fn ends_that_do_not_sleep_need_a_cpu_each_even_if_others_took_it_from_them() {
    // Other programs took more than half of the CPUs' time.
    let mut records = awake("sysv-shm", 4_000, 3_000.0);
    records.extend(round_trips("pipe", 5_000, 900.0));
    let advice = answer(&format!("{UNPINNED}[goal]\ncpu_percent = 100"), &records);
    let goals =
        |id: &str| advice.compared.iter().find(|c| c.mechanism == id).map(|c| c.goals[0].met);
    assert_eq!((goals("sysv-shm"), goals("pipe")), (Some(Some(false)), Some(Some(true))));
}

#[test]
fn a_goal_on_something_that_was_not_measured_is_called_that() {
    let advice =
        answer(&format!("{UNPINNED}[goal]\nmemory_bytes = 1"), &round_trips("pipe", 5_000, 900.0));
    let goal = &advice.compared[0].goals[0];
    assert_eq!(goal.open, Some(Open::NotMeasured));
    assert_eq!(
        (goal.goal.as_str(), goal.words().as_str()),
        ("buffers at most 1 byte", "undecided: not measured")
    );
}

#[test]
fn other_programs_that_used_the_cpus_during_the_trials_are_named() {
    let mut records = round_trips("pipe", 5_000, 900.0);
    for record in &mut records {
        record.host_cpu = vec![HostMeters {
            host: "local".to_owned(),
            busy_ns: 1_210_000,
            softirq_ns: 3_000,
            irq_ns: 1_000,
            steal_ns: 0,
            cpus: 2,
            span_ns: Some(1_000_000),
        }];
    }
    let told = "in first, other programs kept 1.2 of 2 CPUs busy during these trials";
    let advice = answer(UNPINNED, &records);
    assert!(advice.warnings.iter().any(|w| w.starts_with(told)), "{:?}", advice.warnings);
}

/// The answer from the records of a run. Before the run, the machine was checked, with findings on these subjects in
/// this order; those with `+` were found before the run was continued.
fn checked(findings: &[&str]) -> Advice {
    let dir = tempfile::tempdir().expect("a folder");
    let runs = ["first", "unrelated"].map(|run| (run.to_owned(), dir.path().join(run)));
    let finding = |about: &&str| {
        let (about, continued) =
            about.strip_suffix('+').map_or((*about, ""), |a| (a, r#","continued":true"#));
        format!(
            r#"{{"severity":"warning","about":"{about}","what":"{about} was busy","next_step":"wait"{continued}}}"#
        )
    };
    let found: Vec<String> = findings.iter().map(finding).collect();
    for (_, run) in &runs {
        std::fs::create_dir(run).expect("a run");
        let text = format!("[{}]", found.join(","));
        std::fs::write(run.join(crossway_records::records_io::PREFLIGHT), text).expect("a file");
    }
    let own = round_trips("pipe", 5_000, 900.0).iter().map(Trial::of).collect();
    let library = Library { own, run_dirs: runs.into(), ..Library::default() };
    let sources =
        Sources { known: NOTHING_KNOWN, library: &library, folder: dir.path(), budget: None };
    advise(&question(UNPINNED), &sources, &mut NoBench, &mut |_| {}).expect("an answer")
}

#[test]
fn what_disturbed_the_machine_before_the_runs_of_an_answer_is_reported() {
    assert_eq!(
        checked(&["load"]).warnings,
        ["before a run that gave these figures: load was busy"]
    );
    // A run that was resumed was checked twice, but is one run.
    let twice = checked(&["load", "cpu+", "load+", "cpu+"]).warnings;
    assert_eq!(
        twice,
        [
            "before a run that gave these figures: load was busy",
            "before a run that gave these figures was continued: cpu was busy"
        ]
    );
}

/// A bench whose run is preceded by a check that finds something.
struct Checked<'a>(&'a std::path::Path);

impl Bench for Checked<'_> {
    fn run(&mut self, _: &Plan) -> Result<Vec<Trial>, AdviseError> {
        let run = self.0.join("first");
        std::fs::create_dir_all(&run).expect("a run");
        let found =
            r#"[{"severity":"warning","about":"load","what":"it was busy","next_step":"wait"}]"#;
        std::fs::write(run.join(crossway_records::records_io::PREFLIGHT), found).expect("a file");
        Ok(round_trips("pipe", 5_000, 900.0).iter().map(Trial::of).collect())
    }
}

#[test]
fn what_disturbed_the_runs_just_made_is_reported_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = Library::default();
    let sources = Sources {
        known: NOTHING_KNOWN,
        library: &library,
        folder: dir.path(),
        budget: Some(Duration::from_secs(5)),
    };
    let advice = advise(&question(UNPINNED), &sources, &mut Checked(dir.path()), &mut |_| {})
        .expect("an answer");
    assert_eq!(advice.warnings, ["before a run that gave these figures: it was busy"]);
}
