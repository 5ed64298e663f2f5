//! Tests of valid and invalid questions as users write them, and of their answers.

use crossway_mech::{Privilege, registry};

use super::candidate::{Known, field};
use super::question::{Percentile, Question};
use super::ready::READY;
use super::*;
use crossway_lab::faults::{Detection, Fault, FaultRecord, Outcome, SCHEMA, Side, State};
use crossway_records::figure::Figure;
use crossway_records::inputs::{Per, Placement, Workload};
use crossway_records::record::{Span, Status};
use crossway_records::samples;

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

fn error(text: &str) -> String {
    Question::parse("test", "test.toml", text).expect_err("no question").to_string()
}

const NOTHING_KNOWN: Known<'static> = Known { probes: &[], faults: &[] };

#[test]
fn every_ready_question_is_one_and_has_candidates() {
    assert_eq!(READY.len(), 13);
    for (name, text) in READY {
        let question = Question::parse(name, name, text).unwrap_or_else(|e| panic!("{e}"));
        assert!(question.about.is_some(), "{name}");
        let field = field(&question, &NOTHING_KNOWN, catalogue::all());
        assert!(field.candidates.len() >= 2, "{name}: {:?}", field.conflict);
        let plan = survey::plan(&question, &field.candidates, 3, 1)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(plan.groups.len(), question.sizes.len(), "{name}");
    }
}

#[test]
fn errors_name_the_file_the_key_and_the_remedy() {
    for (text, wanted) in [
        ("pattern = \"stream\"", "test.toml: size_bytes: missing"),
        ("size_bytes = 64\nsise = 1", "test.toml: sise: unknown key; allowed: about, pattern"),
        (
            "size_bytes = 64\npattern = \"ring\"",
            "unknown value 'ring'; allowed: request-reply, stream",
        ),
        ("size_bytes = 64\npeers = 3", "only fan-in and fan-out have a number of peers"),
        (
            "size_bytes = 64\npattern = \"stream\"\nreply_bytes = 8",
            "only pattern = \"request-reply\"",
        ),
        (
            "size_bytes = 64\n[properties]\nspeed = \"require\"",
            "properties.speed: unknown key; allowed: order",
        ),
        (
            "size_bytes = 64\n[properties]\norder = \"must\"",
            "allowed: require, prefer, no-preference, avoid, prohibit",
        ),
        (
            "size_bytes = 64\n[goal]\np50_us = 100\np99_us = 50",
            "p99 of 50 us contradicts p50 of 100 us",
        ),
        ("size_bytes = 64\npattern = \"fan-in\"\n[goal]\np99_us = 5", "latency cannot be judged"),
        ("size_bytes = 64\npattern = \"stream\"\n[goal]\np99_us = 5", "state rate_per_s"),
        (
            "size_bytes = 64\nrate_per_s = 1e8",
            "more than 10000000 messages per second cannot be sent on a schedule",
        ),
        ("size_bytes = []", "a mix has 1 to 1000 sizes"),
        (
            "size_bytes = 64\nhosts = \"ssh a,ssh b\"",
            "hosts can only be given with where = \"other-host\"",
        ),
        (
            "size_bytes = 64\nwhere = \"other-host\"\nhosts = \"ssh a\"",
            "a question has two hosts, not 1",
        ),
        ("size_bytes = 64\nshares = \"ipc\"", "where = \"other-container\""),
        (
            "size_bytes = 64\nwhere = \"other-container\"\nshares = \"icp\"",
            "unknown share 'icp'; allowed: volume",
        ),
        (
            "size_bytes = 64\nwhere = \"other-container\"\nshares = \"shm\"\n[properties]\nprivate-dev-shm = \"require\"",
            "contradict \"require private-dev-shm\"",
        ),
        (
            "size_bytes = 64\nwhere = \"other-host\"\nload = { cpu = 1 }",
            "omit it for where = \"other-host\"",
        ),
    ] {
        let said = error(text);
        assert!(said.contains(wanted), "{text:?} gave {said:?}");
    }
}

#[test]
fn fans_have_no_schedule_that_limits_their_rate() {
    let fan = "size_bytes = 64\npattern = \"fan-out\"\nrate_per_s = 2e7";
    assert_eq!(question(fan).rate_per_s, Some(2e7));
}

#[test]
fn rates_become_bursts_that_a_sleeping_sender_can_keep() {
    let workload = |rate: f64| {
        question(&format!("size_bytes = 100\npattern = \"stream\"\nrate_per_s = {rate:?}"))
            .workload(100)
    };
    assert_eq!(workload(1000.0), Workload::Paced { burst_bytes: 100, period_us: 1000 });
    assert_eq!(workload(100_000.0), Workload::Paced { burst_bytes: 2_000, period_us: 200 });
    assert_eq!(workload(0.5), Workload::Paced { burst_bytes: 100, period_us: 2_000_000 });
}

#[test]
fn a_goal_makes_cpu_time_the_objective_and_its_percentile_the_latency() {
    let asked = question("size_bytes = 64\n[goal]\np50_us = 10\np99_us = 100");
    assert!(asked.sentence().ends_with(", no load added, p50 at most 10 us, p99 at most 100 us"));
    assert_eq!(
        (asked.objective, asked.percentile()),
        (Figure::Cpu(Per::RoundTrip), Percentile::P99)
    );
    assert_eq!(
        question("size_bytes = 64").objective,
        Figure::Latency(Span::RoundTrip, Percentile::P50)
    );
    assert_eq!(question("size_bytes = 64\npattern = \"stream\"").objective, Figure::MessageRate);
}

#[test]
fn requirements_rule_out_and_say_on_what_they_rest() {
    let asked =
        question("size_bytes = 64\n[properties]\ndelivery = \"require\"\npollable = \"require\"");
    let field = field(&asked, &NOTHING_KNOWN, catalogue::all());
    assert!(field.candidates.iter().all(|c| c.caps.waitable_fd));
    let udp = field.ruled_out.iter().find(|r| r.candidate == "udp").expect("udp loses messages");
    assert!(udp.why.contains("lacks the required property delivery"), "{udp:?}");
    assert!(udp.basis.contains("conformance suite"), "{udp:?}");
    // Spinning must be mentioned to be considered.
    assert!(
        field.ruled_out.iter().any(|r| r.candidate == "shm-spin" && r.why.contains("spinning"))
    );
}

#[test]
fn two_requirements_that_exclude_each_other_are_named() {
    let asked =
        question("size_bytes = 64\n[properties]\nroot = \"require\"\ncrosses-hosts = \"require\"");
    let both = |e: &registry::Entry| {
        let caps = (e.caps)();
        let by_root =
            [Privilege::Ptrace, Privilege::NetRaw, Privilege::Root].contains(&caps.privilege);
        by_root && caps.crosses_hosts
    };
    assert!(!registry::ALL.iter().any(both), "choose another pair for this test");
    let conflict = field(&asked, &NOTHING_KNOWN, catalogue::all()).conflict.expect("a conflict");
    assert!(
        conflict.contains("require root") && conflict.contains("require crosses-hosts"),
        "{conflict}"
    );
    assert!(conflict.contains("relax"), "{conflict}");
}

fn fault(mechanism: &str, outcome: Outcome, after_ns: Option<u64>) -> FaultRecord {
    FaultRecord {
        schema: SCHEMA,
        run: "faults-1".to_owned(),
        started_unix_ms: 1,
        environment: "here".to_owned(),
        mechanism: mechanism.to_owned(),
        mechanism_version: None,
        wait: crossway_mech::Wait::Block,
        size_bytes: 64,
        fault: Fault::Kill,
        state: State::Idle,
        affected: Side::Connector,
        survivor: Side::Listener,
        trial: 0,
        status: Status::Ok,
        reason: None,
        remedy: None,
        outcome: Some(outcome),
        detected_by: after_ns.map(|_| Detection {
            call: "receive".to_owned(),
            error: "peer closed".to_owned(),
            peer_closed: true,
        }),
        detected_after_ns: after_ns,
        hung: outcome == Outcome::Hung,
        watched_ns: 1_000_000,
        sent: None,
        received: None,
        received_not_sent: None,
        sent_lost: None,
        left_behind: None,
        warnings: Vec::new(),
    }
}

#[test]
fn fault_records_decide_what_capabilities_cannot() {
    let text = "size_bytes = 64\n[properties]\ncrash-survival = \"require\"\n\
                crash-detection = { wish = \"require\", within_ms = 5 }";
    let faults = [
        fault("pipe", Outcome::Detected, Some(1_000_000)),
        fault("tcp", Outcome::Detected, Some(50_000_000)),
        fault("posix-mq", Outcome::Hung, None),
    ];
    let known = Known { probes: &[], faults: &faults };
    let field = field(&question(text), &known, catalogue::all());
    let names: Vec<_> = field.candidates.iter().map(|c| c.mechanism).collect();
    assert_eq!(names, ["pipe"]);
    let why =
        |name: &str| field.ruled_out.iter().find(|r| r.candidate == name).map(|r| r.basis.clone());
    assert!(why("tcp").is_some_and(|b| b.contains("after 50.000 ms")), "{:?}", why("tcp"));
    assert!(why("posix-mq").is_some_and(|b| b.contains("hung")), "{:?}", why("posix-mq"));
    assert_eq!(why("fifo").as_deref(), Some("no fault record on this machine"));
    assert!(field.untested.contains(&"fifo"), "{:?}", field.untested);
    assert!(!field.untested.contains(&"tcp") && !field.untested.contains(&"udp"));
}

#[test]
fn what_nobody_measured_is_said_and_not_ignored() {
    let field = field(
        &question("size_bytes = 64\n[properties]\nisolation = \"require\""),
        &NOTHING_KNOWN,
        catalogue::all(),
    );
    assert!(!field.candidates.is_empty());
    assert!(
        field.unanswered[0].contains("isolation is required, but there is no evidence"),
        "{:?}",
        field.unanswered
    );
    assert_eq!(field.open_requirements, ["the required property isolation"]);
}

#[test]
fn the_missing_fault_tests_are_one_command_that_stores_where_the_question_reads() {
    let trials = round_trips("pipe", &[5000, 5010, 5020, 4990, 5005], 900.0);
    let text = format!(
        "{UNPINNED}[properties]\ncrash-survival = \"require\"\n\
         crash-detection = {{ wish = \"require\", within_ms = 100 }}"
    );
    let library = library(trials);
    let sources = |faults| Sources {
        known: Known { probes: &[], faults },
        library: &library,
        folder: std::path::Path::new("my runs"),
        budget: None,
    };
    let asked = question(&text);
    let answer = |faults| advise(&asked, &sources(faults), &mut NoBench, &mut |_| {}).unwrap();
    let advice = answer(&[]);
    let commands: Vec<_> = advice.notes.iter().filter(|n| n.contains("crossway faults")).collect();
    assert_eq!(commands.len(), 1, "{:?}", advice.notes);
    assert!(commands[0].contains("--save 'my runs/faults.jsonl'`"), "{commands:?}");
    let open = ["crash-survival", "crash-detection=100ms"];
    assert_eq!(advice.open_requirements, open.map(|p| format!("the required property {p}")));
    let told = [fault("pipe", Outcome::Detected, Some(1_000_000))];
    let advice = answer(&told);
    assert!(advice.open_requirements.is_empty(), "{:?}", advice.open_requirements);
    assert_eq!(advice.choice.as_deref(), Some("pipe"), "{:?}", advice.abstained);
}

fn library(trials: Vec<Trial>) -> Library {
    Library { own: trials, ..Library::default() }
}

fn answer(text: &str, library: &Library) -> Advice {
    let sources = Sources {
        known: NOTHING_KNOWN,
        library,
        folder: std::path::Path::new("out"),
        budget: None,
    };
    advise(&question(text), &sources, &mut NoBench, &mut |_| {}).expect("an answer")
}

fn round_trips(mechanism: &str, p50_ns: &[u64], cpu_ns: f64) -> Vec<Trial> {
    let mut records = samples::trials(mechanism, 64, p50_ns, cpu_ns);
    records.iter_mut().for_each(|r| r.inputs.placement = Placement::Unpinned);
    records.iter().map(Trial::of).collect()
}

/// A question with a placement that is available on every machine.
pub(super) const UNPINNED: &str = "size_bytes = 64\nplacement = \"unpinned\"\n";

#[test]
fn the_least_is_chosen_and_the_runner_up_says_when_to_prefer_it() {
    let mut trials = round_trips("pipe", &[5000, 5010, 5020, 4990, 5005, 5001, 4995], 900.0);
    trials.extend(round_trips("tcp", &[9000, 9010, 9020, 8990, 9005, 9001, 8995], 300.0));
    let advice = answer(UNPINNED, &library(trials));
    assert_eq!(advice.choice.as_deref(), Some("pipe"), "{:?}", advice.abstained);
    assert_eq!(advice.runner_up.as_deref(), Some("tcp"));
    let reasons = advice.prefer_runner_up_if.join("; ");
    assert!(
        reasons.contains("1.80 times the latency") && reasons.contains("67 % less"),
        "{reasons}"
    );
    assert!(reasons.contains("another host"), "{reasons}");
    assert!(advice.confidence.is_some_and(|c| c > 0.99));
}

#[test]
fn of_equals_preferences_decide_and_then_simplicity() {
    let close = [5000, 5100, 5200, 4900, 5050, 5010, 4950];
    let closer = [5000, 5101, 5190, 4905, 5040, 5020, 4940];
    let mut trials = round_trips("pipe", &close, 900.0);
    trials.extend(round_trips("shm-futex", &closer, 900.0));
    let library = library(trials);
    let advice = answer(UNPINNED, &library);
    assert_eq!(advice.choice.as_deref(), Some("pipe"));
    assert_eq!(advice.equal, ["shm-futex"]);
    let preferring = format!("{UNPINNED}[properties]\nzero-copy = \"prefer\"");
    assert_eq!(answer(&preferring, &library).choice.as_deref(), Some("shm-futex"));
}

#[test]
fn a_goal_that_none_keeps_gives_the_least_violation_first() {
    let mut trials = round_trips("pipe", &[5000, 5010, 5020, 4990, 5005, 5001, 4995], 900.0);
    trials.extend(round_trips("tcp", &[9000, 9010, 9020, 8990, 9005, 9001, 8995], 300.0));
    let advice = answer(&format!("{UNPINNED}[goal]\np50_us = 2"), &library(trials));
    assert_eq!(advice.choice, None);
    let why = advice.abstained.unwrap_or_default();
    assert!(why.contains("The closest is pipe: p50 at most 2 us: 5.00"), "{why}");
    assert!(advice.ruled_out.iter().any(|r| r.candidate == "tcp" && r.basis.contains("7 trials")));
}

#[test]
fn a_few_first_trials_do_not_miss_a_goal_however_far_they_are_beyond_it() {
    let verdict = |ns: &[u64]| {
        let mut trials = round_trips("pipe", &[1500, 1510, 1520, 1490, 1505, 1501, 1495], 900.0);
        trials.extend(round_trips("tcp", ns, 300.0));
        let advice = answer(&format!("{UNPINNED}[goal]\np50_us = 2"), &library(trials));
        assert_eq!(advice.choice.as_deref(), Some("pipe"));
        let tcp = advice.compared.iter().find(|c| c.candidate == "tcp").expect("tcp");
        let ruled_out = advice.ruled_out.iter().any(|r| r.candidate == "tcp");
        assert_eq!(ruled_out, tcp.goals[0].met == Some(false));
        (tcp.verdict, tcp.goals[0].met, tcp.why.join("; "))
    };
    let none = String::new;
    assert_eq!(verdict(&[2500, 2510, 2520]), ("not pursued", None, none()));
    let six = [2500, 2510, 2520, 2530, 2540, 2550];
    assert_eq!(verdict(&six), ("fails", Some(false), none()));
    let why = "after 3 trials (p50 at most 2 us: 9.01 us)".to_owned();
    assert_eq!(verdict(&[9000, 9010, 9020]), ("not pursued", None, why));
}

#[test]
fn figures_of_another_machine_are_called_that() {
    let trials = round_trips("pipe", &[5000, 5010, 5020, 4990, 5005, 5001, 4995], 900.0);
    let foreign = Library { foreign: trials, ..Library::default() };
    let advice = answer(UNPINNED, &foreign);
    assert_eq!(advice.choice.as_deref(), Some("pipe"));
    assert!(advice.notes.iter().any(|n| n.contains("another machine")), "{:?}", advice.notes);
}

#[test]
fn too_few_trials_and_no_record_at_all_are_no_choice() {
    let few = round_trips("pipe", &[5000, 5001], 1.0);
    let advice = answer(UNPINNED, &library(few));
    assert!(advice.abstained.is_some_and(|why| why.contains("only 2 trials, and 5 are needed")));
    let advice = answer(UNPINNED, &Library::default());
    assert!(advice.abstained.is_some_and(|why| why.contains("no record of this machine answers")));
}

#[test]
fn runs_with_few_of_the_candidates_do_not_count_against_those() {
    let of_run = |run: &str, mechanism: &str, p50_ns: u64| -> Vec<Trial> {
        let mut trials = round_trips(mechanism, &[p50_ns; 7], 900.0);
        trials.iter_mut().for_each(|t| t.record.run = run.to_owned());
        trials
    };
    // In the second run the machine was slower.
    let mut trials = of_run("first", "pipe", 5_000);
    trials.extend(of_run("first", "fifo", 5_500));
    trials.extend(of_run("first", "tcp", 9_000));
    trials.extend(of_run("second", "pipe", 50_000));
    let advice = answer(UNPINNED, &library(trials.clone()));
    assert_eq!(advice.choice.as_deref(), Some("pipe"), "{:?}", advice.abstained);
    assert!(advice.confidence.is_some(), "{:?}", advice.no_confidence);
    let note = "left out, because at most half of the candidates were measured in it: second";
    assert!(advice.notes.iter().any(|n| n == note), "{:?}", advice.notes);
    // A run with most candidates counts, but the machine may have changed for those.
    trials.extend(of_run("second", "fifo", 50_000));
    let advice = answer(UNPINNED, &library(trials));
    assert_eq!(advice.confidence, None);
    let why = advice.no_confidence.unwrap_or_default();
    assert!(why.contains("not all measured in the same runs"), "{why}");
}
