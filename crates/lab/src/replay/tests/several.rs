//! What becomes of several channels of a recording.

use crossway_mech::registry;
use crossway_observe::recording::Operation::{Receive, Send};

use super::*;
use crate::control::Part;
use crate::role_layout::{Link, RoleLayout};
use crossway_records::inputs::Inputs;
use crossway_records::samples;

fn replayed(tape: &Tape, channels: &Channels) -> Result<Replay, ReplayError> {
    Replay::of(&tape.recording, Path::new("tape"), channels, 100)
}

/// A client with two threads, each with a connection of its own to a server with one thread: 20 exchanges on each.
fn two_clients() -> Tape {
    let mut tape = Tape::of("unix-stream", None, &[0, 1, 0], &[[0, 1], [0, 1]]);
    for number in 0..20 {
        let at = number * 100_000;
        for (channel, thread) in [(0, 0), (1, 2)] {
            let at = at + i64::from(channel) * 20_000;
            tape.call(thread, Send, Some(channel), (at, 2_000), 64);
            tape.call(1, Receive, Some(channel), (at + 1_000, 3_000), 64);
            tape.call(1, Send, Some(channel), (at + 6_000, 2_000), 500);
            tape.call(thread, Receive, Some(channel), (at + 3_000, 7_000), 500);
        }
    }
    tape
}

/// A client asks a proxy, which asks an upstream server before it answers: 20 times. They are recorded in an order that
/// is not that of the roles.
fn chain() -> Tape {
    let mut tape = Tape::of("unix-stream", None, &[2, 0, 1], &[[1, 2], [0, 1]]);
    let (upstream, client, proxy) = (0, 1, 2);
    for number in 0..20 {
        let at = number * 100_000;
        tape.call(client, Send, Some(1), (at, 2_000), 64);
        tape.call(proxy, Receive, Some(1), (at + 1_000, 3_000), 64);
        tape.call(proxy, Send, Some(0), (at + 9_000, 2_000), 80);
        tape.call(upstream, Receive, Some(0), (at + 10_000, 2_000), 80);
        tape.call(upstream, Send, Some(0), (at + 20_000, 2_000), 1000);
        tape.call(proxy, Receive, Some(0), (at + 12_000, 11_000), 1000);
        tape.call(proxy, Send, Some(1), (at + 28_000, 2_000), 1100);
        tape.call(client, Receive, Some(1), (at + 3_000, 28_000), 1100);
    }
    tape
}

fn layout(replay: &Replay) -> RoleLayout {
    let sample = samples::ping_pong("uds-stream", 64, 0, 1, 1.0).inputs;
    let inputs = Inputs { workload: replay.workload, cpus: vec![4, 5], ..sample };
    let caps = (registry::find("uds-stream").unwrap().caps)();
    RoleLayout::of(&inputs, &caps, Some(replay))
}

#[test]
fn two_clients_of_one_server_are_three_roles_with_a_connection_for_each_client() {
    let replay = replayed(&two_clients(), &Channels::All).unwrap();
    assert_eq!((shape_of(&replay), replay.numbers()), (ReplayShape::Exchanges, vec![0, 1]));
    assert_eq!(replay.script.channels, [[1, 2], [0, 2]]);
    assert_eq!(replay.script.clients(), [true, true, false]);
    // The server serves both in the order of the recording.
    let server = replay.script.of_role(2);
    let channels: Vec<u16> = server.steps.iter().take(8).map(|step| step.channel).collect();
    assert_eq!(channels, [1, 1, 0, 0, 1, 1, 0, 0]);
    assert_eq!(replay.sizes(), (500, None), "one size for all, because a role may be both");
    assert!(replay.recorded.channels.iter().all(|c| c.exchanges_ns == [10_000; 20] && c.by_client));
    let RoleLayout { roles, links } = layout(&replay);
    let seen: Vec<_> = roles.iter().map(|r| (r.part, r.index, r.cpu, r.listeners)).collect();
    let expected = [
        (Part::Client, 0, Some(4), 0),
        (Part::Client, 1, Some(4), 0),
        (Part::Server, 0, Some(5), 2),
    ];
    assert_eq!(seen, expected);
    let link = |offer: usize, connector| Link {
        listener: 2,
        offer,
        channel_there: offer as u16,
        connector,
        channel_here: 0,
    };
    assert_eq!(links, [link(0, 1), link(1, 0)]);
}

#[test]
fn a_proxy_asks_upstream_between_a_request_and_its_answer() {
    let replay = replayed(&chain(), &Channels::These(vec![0, 1])).unwrap();
    // The proxy connects to the upstream server before it accepts the client.
    assert_eq!(replay.script.channels, [[1, 2], [0, 1]]);
    let proxy = replay.script.of_role(1);
    let steps: Vec<_> = proxy.steps.iter().take(4).map(|s| (s.channel, s.when, s.size)).collect();
    let computes = |ns| Some(When::Busy(ns));
    let expected =
        [(1, None, 64), (0, computes(5_000), 80), (0, None, 1000), (1, computes(5_000), 1100)];
    assert_eq!(steps, expected);
    // Its own exchanges are part of the client's.
    assert_eq!(replay.script.clients(), [true, false, false]);
    let exchanges: Vec<_> = replay
        .recorded
        .channels
        .iter()
        .map(|c| (c.number, c.exchanges_ns[0], c.by_client))
        .collect();
    assert_eq!(exchanges, [(0, 14_000, false), (1, 31_000, true)]);
    let roles = layout(&replay).roles;
    let cpus: Vec<_> = roles.iter().map(|role| (role.part, role.cpu)).collect();
    let expected = [(Part::Client, Some(4)), (Part::Server, Some(5)), (Part::Server, Some(4))];
    assert_eq!(cpus, expected, "neighbours are on different CPUs");
}

#[test]
fn two_pipes_that_answer_each_other_are_one_conversation() {
    let mut tape = Tape::of("pipe", None, &[0, 1], &[[0, 1], [1, 0]]);
    for number in 0..10 {
        let at = number * 100_000;
        tape.call(0, Send, Some(0), (at, 2_000), 64);
        tape.call(1, Receive, Some(0), (at + 1_000, 3_000), 64);
        tape.call(1, Send, Some(1), (at + 6_000, 2_000), 64);
        tape.call(0, Receive, Some(1), (at + 3_000, 7_000), 64);
    }
    let replay = replayed(&tape, &Channels::All).unwrap();
    assert_eq!(shape_of(&replay), ReplayShape::Exchanges);
    assert_eq!(replay.script.conversations, [0, 0]);
    assert_eq!(replay.script.channels, [[0, 1], [0, 1]], "the second end of the answers connects");
    assert_eq!(replay.recorded.channels[0].exchanges_ns, [10_000; 10]);
    // By itself, each is a stream of messages.
    let alone = replayed(&tape, &Channels::These(vec![1])).unwrap();
    assert_ne!(shape_of(&alone), ReplayShape::Exchanges);
}

#[test]
fn channels_that_cannot_be_replayed_together_are_refused_by_number_or_left_out() {
    let mut tape = two_clients();
    // The second thread of the client reads on the first one's connection, too: they are one role.
    tape.call(2, Receive, Some(0), (2_000_000, 2_000), 8);
    assert_eq!(replayed(&tape, &Channels::All).unwrap().script.roles.len(), 2);
    let mut tape = two_clients();
    tape.recording.events.retain(|event| event.channel == Some(0) || event.thread != 1);
    let error = replayed(&tape, &Channels::These(vec![0, 1])).unwrap_err().to_string();
    assert!(
        error.contains("channel 1 of tape") && error.contains("only one of its ends"),
        "{error}"
    );
    let all = replayed(&tape, &Channels::All).unwrap();
    assert_eq!(all.numbers(), [0]);
    assert!(all.remarks.iter().any(|r| r.contains("1 of 2 channels")), "{:?}", all.remarks);
    let mut tape = two_clients();
    tape.recording.head.channels[1].to.clone_from(&[0].into());
    tape.recording.events.retain(|event| event.channel == Some(0));
    tape.call(0, Send, Some(1), (0, 1_000), 8);
    let mut within = *tape.recording.events.last().unwrap();
    within.operation = Receive;
    tape.recording.events.push(within);
    let error = replayed(&tape, &Channels::These(vec![1, 0])).unwrap_err().to_string();
    assert!(error.contains("channel 1 of tape") && error.contains("one thread"), "{error}");
    let error = replayed(&tape, &Channels::These(vec![0, 7])).unwrap_err().to_string();
    assert!(error.contains("no channel 7"), "{error}");
}
