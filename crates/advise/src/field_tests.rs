//! Tests of contenders, languages and licences, memory, rates and histograms in questions.

use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::{Caps, registry};

use super::candidate::{Field, Known, field};
use super::property::{Property, Wish};
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_lab::catalogue::Entry;
use crossway_lab::contender::Contender;
use crossway_records::inputs::{Placement, Workload};
use crossway_records::record::{Pacing, Record};
use crossway_records::samples;

const NOTHING_KNOWN: Known<'static> = Known { probes: &[], faults: &[] };

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

fn contender(id: &str, languages: &[&str], licence: Option<&str>) -> Entry {
    Entry::Contender(Box::leak(Box::new(Contender {
        id: id.to_owned(),
        about: "a library".to_owned(),
        family: crossway_mech::Family::Library,
        languages: languages.iter().map(|l| (*l).to_owned()).collect(),
        licence: licence.map(str::to_owned),
        caps: Caps { send_deadline: false, ..Caps::PLAIN },
        build: Vec::new(),
        probe: Vec::new(),
        run: vec!["true".to_owned()],
        remedy: "install it".to_owned(),
        deadline: Duration::from_secs(1),
        file: PathBuf::from(format!("/d/{id}.toml")),
        out: PathBuf::new(),
        helpers: PathBuf::new(),
    })))
}

/// The candidates among five mechanisms and contenders, for a question with these properties.
fn of_few(properties: &str) -> Field {
    let own = ["pipe", "shm-futex"].map(|id| Entry::Mechanism(registry::find(id).expect("there")));
    let libraries = [
        contender("in-c", &["c", "c++"], Some("GPL-3.0-only")),
        contender("in-python", &["python"], Some("AFL-2.1 OR GPL-3.0-only")),
        contender("silent", &[], None),
    ];
    let asked = question(&format!("size_bytes = 64\n[properties]\n{properties}"));
    field(&asked, &NOTHING_KNOWN, own.into_iter().chain(libraries))
}

fn ids(field: &Field) -> Vec<&'static str> {
    field.candidates.iter().map(|c| c.mechanism).collect()
}

fn basis<'a>(field: &'a Field, id: &str) -> &'a str {
    field.ruled_out.iter().find(|r| r.candidate == id).map_or("", |r| r.basis.as_str())
}

#[test]
fn contenders_are_candidates_and_what_they_do_not_declare_is_unknown() {
    assert_eq!(ids(&of_few("")), ["pipe", "shm-futex", "in-c", "in-python", "silent"]);
    let field = of_few("order = \"require\"\npollable = \"require\"");
    assert!(!ids(&field).contains(&"in-c"), "{:?}", field.candidates);
    assert_eq!(basis(&field, "in-c"), "a contender's declaration cannot state this property");
    let field = of_few("private-dev-shm = \"prefer\"");
    assert!(
        field.unanswered[0].starts_with("private-dev-shm has no effect on the choice"),
        "{:?}",
        field.unanswered
    );
    let field = of_few("boundaries = \"prohibit\"");
    assert!(
        basis(&field, "in-c").contains("declared in /d/in-c.toml, which `crossway contender test")
    );
}

#[test]
fn languages_are_those_that_declarations_state_and_kernel_interfaces_have_all() {
    let field = of_few("language = { wish = \"require\", any_of = [\"python\", \"go\"] }");
    assert_eq!(ids(&field), ["pipe", "in-python"]);
    assert_eq!(basis(&field, "in-c"), "/d/in-c.toml: c, c++");
    assert_eq!(basis(&field, "silent"), "/d/silent.toml states no languages");
    assert!(basis(&field, "shm-futex").starts_with("its code in user space is Rust"));
    let field = of_few("language = { wish = \"require\", any_of = [\"Rust\"] }");
    assert_eq!(ids(&field), ["pipe", "shm-futex"]);
}

#[test]
fn licences_may_be_required_or_prohibited_and_the_kernel_links_nothing() {
    let licences = |wish: &str, of: &str| {
        ids(&of_few(&format!("licence = {{ wish = \"{wish}\", any_of = [\"{of}\"] }}")))
    };
    assert_eq!(licences("require", "mit"), ["pipe", "shm-futex"]);
    assert_eq!(licences("require", "AFL-2.1"), ["pipe", "in-python"]);
    assert_eq!(licences("prohibit", "GPL-3.0-only"), ["pipe", "shm-futex", "in-python"]);
}

#[test]
fn properties_with_values_want_them() {
    for (properties, wanted) in [
        ("language = \"require\"", "list the values: language = { wish = \"require\", any_of"),
        ("language = { wish = \"require\" }", "both 'wish' and 'any_of' are needed"),
        ("language = { wish = \"require\", any_of = [] }", "expected a list of names"),
        (
            "language = { wish = \"require\", any_of = [\"C 11\"] }",
            "'c 11' is not the name of a language",
        ),
        ("order = { wish = \"require\", any_of = [\"c\"] }", "expected a string"),
    ] {
        let text = format!("size_bytes = 64\n[properties]\n{properties}");
        let said = Question::parse("t", "t.toml", &text).expect_err("no question").to_string();
        assert!(said.contains(wanted), "{properties}: {said}");
    }
}

pub(super) fn answer(text: &str, records: &[Record]) -> Advice {
    let library = Library { own: records.iter().map(Trial::of).collect(), ..Library::default() };
    let sources = Sources {
        known: NOTHING_KNOWN,
        library: &library,
        folder: std::path::Path::new("out"),
        budget: None,
    };
    advise(&question(text), &sources, &mut NoBench, &mut |_| {}).expect("an answer")
}

pub(super) fn with_facts(mechanism: &str, p50_ns: u64, facts: &[(&str, i64)]) -> Vec<Record> {
    let p50s: Vec<u64> = (0..7).map(|n| p50_ns + n).collect();
    let mut records = samples::trials(mechanism, 64, &p50s, 900.0);
    for record in &mut records {
        record.inputs.placement = Placement::Unpinned;
        record.facts = facts.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    }
    records
}

#[test]
fn memory_is_judged_by_the_buffers_that_the_system_reports() {
    let mut records = with_facts("pipe", 5000, &[("pipe_bytes", 65_536)]);
    let buffers = [("so_sndbuf_bytes", 200_000), ("so_rcvbuf_bytes", 200_000)];
    records.extend(with_facts("tcp", 4000, &buffers));
    let text = format!("{UNPINNED}[goal]\nmemory_bytes = 131072");
    let advice = answer(&text, &records);
    assert_eq!(advice.choice.as_deref(), Some("pipe"), "{:?}", advice.abstained);
    let tcp = advice.ruled_out.iter().find(|r| r.candidate == "tcp").expect("ruled out");
    assert!(tcp.why.contains("buffers at most 131072 bytes: 800000"), "{tcp:?}");
    // Unknown properties are reported.
    let advice = answer(&text, &with_facts("pipe", 5000, &[]));
    assert_eq!(advice.choice.as_deref(), Some("pipe"));
    assert!(advice.notes.iter().any(|n| n.contains("not measured for pipe")), "{:?}", advice.notes);
}

#[test]
fn the_buffers_of_a_fan_are_those_of_all_its_pairs() {
    let judged = |mechanism: &str, facts: &[(&str, i64)]| {
        let text =
            format!("{UNPINNED}pattern = \"fan-in\"\npeers = 3\n[goal]\nmemory_bytes = 262144");
        let mut records = with_facts(mechanism, 5000, facts);
        records.iter_mut().for_each(|r| {
            r.inputs.workload = Workload::FanIn { senders: 3, receiver_us: 0, period_us: 0 }
        });
        let advice = answer(&text, &records);
        advice.compared[0].goals[0].measured.expect("measured").value
    };
    // Three channels of two pipes each; the senders to a FIFO share one.
    assert_eq!(judged("pipe", &[("pipe_bytes", 65_536)]), 393_216.0);
    assert_eq!(judged("fifo", &[("pipe_bytes", 65_536)]), 131_072.0);
    // Four sockets.
    let socket = [("so_sndbuf_bytes", 1_000), ("so_rcvbuf_bytes", 2_000)];
    assert_eq!(judged("uds-dgram", &socket), 12_000.0);
}

#[test]
fn requests_at_a_rate_are_open_loop_and_a_rate_out_of_reach_is_named() {
    let text = format!("{UNPINNED}rate_per_s = 30000");
    let workload = Workload::Requests { period_ns: 33_333 };
    assert_eq!(question(&text).workload(64), workload);
    let mut records = with_facts("pipe", 50_000, &[]);
    for record in &mut records {
        record.inputs.workload = workload;
        record.pacing = Some(Pacing {
            bursts: 1000,
            late_bursts: 0,
            drift_ns: 0,
            intended_bits_per_s: 2.0e6,
            reached_bits_per_s: 1.0e6,
            lateness_ns: None,
        });
    }
    let advice = answer(&text, &records);
    assert_eq!(advice.choice, None);
    let out = advice.ruled_out.iter().find(|r| r.candidate == "pipe").expect("ruled out");
    assert_eq!(out.objection, Objection::MissedRate { share: 0.5 });
    let why = advice.abstained.unwrap_or_default();
    assert!(why.contains("achieves 50 % of the stated rate"), "{why}");
    assert!(why.contains("about 15000 messages per second are achieved here"), "{why}");
}

#[test]
fn a_fine_histogram_is_put_together_and_keeps_its_bytes() {
    let sizes: Vec<String> = (1..=200_u64)
        .map(|n| format!("{{ bytes = {}, share = {} }}", n * 10, 1.0 / n as f64))
        .collect();
    let asked = question(&format!("size_bytes = [{}]", sizes.join(", ")));
    assert_eq!(asked.sizes.len(), 8);
    let harmonic: f64 = (1..=200).map(|n| 1.0 / f64::from(n)).sum();
    let mean: f64 = asked.sizes.iter().map(|s| s.bytes as f64 * s.share).sum();
    assert!((mean / (2000.0 / harmonic) - 1.0).abs() < 0.01, "{mean}");
    // A few different sizes stay unchanged, and a size that is stated twice is merged.
    let asked = question(
        "size_bytes = [{ bytes = 64, share = 1 }, { bytes = 9, share = 6 }, { bytes = 64, share = 1 }]",
    );
    assert_eq!(asked.sizes.iter().map(|s| s.bytes).collect::<Vec<_>>(), [9, 64]);
    assert!((asked.sizes[1].share - 0.25).abs() < 1e-9);
}

#[test]
fn a_size_beyond_every_mechanism_and_containers_are_spoken_of() {
    let asked = question("size_bytes = \"64 MiB\"");
    let queues = ["posix-mq", "sysv-mq"].map(|id| registry::find(id).expect("there"));
    let mut found = field(&asked, &NOTHING_KNOWN, queues.into_iter().map(Entry::Mechanism));
    exclude_impossible(&asked, &mut found).expect("a plan");
    assert!(found.candidates.is_empty());
    let why = found.conflict.unwrap_or_default();
    assert!(why.contains("posix-mq: its largest message here is"), "{why}");
    let advice = answer("size_bytes = 64\nwhere = \"other-container\"", &[]);
    assert!(advice.notes.iter().any(|n| n.contains("created by root")), "{:?}", advice.notes);
}

#[test]
fn a_reason_that_concerns_all_candidates_is_given_once() {
    let text = "size_bytes = 64\nplacement = { cpus = { a = 8190, b = 8191 } }";
    let why = answer(text, &[]).abstained.unwrap_or_default();
    assert_eq!(why.matches("CPU 8190 does not exist").count(), 1, "{why}");
    assert!(why.contains("pipe, fifo, pty and "), "{why}");
}

#[test]
fn remedies_that_change_a_plan_are_not_given_to_a_question() {
    for place in ["other-host", "other-container"] {
        let asked = question(&format!("size_bytes = 64\nwhere = \"{place}\""));
        let few = ["pipe", "tcp", "tipc-node-stream", "shm-futex"].map(registry::find);
        let few = few.into_iter().map(|found| Entry::Mechanism(found.expect("there")));
        let mut found = field(&asked, &NOTHING_KNOWN, few);
        exclude_impossible(&asked, &mut found).expect("a plan");
        assert!(!found.ruled_out.is_empty(), "{place}");
        for out in &found.ruled_out {
            assert!(!out.why.contains("remedy"), "{place}: {out:?}");
        }
    }
    // A remedy that a question can follow.
    let why = answer("size_bytes = 64\nplacement = { cpus = { a = 8190, b = 8191 } }", &[]);
    assert!(why.abstained.is_some_and(|why| why.contains("; remedy: choose CPUs")));
}

#[test]
fn a_client_and_a_server_in_two_languages_need_a_contender_that_both_can_use() {
    let of = |values: &str| ids(&of_few(&format!("language = {{ wish = \"require\", {values} }}")));
    assert_eq!(of("any_of = [\"python\", \"c\"]"), ["pipe", "in-c", "in-python"]);
    assert_eq!(of("all_of = [\"python\", \"c\"]"), ["pipe"]);
    assert_eq!(of("all_of = [\"python\"]"), ["pipe", "in-python"]);
}

/// Records of round trips of a mechanism: `first` trials in one run, then `later` trials in a second run.
fn in_runs(mechanism: &str, p50_ns: u64, first: usize, later: usize) -> Vec<Record> {
    let p50s: Vec<u64> = (0..(first + later) as u64).map(|n| p50_ns + n).collect();
    let mut records = samples::trials(mechanism, 64, &p50s, 900.0);
    for (at, record) in records.iter_mut().enumerate() {
        record.run = if at < first { "first" } else { "later" }.to_owned();
        record.inputs.placement = Placement::Unpinned;
    }
    records
}

#[test]
fn a_candidate_that_an_earlier_run_dropped_was_not_pursued() {
    let mut records = in_runs("pipe", 5_000, 6, 6);
    records.extend(in_runs("tcp", 9_000, 6, 0));
    records.extend(in_runs("fifo", 9_000, 6, 6));
    let advice = answer(UNPINNED, &records);
    let verdict = |id: &str| advice.compared.iter().find(|c| c.mechanism == id).map(|c| c.verdict);
    assert_eq!(verdict("pipe"), Some("chosen"), "{:?}", advice.abstained);
    assert_eq!((verdict("tcp"), verdict("fifo")), (Some("not pursued"), Some("admissible")));
    assert!(
        advice.notes.iter().any(|note| note.contains("were not pursued")),
        "{:?}",
        advice.notes
    );
}

/// Records like those of [`in_runs`], but in the groups of a survey: first those of an early stage, then those of a
/// last one.
fn surveyed(mechanism: &str, p50_ns: u64, early: usize, last: usize) -> Vec<Record> {
    let mut records = in_runs(mechanism, p50_ns, early, last);
    for record in &mut records {
        record.group =
            if record.run == "first" { "early-block-64" } else { "last-block-64" }.to_owned();
    }
    records
}

#[test]
fn what_an_early_stage_dropped_is_neither_equal_nor_the_runner_up() {
    // The candidates that were dropped cost no more than the choice.
    let mut records = surveyed("tcp", 5_000, 10, 24);
    records.extend(surveyed("pipe", 5_000, 10, 0));
    records.extend(surveyed("uds-stream", 5_000, 10, 0));
    records.extend(surveyed("fifo", 9_000, 10, 24));
    // A tie of the choice was measured once more.
    let mut again = in_runs("tcp", 5_000, 0, 40).split_off(34);
    again.iter_mut().for_each(|r| (r.run, r.group) = ("again".into(), "last-block-64".into()));
    records.extend(again);
    let advice = answer(UNPINNED, &records);
    let verdict = |id: &str| advice.compared.iter().find(|c| c.mechanism == id).map(|c| c.verdict);
    assert_eq!(advice.choice.as_deref(), Some("tcp"), "{:?}", advice.abstained);
    assert_eq!(
        (verdict("pipe"), verdict("uds-stream")),
        (Some("not pursued"), Some("not pursued"))
    );
    // It went through the last stage, though not through the tie.
    assert_eq!(verdict("fifo"), Some("admissible"));
    assert_eq!((&advice.equal[..], advice.runner_up.as_deref()), (&[][..], Some("fifo")));
    assert!(advice.confidence.is_some());
    // Without another candidate, there is nothing that a confidence could refer to.
    records.retain(|r| r.mechanism != "fifo");
    let alone = answer(UNPINNED, &records);
    assert_eq!((alone.choice.as_deref(), alone.confidence), (Some("tcp"), None));
}

#[test]
fn what_a_survey_for_another_question_dropped_takes_part() {
    let mut records = surveyed("tcp", 9_000, 10, 24);
    records.extend(surveyed("pipe", 5_000, 10, 0));
    let mut trials: Vec<Trial> = records.iter().map(Trial::of).collect();
    let choice = |trials: &[Trial]| {
        let library = Library { own: trials.to_vec(), ..Library::default() };
        let known = Known { probes: &[], faults: &[] };
        let folder = std::path::Path::new("out");
        let sources = Sources { known, library: &library, folder, budget: None };
        let advice = advise(&question(UNPINNED), &sources, &mut NoBench, &mut |_| {});
        advice.expect("an answer").choice
    };
    assert_eq!(choice(&trials).as_deref(), Some("tcp"));
    trials.iter_mut().for_each(|trial| trial.of_other_question = true);
    assert_eq!(choice(&trials).as_deref(), Some("pipe"));
}

#[test]
fn a_fan_is_called_measured_at_full_speed_and_a_stream_at_a_rate_is_not() {
    let sentence = |pattern: &str| {
        question(&format!("size_bytes = 64\npattern = \"{pattern}\"\nrate_per_s = 1000")).sentence()
    };
    assert!(sentence("fan-in").contains(
        "1000 per second from all senders together (measured at full speed: a candidate must"
    ));
    assert!(sentence("fan-out").contains("1000 per second received by all receivers together"));
    assert!(!sentence("stream").contains("full speed"));
}

#[test]
fn wishes_are_repeated_with_their_values() {
    let asked = "size_bytes = 64\nplacement = \"unpinned\"\n[properties]\n\
                 language = { wish = \"require\", any_of = [\"zzz\"] }\n\
                 crash-detection = { wish = \"prefer\", within_ms = 100 }";
    let wishes = Advice::wishes(&question(asked));
    assert_eq!(wishes, ["prefer crash-detection=100ms", "require language=zzz"]);
    // Without declared contenders, nothing says whether a language is misspelt.
    let notes = answer(asked, &[]).notes;
    assert!(!notes.iter().any(|n| n.contains("names the language")), "{notes:?}");
}

#[test]
fn wishes_have_the_words_of_rfc_9622() {
    assert_eq!(
        Wish::ALL.map(Wish::word),
        ["require", "prefer", "no-preference", "avoid", "prohibit"]
    );
    for property in Property::ALL {
        assert_eq!(Property::named(property.name()), Some(property));
    }
}
