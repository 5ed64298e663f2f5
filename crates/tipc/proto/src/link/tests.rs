//! Tests of a single link; each test acts as the peer.

use super::*;
use crate::drops::{DropCounters, DropReason};
use crate::limits::{ACK_DELAY, ACK_EVERY, RESEND_TOLERANCES};
use crate::wire::{
    ConnManager, ConnManagerKind, LinkFields, LinkProtocol, LinkProtocolKind, Packet, User, View,
};
use alloc::vec::Vec;

const START: Nanos = Nanos(1_000_000_000);

fn config(own: u32, peer: u32) -> LinkConfig {
    LinkConfig {
        own: NodeAddr(own),
        peer: NodeAddr(peer),
        bearer: BearerId(0),
        interface: InterfaceName::default(),
        mtu: 1500,
        whole_max: 1500,
        window_max: 1024,
        tolerance: Duration::from_millis(1500),
        priority: 10,
        // Those of Linux 6.1.
        common: Capabilities::from_bits(0xfff),
    }
}

/// Two ends of a link that is not up yet.
fn ends() -> (Link, Link) {
    (Link::new(START, config(1, 2), 100), Link::new(START, config(2, 1), 200))
}

/// Returns all frames that an end sends now.
fn sent(link: &mut Link, now: Nanos) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let mut frame = Vec::new();
        if !link.poll_transmit(now, &BcastReport::default(), None, &mut frame) {
            return frames;
        }
        frames.push(frame);
    }
}

/// Passes a frame to an end. Returns the link's event, and the reason if the frame was dropped.
fn give(link: &mut Link, now: Nanos, frame: &[u8]) -> (Option<LinkEvent>, Option<DropReason>) {
    let view = View::parse(frame).unwrap();
    if view.user() == Some(User::LinkProtocol) {
        return match link.handle_protocol(now, &LinkProtocol::decode(&view).unwrap()) {
            Ok(handled) => (handled.event, None),
            Err(reason) => (None, Some(reason)),
        };
    }
    let mut drops = DropCounters::default();
    let (event, _) = link.handle_packet(now, &view, &mut Vec::new(), &mut drops);
    (event, drops.iter().find(|(_, count)| *count > 0).map(|(reason, _)| reason))
}

/// Exchanges frames until neither end has anything to send.
fn talk(a: &mut Link, b: &mut Link, now: Nanos) {
    loop {
        let (from_a, from_b) = (sent(a, now), sent(b, now));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.iter().for_each(|frame| assert_eq!(give(b, now, frame).1, None));
        from_b.iter().for_each(|frame| assert_eq!(give(a, now, frame).1, None));
    }
}

/// Two ends of a link that is up and idle.
fn up() -> (Link, Link) {
    let (mut a, mut b) = ends();
    talk(&mut a, &mut b, START);
    assert!(a.is_up() && b.is_up());
    (a, b)
}

/// A message too large to be bundled with another one.
fn message(number: u8) -> Packet {
    let mut out = Vec::new();
    ConnManager { kind: ConnManagerKind::Probe, ..ConnManager::default() }
        .encode(&LinkFields::default(), &mut out);
    let word = u32::from_be_bytes([out[0], out[1], out[2], out[3]]) + 1000;
    out[0..4].copy_from_slice(&word.to_be_bytes());
    out.resize(out.len() + 1000, number);
    Packet::parse(out).unwrap()
}

/// Returns the data packets that an end sends now, without link protocol messages.
fn data(link: &mut Link, now: Nanos) -> Vec<Vec<u8>> {
    let mut frames = sent(link, now);
    frames.retain(|f| View::parse(f).unwrap().user() != Some(User::LinkProtocol));
    frames
}

#[test]
fn an_answer_to_an_earlier_session_brings_no_link_up() {
    let (mut a, mut b) = ends();
    let reset = sent(&mut a, START).remove(0);
    give(&mut b, START, &reset);
    let activate = sent(&mut b, START).remove(0);
    let decoded = LinkProtocol::decode(&View::parse(&activate).unwrap()).unwrap().kind;
    assert!(matches!(decoded, LinkProtocolKind::Activate(_, Some(100))), "{decoded:?}");
    // The end that is being answered has started over in the meantime.
    a.restart(START);
    assert_eq!(give(&mut a, START, &activate), (None, Some(DropReason::WrongSession)));
    assert_eq!(a.state(), LinkState::Reset);
    // An answer to a session later than ours is not accepted either, but our next session goes beyond it: the peer would
    // ignore an earlier one.
    let (mut early, _) = (Link::new(START, config(1, 2), 50), ());
    assert_eq!(give(&mut early, START, &activate), (None, Some(DropReason::WrongSession)));
    let next = sent(&mut early, START).remove(0);
    assert_eq!(LinkProtocol::decode(&View::parse(&next).unwrap()).unwrap().session, 101);
}

#[test]
fn a_packet_that_acknowledges_what_was_never_sent_is_of_an_earlier_session() {
    let (mut a, mut b) = up();
    a.send(message(1)).unwrap();
    let first = data(&mut a, START).remove(0);
    give(&mut b, START, &first);
    b.send(message(2)).unwrap();
    let late = data(&mut b, START).remove(0);
    assert_eq!(View::parse(&late).unwrap().ack(), Seq(1));
    let (mut a, _b) = up();
    assert_eq!(give(&mut a, START, &late), (None, Some(DropReason::WrongSession)));
    assert_eq!(
        a.acked(),
        Seq(0),
        "the packet has the next expected number, but must not be accepted"
    );
}

#[test]
fn a_repeated_packet_is_acknowledged_again() {
    let (mut a, mut b) = up();
    a.send(message(1)).unwrap();
    let packet = data(&mut a, START).remove(0);
    for _ in 0..ACK_EVERY {
        assert!(!b.has_output());
        give(&mut b, START, &packet);
    }
    assert!(b.has_output(), "the end must send the acknowledgement again that the peer missed");
    talk(&mut a, &mut b, START);
    assert!(a.is_acked(Seq(1)));
}

#[test]
fn a_peer_whose_window_shrank_gets_its_acknowledgement_before_the_tick() {
    let (mut a, mut b) = up();
    let window = a.window_size();
    // Repeated packets and those behind them arrived at once: the window seems more than twice as large as it is.
    b.unacked_max = 2 * window + 10;
    let mut now = START;
    let mut waits = 0;
    for _ in 0..8 {
        for packet in send(&mut a, window) {
            give(&mut b, now, &packet);
        }
        if !b.has_output() {
            waits += 1;
            now = b.poll_timeout();
            assert!(now <= START + ACK_DELAY * waits, "it waits for the next tick");
            assert_eq!(b.handle_timeout(now, Pending::default()), None);
        }
        talk(&mut a, &mut b, now);
        assert!(a.backlog.is_empty() && a.tx.len() == 0, "everything is acknowledged");
    }
    assert_eq!(waits, 1, "it learns");
}

/// Sends this number of messages and returns the packets, one per message.
fn send(link: &mut Link, messages: u16) -> Vec<Vec<u8>> {
    for number in 0..messages {
        link.send(message(number as u8)).unwrap();
    }
    let packets = data(link, START);
    assert_eq!(packets.len(), usize::from(messages));
    packets
}

fn numbers(packets: &[Vec<u8>]) -> Vec<u16> {
    packets.iter().map(|f| View::parse(f).unwrap().seq().0).collect()
}

/// The STATE message with which an end reports what it has received.
fn report(link: &mut Link) -> Vec<u8> {
    link.want_state(false, false);
    sent(link, START).remove(0)
}

#[test]
fn only_packets_reported_missing_are_sent_again() {
    let (mut a, mut b) = up();
    let packets = send(&mut a, 8);
    let lost = [0, 3, 4];
    for (_, packet) in packets.iter().enumerate().filter(|(n, _)| !lost.contains(n)) {
        give(&mut b, START, packet);
    }
    assert_eq!(give(&mut a, START, &report(&mut b)), (None, None));
    // Before they are retransmitted, two arrive after all: they were only late.
    give(&mut b, START, &packets[3]);
    give(&mut b, START, &packets[4]);
    assert_eq!(give(&mut a, START, &report(&mut b)), (None, None));
    assert_eq!(numbers(&data(&mut a, START)), [1]);
    assert_eq!(a.stats().packets_resent, 1);
}

#[test]
fn a_loss_narrows_the_window() {
    let (mut a, mut b) = up();
    for _ in 0..2 {
        let full = a.window_size();
        for packet in send(&mut a, full) {
            give(&mut b, START, &packet);
        }
        give(&mut a, START, &report(&mut b));
    }
    let window = a.window_size();
    assert_eq!(window, 4 * crate::limits::WINDOW_MIN);
    for packet in send(&mut a, 8).iter().skip(1) {
        give(&mut b, START, packet);
    }
    give(&mut a, START, &report(&mut b));
    assert_eq!(a.window_size(), window / 10 * 7);
}

#[test]
fn a_packet_that_never_gets_through_ends_a_link_whose_peer_is_heard() {
    let (mut a, mut b) = up();
    a.send(message(1)).unwrap();
    let (mut now, mut event) = (START, None);
    let last = START + Duration::from_millis(1500) * (RESEND_TOLERANCES + 2);
    while event.is_none() && now < last {
        now = a.poll_timeout().min(b.poll_timeout());
        event = a.handle_timeout(now, Pending::default());
        assert_eq!(b.handle_timeout(now, Pending::default()), None);
        // The medium loses only packets of that size.
        for frame in sent(&mut a, now).iter().filter(|f| f.len() < 1000) {
            give(&mut b, now, frame);
        }
        for frame in sent(&mut b, now) {
            give(&mut a, now, &frame);
        }
    }
    assert_eq!(event, Some(LinkEvent::Down(LinkDownReason::ResendFailed)));
    assert!(
        now.since(START) > Duration::from_millis(1500) * RESEND_TOLERANCES,
        "the link must not fail earlier"
    );
}

#[test]
fn answers_to_probes_are_not_answered() {
    let (mut a, mut b) = up();
    a.want_state(true, true);
    let probe = sent(&mut a, START).remove(0);
    give(&mut b, START, &probe);
    let answer = sent(&mut b, START);
    assert_eq!(answer.len(), 1);
    give(&mut a, START, &answer[0]);
    assert_eq!((sent(&mut a, START).len(), sent(&mut b, START).len()), (0, 0));
    assert_eq!(a.round_trip(), Some(Duration::ZERO));
}

#[test]
fn a_peer_that_wants_another_priority_gets_a_new_link_with_it() {
    let (mut a, mut b) = up();
    b.set(START, LinkSettings { priority: Some(20), ..LinkSettings::default() });
    let state = sent(&mut b, START).into_iter().next();
    // An end that changes its priority either announces it or resets the link at once; in both cases the other end comes
    // up with the same priority.
    if let Some(state) = state {
        give(&mut a, START, &state);
    }
    let mut now = START;
    for _ in 0..40 {
        now = a.poll_timeout().min(b.poll_timeout());
        let _ = a.handle_timeout(now, Pending::default());
        let _ = b.handle_timeout(now, Pending::default());
        for frame in sent(&mut a, now) {
            give(&mut b, now, &frame);
        }
        for frame in sent(&mut b, now) {
            give(&mut a, now, &frame);
        }
    }
    assert!(a.is_up() && b.is_up(), "at {now:?}");
    assert_eq!((a.priority(), b.priority()), (20, 20));
}
