//! What becomes of recordings.

mod several;

use std::path::Path;

use crossway_observe::recording::{Event, Operation};
use crossway_observe::tape::{Tape, exchanges};
use crossway_records::inputs::{ReplayShape, Workload};

use super::*;
use crossway_loops::{Step, When};

fn compiled(tape: Tape, speed_percent: u32) -> Result<Replay, ReplayError> {
    Replay::of(&tape.recording, Path::new("tape"), &Channels::Busiest, speed_percent)
}

fn shape_of(replay: &Replay) -> ReplayShape {
    match replay.workload {
        Workload::Replay { shape, .. } => shape,
        other => panic!("{other:?}"),
    }
}

fn whens(steps: &[Step]) -> Vec<Option<When>> {
    steps.iter().map(|step| step.when).collect()
}

#[test]
fn a_reply_waits_for_its_request_and_the_next_request_for_the_reply() {
    let replay = compiled(exchanges(3, "pipe", None), 100).unwrap();
    assert_eq!(shape_of(&replay), ReplayShape::Exchanges);
    assert_eq!(replay.sizes(), (64, Some(1000)));
    let Script { roles, messages, begins, .. } = &replay.script;
    let [client, server] = &roles[..] else { panic!("{roles:?}") };
    assert_eq!((*messages, begins.as_slice()), (6, &[0, 2, 4][..]));
    let computes = Some(When::Busy(30_000));
    assert_eq!(whens(client), [Some(When::Now), None, computes, None, computes, None]);
    let answers = Some(When::Busy(5_000));
    assert_eq!(whens(server), [None, answers, None, answers, None, answers]);
    assert_eq!(replay.recorded.channels[0].exchanges_ns, [70_000; 3]);
    // The recorder's cost is not the program's time: four calls per exchange.
    let corrected = compiled(exchanges(3, "pipe", Some(2_000)), 100).unwrap();
    assert_eq!(whens(&corrected.script.roles[1])[1], Some(When::Busy(3_000)));
    assert!(corrected.recorded.channels[0].exchanges_ns.iter().all(|ns| *ns < 70_000));
    assert!(corrected.recorded.method_share.unwrap() > 0.05);
    assert_ne!(replay.script.fingerprint(), corrected.script.fingerprint());
}

#[test]
fn what_a_thread_that_never_sleeps_asks_is_not_its_computing() {
    let mut tape = Tape::new("tcp-local", Some(100));
    for number in 0..4 {
        let at = number * 10_000;
        tape.sends(0, at, 1_000, 8);
        tape.receives(1, at + 500, 1_000, 8);
        tape.waits(1, at + 1_700, 800);
        tape.sends(1, at + 3_000, 1_000, 8);
        tape.receives(0, at + 3_500, 1_000, 8);
    }
    let answers = |tape: &Tape| {
        let replay =
            Replay::of(&tape.recording, Path::new("tape"), &Channels::Busiest, 100).unwrap();
        whens(&replay.script.roles[1])[3]
    };
    // It may have slept: what it waited for is not known.
    assert_eq!(answers(&tape), Some(When::Idle(1_400)));
    tape.recording.events.iter_mut().for_each(|event| event.off_cpu_ns = Some(0));
    // 1,500 ns between the calls; of these, 800 in a call that asks, and twice the recorder's cost.
    assert_eq!(answers(&tape), Some(When::Busy(500)));
}

#[test]
fn speed_shortens_pauses_and_full_speed_has_none() {
    let twice = compiled(exchanges(3, "pipe", None), 200).unwrap();
    assert_eq!(whens(&twice.script.roles[0])[2], Some(When::Busy(15_000)));
    assert_eq!(twice.messages_in(1), 7 * 6 + 4, "1 ms holds seven rounds of 135 us and a part");
    let full = compiled(exchanges(3, "pipe", None), AS_FAST_AS_POSSIBLE).unwrap();
    let pauses =
        full.script.roles.iter().flatten().filter(|s| s.when.is_some_and(|w| w != When::Now));
    assert_eq!(pauses.count(), 0);
}

#[test]
fn a_sender_that_never_listens_keeps_its_times_unless_the_channel_holds_it_back() {
    let mut paced = Tape::new("pipe", None);
    for number in 0..10 {
        paced.sends(0, number * 1_000_000, 3_000, 100);
        paced.receives(1, number * 1_000_000 - 900_000, 910_000, 100);
    }
    let paced = compiled(paced, 100).unwrap();
    assert_eq!(shape_of(&paced), ReplayShape::Stream);
    assert_eq!(whens(&paced.script.roles[0])[3], Some(When::At(3_000_000)));
    assert_eq!(paced.script.roles[1][3].due_ns, Some(3_000_000));
    let mut held = Tape::new("pipe", None);
    for number in 0..10 {
        held.sends(0, number * 100_000, 95_000, 65_536);
        // Two sends arrive in one receive.
        if number % 2 == 1 {
            held.receives(1, number * 100_000 + 90_000, 4_000, 2 * 65_536);
        }
    }
    let held = compiled(held, 100).unwrap();
    assert_eq!(shape_of(&held), ReplayShape::Bulk);
    assert_eq!(whens(&held.script.roles[0])[3], Some(When::Busy(5_000)));
    assert_eq!(held.script.roles[1].len(), 10, "each message is received");
}

#[test]
fn what_was_sent_before_the_recording_began_is_not_replayed() {
    let mut tape = Tape::new("unix-stream", None);
    // The answer to a request that nobody saw.
    tape.receives(1, -50_000, 10_000, 64);
    tape.sends(1, -35_000, 5_000, 1000);
    tape.receives(0, -50_000, 25_000, 1000);
    for event in exchanges(3, "unix-stream", None).recording.events {
        tape.recording.events.push(event);
    }
    let replay = compiled(tape, 100).unwrap();
    assert!(
        replay.remarks.iter().any(|r| r.contains("64 bytes were received")),
        "{:?}",
        replay.remarks
    );
    assert_eq!(replay.script.messages, 7);
}

/// The direction, and whether it is a send, of each step.
fn turns(replay: &Replay, role: usize) -> Vec<(u32, bool)> {
    replay.script.roles[role].iter().map(|step| (step.message, step.when.is_some())).collect()
}

#[test]
fn who_waited_when_the_recording_began_received_what_came_first() {
    let whole = compiled(exchanges(4, "tcp-local", None), 100).unwrap();
    // The server waited for the first request in a call that was not seen. Each later receive is still of its own request.
    let mut tape = exchanges(4, "tcp-local", None);
    let first = |e: &Event| e.thread == 1 && e.operation == Operation::Receive;
    let unseen = tape.recording.events.iter().position(first).unwrap();
    tape.recording.events.remove(unseen);
    let server = compiled(tape, 100).unwrap();
    for role in [0, 1] {
        assert_eq!(turns(&server, role), turns(&whole, role));
    }
    let (exchanged, of_all) = (&server.recorded.channels[0], &whole.recorded.channels[0]);
    assert_eq!(exchanged.exchanges_ns, of_all.exchanges_ns);
    assert!(!server.remarks.iter().any(|r| r.contains("were received without")));
    // The client waited for the answer to a request that was not seen, either.
    let mut tape = exchanges(4, "tcp-local", None);
    tape.recording.events.retain(|e| e.at_ns > 0);
    let gone = |e: &Event| e.thread == 0 && e.operation == Operation::Receive;
    let answer = tape.recording.events.iter().position(gone).unwrap();
    tape.recording.events.remove(answer);
    let client = compiled(tape, 100).unwrap();
    let order = |role| turns(&client, role).iter().map(|(_, sends)| *sends).collect::<Vec<_>>();
    // One message at a time: the roles take turns from the first one on.
    for role in [0, 1] {
        assert!(order(role).windows(2).all(|pair| pair[0] != pair[1]), "{:?}", order(role));
    }
}

#[test]
fn what_piles_up_is_not_taken_for_received() {
    // A receiver that is seen from the first, and falls behind.
    let mut tape = Tape::new("pipe", None);
    tape.waits(1, -1_000, 500);
    for number in 0..10 {
        tape.sends(0, number * 10_000, 3_000, 100);
        tape.receives(1, number * 20_000 + 5_000, 2_000, 100);
    }
    let replay = compiled(tape, 100).unwrap();
    let received: Vec<u32> = replay.script.roles[1].iter().map(|step| step.message).collect();
    assert_eq!(received, (0..10).collect::<Vec<_>>());
    let two = [(0, 100), (20, 200)];
    let unseen =
        |receives: &[(i64, u64)]| unseen::received_unseen(&two, receives.iter().copied(), 15);
    assert_eq!(unseen(&[]), 100);
    assert_eq!(unseen(&[(25, 100)]), 100);
    // The head of the first message was received unseen.
    assert_eq!(unseen(&[(16, 60), (25, 40), (30, 60)]), 40);
    // This receive returned before anything else was sent: it got the first message itself.
    assert_eq!(unseen(&[(18, 100), (25, 100)]), 0);
}

#[test]
fn one_recorded_end_is_enough_and_is_said() {
    let mut tape = exchanges(3, "tcp-local", None);
    tape.recording.events.retain(|e| e.thread == 0);
    let replay = compiled(tape, 100).unwrap();
    assert_eq!(replay.script.messages, 6);
    assert_eq!(whens(&replay.script.roles[1]), [None, Some(When::Now)].repeat(3));
    assert!(replay.remarks.iter().any(|r| r.contains("only one end")), "{:?}", replay.remarks);
}

#[test]
fn a_pause_with_a_wait_is_a_sleep() {
    let mut tape = Tape::new("pipe", None);
    for number in 0..3 {
        let at = number * 10_000_000;
        tape.sends(0, at, 5_000, 64);
        tape.receives(1, at + 1_000, 5_000, 64);
        tape.sends(1, at + 10_000, 5_000, 64);
        tape.receives(0, at + 6_000, 15_000, 64);
        tape.waits(0, at + 25_000, 9_000);
    }
    let replay = compiled(tape, 100).unwrap();
    assert!(matches!(whens(&replay.script.roles[0])[2], Some(When::Idle(9_979_000))));
}

#[test]
fn a_role_polls_where_the_program_did() {
    let mut tape = Tape::new("tcp-local", None);
    for number in 0..3 {
        let at = number * 100_000;
        tape.sends(0, at, 5_000, 64);
        // A server with an event loop, and a client that blocks in its receive.
        tape.waits(1, at - 20_000, 24_000);
        tape.receives(1, at + 6_000, 1_000, 64);
        tape.sends(1, at + 10_000, 5_000, 64);
        tape.receives(0, at + 6_000, 15_000, 64);
    }
    let replay = compiled(tape, 100).unwrap();
    let polls = |role: usize| -> Vec<bool> {
        replay.script.roles[role].iter().map(|step| step.polled).collect()
    };
    assert_eq!(polls(0), [false; 6]);
    assert_eq!(polls(1), [true, false].repeat(3));
}

#[test]
fn times_that_contradict_the_order_are_refused() {
    let mut tape = Tape::new("pipe", None);
    // Each waits for what the other one sends later.
    tape.receives(0, 0, 1_000, 8);
    tape.sends(0, 5_000, 1_000, 8);
    tape.receives(1, 0, 1_000, 8);
    tape.sends(1, 5_000, 1_000, 8);
    // The receives are of bytes sent before: nothing contradicts, but nothing is received in between, either.
    let replay = compiled(tape, 100).unwrap();
    assert_eq!(replay.script.messages, 2);
    assert!(matches!(compiled(Tape::new("pipe", None), 100), Err(ReplayError::Silent { .. })));
    let tape = exchanges(1, "pipe", None);
    let nine = Channels::These(vec![9]);
    let missing = Replay::of(&tape.recording, Path::new("tape"), &nine, 100);
    assert!(missing.unwrap_err().to_string().contains("no channel 9; it has channels 0 to 1"));
}

#[test]
fn windows_end_with_an_exchange() {
    let script = compiled(exchanges(3, "pipe", None), 100).unwrap().script;
    let whole = |messages| script.whole_exchanges(messages);
    assert_eq!([0, 1, 2, 3, 5, 6, 7].map(whole), [0, 2, 2, 4, 6, 6, 8]);
    let client = script.of_role(0);
    let ends = || client.steps.iter().filter(|step| step.exchange == Some(Exchange::Ends));
    let exchanges_in = |messages| ends().map(|step| client.times(step, messages)).sum::<u64>();
    assert_eq!([2, 6, 8].map(exchanges_in), [1, 3, 4]);
}

#[test]
fn carriers_are_replayed_on_mechanisms_that_exist() {
    let carriers = [
        "pipe",
        "fifo",
        "pty",
        "unix-stream",
        "unix-datagram",
        "unix-seqpacket",
        "tcp-local",
        "udp-local",
        "sctp",
        "vsock",
        "posix-queue",
        "sysv-queue",
    ];
    for carrier in carriers {
        let same = same_as(carrier);
        assert!(!same.is_empty(), "{carrier}");
        for id in same {
            assert!(crossway_mech::registry::find(id).is_some(), "{carrier}: {id}");
        }
    }
    assert!(same_as("shared-memory").is_empty());
}
