//! Flows, questions and gains of recordings made by hand.

use std::path::Path;

use super::gain::NOT_WORTH;
use super::*;
use crate::Question;
use crossway_lab::plan::PlacementAxis;
use crossway_lab::replay::Channels;
use crossway_observe::recording::{Lost, Recorder};
use crossway_observe::tape::{Tape, exchanges};
use crossway_records::inputs::{Placement, Wait, Workload};
use crossway_records::record::{Record, Status};
use crossway_records::samples;
use crossway_records::stats::Interval;

/// A recording that cannot be read again, so that its channel is not replayed.
const NOWHERE: &str = "no such recording";

fn round_trips(mechanism: &str, p50_ns: u64) -> Vec<Record> {
    (0..7)
        .map(|trial| {
            let ns = p50_ns + u64::from(trial) * 10;
            samples::ping_pong(mechanism, 64, trial, ns, ns as f64)
        })
        .collect()
}

#[test]
fn a_flow_has_the_exchanges_of_its_channels_and_asks_a_question_that_advise_understands() {
    let flows = flows(&exchanges(50, "tcp-local", None).recording);
    let [flow] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!((flow.exchanges, flow.shape), (50, ReplayShape::Exchanges));
    assert_eq!(flow.names, ["client (10)".to_owned(), "server (20)".to_owned()]);
    assert_eq!(
        (flow.requests.clone(), flow.replies.clone()),
        ([(64, 50)].into(), [(1000, 50)].into())
    );
    assert!((flow.concurrency().unwrap() - 0.7).abs() < 0.02, "{:?}", flow.concurrency());
    assert_eq!((flow.calls, flow.mechanism()), ([100, 100], Some("tcp-nodelay")));
    let question = Question::from_table("observed", "the recording", &flow.question()).unwrap();
    let sentence = question.sentence();
    assert!(sentence.contains("requests of 64 B, replies of 1000 B"), "{sentence}");
    assert_eq!(question.rate_per_s, None, "requests follow each other");
}

#[test]
fn a_recording_that_begins_in_mid_exchange_does_not_turn_the_question_round() {
    let mut tape = Tape::new("tcp-local", None);
    // The reply was sent before the recording began.
    tape.receives(0, -1_000, 500, 5);
    for number in 0..30 {
        let at = number * 100_000;
        tape.sends(0, at, 5_000, 36);
        tape.receives(1, at + 1_000, 5_000, 36);
        tape.sends(1, at + 10_000, 5_000, 5);
        tape.receives(0, at + 6_000, 15_000, 5);
    }
    let flow = flows(&tape.recording).remove(0);
    assert_eq!(flow.names, ["client (10)".to_owned(), "server (20)".to_owned()]);
    assert_eq!(
        (flow.requests.clone(), flow.replies.clone()),
        ([(36, 30)].into(), [(5, 30)].into())
    );
    assert_eq!(flow.exchanges, 30);
    let replay = Replay::of(&tape.recording, Path::new("tape"), &Channels::Busiest, 100).unwrap();
    assert_eq!(replay.sizes(), (36, Some(5)), "the replay has the same ends");
}

#[test]
fn rare_exchanges_have_a_rate_and_mixed_sizes_are_a_histogram() {
    let mut tape = Tape::new("unix-stream", None);
    for number in 0..20 {
        let (at, size) = (number * 50_000_000, if number % 4 == 0 { 4096 } else { 64 });
        tape.sends(0, at, 5_000, size);
        tape.receives(1, at + 1_000, 5_000, size);
        tape.sends(1, at + 10_000, 5_000, 8);
        tape.receives(0, at + 6_000, 15_000, 8);
    }
    let flow = flows(&tape.recording).remove(0);
    let question = Question::from_table("observed", "the recording", &flow.question()).unwrap();
    assert!((question.rate_per_s.unwrap() - 21.0).abs() < 0.5, "{:?}", question.rate_per_s);
    assert_eq!(question.sizes.len(), 2);
    assert_eq!((question.sizes[0].bytes, question.sizes[0].share), (64, 0.75));
}

#[test]
fn the_gain_is_the_time_that_a_round_trip_saves_of_the_whole_exchange() {
    let flow = flows(&exchanges(50, "tcp-local", Some(100)).recording).remove(0);
    let mut records = round_trips("tcp-nodelay", 40_000);
    records.extend(round_trips("uds-stream", 20_000));
    records.extend(round_trips("shm-futex", 39_900));
    let gain = flow.gain("tcp-nodelay", &records, Some(100), None);
    assert!(gain.in_turn && gain.remarks.is_empty(), "{gain:?}");
    // An exchange takes 100 us, of which 20 us are saved.
    let with = |id: &str| gain.with.iter().find(|w| w.mechanism == id).unwrap();
    let less = with("uds-stream").less_time;
    assert!(less.low > 0.19 && less.high < 0.22, "{less:?}");
    assert!(with("uds-stream").verdict.ends_with("less time"));
    assert!(with("shm-futex").less_time.high < NOT_WORTH);
    assert!(with("shm-futex").verdict.contains("leave it"));
    // The same exchange, but nobody knows what the recorder cost.
    let vague = flow.gain("tcp-nodelay", &records, None, None);
    assert!(vague.remarks[0].contains("--real-rate"), "{:?}", vague.remarks);
    let exact = flow.gain("tcp-nodelay", &records, None, Some(10_000.0));
    assert!((exact.with[0].less_time.low - 0.2).abs() < 0.01, "{exact:?}");
    let slower = flow.gain("shm-futex", &records, Some(100), None);
    assert!(
        slower.with.iter().any(|w| w.mechanism == "tcp-nodelay" && w.verdict.contains("at most"))
    );
}

/// Two connections of a client whose exchanges overlap, with all calls on one CPU.
fn overlapping() -> Flow {
    let mut tape = exchanges(50, "tcp-local", Some(100));
    let second = tape.recording.events.clone().into_iter().map(|mut event| {
        event.channel = Some(1);
        event.at_ns += 1_000;
        event
    });
    tape.recording.events.extend(second.collect::<Vec<_>>());
    tape.recording.events.sort_by_key(|event| event.at_ns);
    tape.recording.events.iter_mut().for_each(|event| event.cpu = Some(0));
    flows(&tape.recording).remove(0)
}

#[test]
fn ends_that_never_sleep_are_compared_on_two_cpus_wherever_the_program_ran() {
    let flow = overlapping();
    assert!(!flow.is_in_turn() && flow.cpus == [Some(0); 2], "{flow:?}");
    let plan = flow
        .gain_plan("tcp-nodelay", &["uds-stream".to_owned()], Some(200), Path::new(NOWHERE))
        .unwrap();
    let of = |name: &str| plan.groups.iter().find(|g| g.name == name).unwrap().placements.clone();
    assert_eq!(of("natural"), Some(vec![PlacementAxis::One(Placement::SameCore)]));
    assert_eq!(of("spin"), Some(vec![PlacementAxis::One(Placement::OtherCore)]));
}

/// Trials of a replay: an exchange took so long in each round.
fn replays(mechanism: &str, exchanges_us: &[f64]) -> Vec<Record> {
    let workload = Workload::Replay {
        recording: 1,
        channel: 0,
        channels: 1,
        speed_percent: 100,
        shape: ReplayShape::Exchanges,
    };
    let rounds = exchanges_us.iter().enumerate();
    rounds
        .map(|(round, us)| {
            let mut record = samples::ping_pong(mechanism, 64, round as u32, 1_000, 1_000.0);
            record.inputs.workload = workload;
            record.throughput.as_mut().unwrap().msgs_per_s = 1e6 / us;
            record
        })
        .collect()
}

#[test]
fn exchanges_in_turn_are_replayed_on_one_cpu_and_on_two() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let tape = exchanges(50, "tcp-local", Some(100)).recording;
    let mut recorder = Recorder::create(&path, tape.head.clone(), false).unwrap();
    tape.events.iter().for_each(|event| recorder.add(*event).unwrap());
    recorder.finish(Lost::default()).unwrap();
    let flow = flows(&tape).remove(0);
    let plan = flow.gain_plan("tcp-nodelay", &["uds-stream".to_owned()], Some(200), &path).unwrap();
    assert_eq!(plan.groups.len(), 2, "as the programs wait, and as with crossway run");
    let two = PlacementAxis::One(Placement::OtherCore);
    let both = vec![PlacementAxis::One(Placement::SameCore), two];
    for (group, placements) in plan.groups.iter().zip([both, vec![two]]) {
        let [Workload::Replay { channel: 0, speed_percent: 100, .. }] = group.workloads[..] else {
            panic!("{:?}", group.workloads)
        };
        assert_eq!(group.placements, Some(placements));
    }
}

#[test]
fn mechanisms_are_compared_round_by_round() {
    let flow = flows(&exchanges(50, "tcp-local", Some(100)).recording).remove(0);
    let on = |place: Placement, mut records: Vec<Record>| {
        records.iter_mut().for_each(|record| record.inputs.placement = place);
        records
    };
    let mut records = on(Placement::SameCore, replays("tcp-nodelay", &[20.0; 7]));
    records.extend(on(Placement::SameCore, replays("uds-stream", &[15.0; 7])));
    records.extend(on(Placement::OtherCore, replays("tcp-nodelay", &[100.0; 7])));
    records.extend(on(Placement::OtherCore, replays("uds-stream", &[95.0; 7])));
    let less = |records: &[Record], per_s: f64| {
        flow.gain("tcp-nodelay", records, None, Some(per_s)).with[0].less_time
    };
    let about = |less: Interval, share: f64| {
        assert!((less.low - share).abs() < 0.001 && (less.high - share).abs() < 0.001, "{less:?}");
    };
    // A program whose exchange takes 20 us runs on one CPU, and one with 100 us on two.
    about(less(&records, 50_000.0), 0.25);
    about(less(&records, 10_000.0), 0.05);
    // What the program pays besides, whenever it wakes up, is saved in proportion.
    about(less(&records, 5_000.0), 0.05);
    // Where all rounds are slow together, the ratio is as clear as if they were not.
    let mut drift = replays("tcp-nodelay", &[20.0, 100.0, 20.0, 100.0, 20.0, 100.0, 20.0]);
    drift.extend(replays("uds-stream", &[15.0, 76.0, 15.0, 76.0, 15.0, 76.0, 15.0]));
    let drifting = less(&drift, 50_000.0);
    assert!(drifting.low >= 0.239 && drifting.high <= 0.251, "{drifting:?}");
    // A round without one of them says nothing.
    records.retain(|r| r.mechanism == "tcp-nodelay" || r.inputs.trial.is_multiple_of(2));
    about(less(&records, 50_000.0), 0.25);
    // All replay the same, even if it is not what the recorder let happen; what disturbs a trial
    // counts against it.
    records.iter_mut().for_each(|r| {
        r.status = Status::Degraded;
        r.replay = Some(samples::replayed());
    });
    assert_eq!(flow.gain("tcp-nodelay", &records, None, Some(50_000.0)).with.len(), 1);
    records.iter_mut().for_each(|r| r.calibration.cache_line_after_ns = Some(1000.0));
    assert!(flow.gain("tcp-nodelay", &records, None, Some(50_000.0)).with.is_empty());
}

#[test]
fn what_could_not_be_compared_has_its_reason_and_what_to_do() {
    let flow = overlapping();
    let spinning = |id: &str| {
        let mut records = round_trips(id, 20_000);
        records.iter_mut().for_each(|r| r.inputs.wait = Wait::Spin);
        records
    };
    let mut records = spinning("tcp-nodelay");
    records.extend(spinning("uds-stream"));
    let compared = flow.gain("tcp-nodelay", &records, Some(100), None);
    assert_eq!(compared.with.len(), 1, "{compared:?}");
    for record in records.iter_mut().filter(|r| r.mechanism == "uds-stream") {
        record.status = Status::Skipped;
        record.reason = Some("the mechanism cannot spin".to_owned());
        record.remedy = Some("set wait = \"block\"".to_owned());
    }
    let gain = flow.gain("tcp-nodelay", &records, Some(100), None);
    assert!(gain.with.is_empty());
    assert_eq!(
        gain.remarks[0],
        "tcp-nodelay and uds-stream could not be compared here: uds-stream, with ends that never sleep, as those of a \
         busy program do: the mechanism cannot spin; choose another mechanism with --instead"
    );
    records.retain(|r| r.mechanism != "tcp-nodelay");
    let gain = flow.gain("tcp-nodelay", &records, Some(100), None);
    assert!(gain.remarks[0].contains("tcp-nodelay was not measured"), "{gain:?}");
}

#[test]
fn what_crossway_run_gains_is_measured_with_ends_that_look_before_they_sleep() {
    let flow = flows(&exchanges(50, "tcp-local", Some(100)).recording).remove(0);
    let plan =
        flow.gain_plan("tcp-nodelay", &["pipe".to_owned()], Some(200), Path::new(NOWHERE)).unwrap();
    let ways: Vec<_> = plan.groups.iter().map(|g| (&g.mechanisms[..], &g.waits[..])).collect();
    let looks = Wait::Hybrid { spin_us: 200 };
    assert!(ways.contains(&(&["uds-stream"], &[Some(looks)])), "{ways:?}");
    assert!(ways.contains(&(&["pipe", "tcp-nodelay"], &[None])), "{ways:?}");

    let mut records = round_trips("tcp-nodelay", 40_000);
    records.extend(round_trips("uds-stream", 39_000));
    let mut looking = round_trips("uds-stream", 5_000);
    looking.iter_mut().for_each(|r| r.inputs.wait = looks);
    records.extend(looking);
    let gain = flow.gain("tcp-nodelay", &records, Some(100), None);
    let [run, plain] = &gain.with[..] else { panic!("{gain:?}") };
    assert!(run.unmodified && !plain.unmodified, "{gain:?}");
    assert!(run.less_time.low > 0.33 && plain.less_time.high < 0.03, "{gain:?}");
    // The channel takes 40 us here, and the program's whole exchange 20 us.
    let quick = flow.gain("tcp-nodelay", &records, None, Some(50_000.0));
    let less = quick.with[0].less_time;
    assert!(less.low > 0.86 && less.high < 0.89, "{quick:?}");
    // Programs on a UNIX socket already only look before they sleep.
    let own = flow.gain("uds-stream", &records, Some(100), None);
    assert!(own.with.iter().any(|w| w.unmodified && w.less_time.low > 0.3), "{own:?}");
    // Nothing is known of what it does for others.
    let plan = flow.gain_plan("pipe", &["tcp".to_owned()], Some(200), Path::new(NOWHERE)).unwrap();
    assert!(plan.groups.iter().all(|group| group.waits == [None]), "{:?}", plan.groups);
}

#[test]
fn ends_that_ask_again_and_again_are_replayed_awake_and_nothing_is_promised_of_crossway_run() {
    let flow_with = |off_cpu: fn(u64) -> Option<u64>| {
        let mut tape = exchanges(50, "tcp-local", Some(100));
        tape.recording.events.iter_mut().for_each(|e| e.off_cpu_ns = off_cpu(e.call_ns));
        flows(&tape.recording).remove(0)
    };
    assert!(!flow_with(|_| None).never_sleeps(), "nobody knows");
    assert!(!flow_with(Some).never_sleeps());
    let flow = flow_with(|_| Some(0));
    assert!(flow.never_sleeps());
    let others = ["shm-spin".to_owned()];
    let plan = flow.gain_plan("tcp-nodelay", &others, Some(200), Path::new(NOWHERE)).unwrap();
    assert_eq!(plan.groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["spin"]);
    let mut records = replays("tcp-nodelay", &[16.0; 5]);
    records.extend(replays("shm-spin", &[0.8; 5]));
    records.iter_mut().for_each(|record| record.inputs.wait = Wait::Spin);
    let gain = flow.gain("tcp-nodelay", &records, Some(100), None);
    assert!(gain.with.len() == 1 && gain.with[0].less_time.low > 0.9, "{gain:?}");
    assert!(gain.remarks.iter().any(|r| r.contains("crossway run")), "{:?}", gain.remarks);
}

#[test]
fn what_ends_save_that_look_before_they_sleep_is_the_least_that_programs_do() {
    let flow = flows(&exchanges(50, "tcp-local", Some(100)).recording).remove(0);
    let mut records = replays("uds-stream", &[40.0; 5]);
    records.iter_mut().for_each(|r| r.inputs.wait = Wait::Hybrid { spin_us: 200 });
    records.extend(replays("tcp-nodelay", &[100.0; 5]));
    records.extend(replays("uds-stream", &[80.0; 5]));
    let gain = flow.gain("tcp-nodelay", &records, Some(100), None);
    let verdict =
        |run: bool| gain.with.iter().find(|w| w.unmodified == run).unwrap().verdict.clone();
    assert_eq!(verdict(true), "at least 60 % less time");
    assert_eq!(verdict(false), "about 20 % less time");
}

#[test]
fn ends_that_do_not_sleep_compute_as_fast_as_the_program_does_on_cpus_that_do_not() {
    let mut recording = exchanges(50, "tcp-local", None).recording;
    let mut flow = flows(&recording).remove(0);
    flow.compare_awake(&recording);
    assert_eq!(flow.awake, 1.0, "nothing is known");
    let quicker = recording.events.iter().map(|event| {
        let mut event = *event;
        (event.at_ns, event.call_ns) = (event.at_ns * 6 / 10, event.call_ns * 6 / 10);
        event
    });
    recording.awake = quicker.collect();
    flow.compare_awake(&recording);
    assert!((flow.awake - 0.6).abs() < 0.001, "{}", flow.awake);
    // Half of each replay's time is computing.
    let mut replayed = samples::replayed();
    let wall_ns = replayed.messages as f64 * 1e9 / replayed.msgs_per_s_replayed;
    replayed.computed_ns = (wall_ns / 2.0) as u64;
    let mut records = replays("uds-stream", &[40.0; 5]);
    records.iter_mut().for_each(|r| r.inputs.wait = Wait::Hybrid { spin_us: 200 });
    records.extend(replays("tcp-nodelay", &[100.0; 5]));
    records.extend(replays("uds-stream", &[80.0; 5]));
    records.iter_mut().for_each(|record| record.replay = Some(replayed.clone()));
    let gain = flow.gain("tcp-nodelay", &records, None, Some(10_000.0));
    let less = |run: bool| gain.with.iter().find(|w| w.unmodified == run).unwrap().less_time;
    let about = |less: Interval, share: f64| {
        assert!((less.low - share).abs() < 0.001 && (less.high - share).abs() < 0.001, "{less:?}");
    };
    // 20 us of computing are 12 us.
    about(less(true), 0.68);
    assert_eq!(gain.with[0].verdict, "about 68 % less time", "and no longer at least that");
    about(less(false), 0.2);
}
