//! Tests of a single group membership: order, windows, and members that violate the protocol.

use super::*;
use crate::addr::{Importance, Port};
use crate::wire::{DataKind, DataMessage, ErrorCode, GroupCast, LinkFields, Packet};

const OWN: SocketAddr = SocketAddr { port: Port(1), node: NodeAddr(1) };
const PEER: SocketAddr = SocketAddr { port: Port(7), node: NodeAddr(2) };

fn member(n: u32) -> SocketAddr {
    SocketAddr { port: Port(n), node: NodeAddr(2) }
}

fn request(instance: u32) -> GroupRequest {
    GroupRequest { group: 5000, instance, scope: Scope::Cluster, loopback: false, events: true }
}

fn message(cast: GroupCast, instance: u32, number: u16, wants_ack: bool, text: &[u8]) -> Packet {
    let message = DataMessage {
        importance: Importance::Low,
        dest_droppable: true,
        flag18: false,
        syn: false,
        error: ErrorCode::Ok,
        reroutes: 0,
        lookup_scope: 2,
        orig_port: PEER.port,
        dest_port: Port(0),
        kind: DataKind::Group {
            cast,
            orig: PEER.node,
            dest: NodeAddr(0),
            group: 5000,
            instance,
            number: Seq(number),
            ack_required: wants_ack,
        },
        payload: text,
    };
    Packet::encoded(|out| message.encode(&LinkFields::default(), out))
}

fn arrive(
    g: &mut Group,
    from: SocketAddr,
    cast: GroupCast,
    instance: u32,
    number: u16,
    text: &[u8],
) -> Outcome {
    let message = message(cast, instance, number, false, text);
    let (number, wants_ack) = (Seq(number), false);
    let mut out = Outcome::default();
    g.accept(from, &GroupData { cast, instance, number, wants_ack, message: &message }, &mut out);
    out
}

fn texts(out: &Outcome) -> Vec<&[u8]> {
    out.queue.iter().filter_map(|i| Some(i.message.as_ref()?.view().data())).collect()
}

fn protocol(g: &mut Group, from: SocketAddr, kind: GroupProtocolKind) -> Outcome {
    let mut out = Outcome::default();
    g.handle_protocol(OWN, from, kind, &mut out);
    out
}

fn events(out: &Outcome) -> Vec<MembershipEvent> {
    out.queue.iter().filter_map(|i| i.source.event).collect()
}

/// Makes a socket a member whose first broadcast has number 0.
fn introduce(g: &mut Group, addr: SocketAddr) {
    let mut out = Outcome::default();
    g.published(addr, 3, 1, &mut out);
    let join = GroupProtocolKind::Join { sync: Seq(0), window: GROUP_WINDOW_IDLE };
    let out = protocol(g, addr, join);
    assert_eq!(events(&out), [MembershipEvent::Joined]);
    let window = GROUP_WINDOW_IDLE;
    assert_eq!(out.send, [(addr, GroupProtocolKind::Advertise { window })]);
}

#[test]
fn a_member_counts_when_both_its_binding_and_its_word_are_known() {
    let mut g = Group::new(request(1), Seq(0));
    let join = GroupProtocolKind::Join { sync: Seq(9), window: 0 };
    assert!(events(&protocol(&mut g, PEER, join)).is_empty());
    let mut out = Outcome::default();
    assert_eq!(g.broadcast(1, &mut out), Err(Refusal::Nobody), "the member has not joined yet");
    g.published(PEER, 3, 1, &mut out);
    assert_eq!(events(&out), [MembershipEvent::Joined]);
    let hello = GroupProtocolKind::Join { sync: Seq(0), window: GROUP_WINDOW_IDLE };
    assert_eq!(out.send, [(PEER, hello)], "the answer grants a window");
    assert_eq!(
        g.broadcast(1, &mut Outcome::default()),
        Err(Refusal::Congested),
        "the member granted no window"
    );
    let more = protocol(&mut g, PEER, GroupProtocolKind::Advertise { window: 65 });
    assert!(more.wake);
    assert_eq!(g.broadcast(1, &mut Outcome::default()), Ok(true));
}

#[test]
fn broadcasts_multicasts_and_unicasts_come_in_the_order_of_sending() {
    use GroupCast::{Broadcast, Multicast, Unicast};
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, PEER);
    // Sent: broadcast 0 "a", unicast "b", multicast 1 to others, multicast 2 "d" to us, unicast "e", broadcast
    // 3 "f".
    let mut got = Vec::new();
    let sent: [(GroupCast, u32, u16, &[u8]); 6] = [
        (Unicast, 0, 1, b"b"),
        (Unicast, 0, 3, b"e"),
        (Broadcast, 0, 3, b"f"),
        (Multicast, 1, 2, b"d"),
        (Broadcast, 0, 0, b"a"),
        (Multicast, 99, 1, b"x"),
    ];
    for (cast, instance, number, text) in sent {
        let out = arrive(&mut g, PEER, cast, instance, number, text);
        got.extend(texts(&out).into_iter().map(<[u8]>::to_vec));
    }
    assert_eq!(got.concat(), b"abdef");
    assert_eq!(arrive(&mut g, PEER, Broadcast, 0, 2, b"again").dropped, [DropReason::Duplicate]);
    assert_eq!(g.held_bytes(), 0);
}

#[test]
fn leaving_comes_after_everything_that_was_sent_before() {
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, PEER);
    assert!(events(&protocol(&mut g, PEER, GroupProtocolKind::Leave { sync: Seq(2) })).is_empty());
    let mut out = Outcome::default();
    g.withdrawn(PEER, 1, true, &mut out);
    assert!(events(&out).is_empty());
    let out = arrive(&mut g, PEER, GroupCast::Broadcast, 0, 1, b"last");
    assert!(texts(&out).is_empty());
    let out = arrive(&mut g, PEER, GroupCast::Broadcast, 0, 0, b"but one");
    assert_eq!(texts(&out), [&b"but one"[..], b"last"]);
    assert_eq!(events(&out), [MembershipEvent::Left]);
    assert!(g.members.is_empty());
}

#[test]
fn a_socket_that_leaves_and_joins_again_is_met_again_whatever_comes_first() {
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, PEER);
    let mut out = Outcome::default();
    // Names overtake the protocol: the old binding is withdrawn and the new one published before LEAVE and JOIN
    // arrive.
    g.withdrawn(PEER, 1, true, &mut out);
    g.published(PEER, 4, 2, &mut out);
    let out = protocol(&mut g, PEER, GroupProtocolKind::Leave { sync: Seq(0) });
    assert_eq!(events(&out), [MembershipEvent::Left]);
    let join = GroupProtocolKind::Join { sync: Seq(40), window: 0 };
    assert_eq!(events(&protocol(&mut g, PEER, join)), [MembershipEvent::Joined]);
    // The protocol overtakes the names.
    let out = protocol(&mut g, PEER, GroupProtocolKind::Leave { sync: Seq(40) });
    assert_eq!(events(&out), [MembershipEvent::Left]);
    assert!(events(&protocol(&mut g, PEER, join)).is_empty());
    let mut out = Outcome::default();
    g.withdrawn(PEER, 2, true, &mut out);
    g.published(PEER, 4, 3, &mut out);
    assert_eq!(
        events(&out),
        [MembershipEvent::Joined],
        "the late withdrawal must not end the new membership"
    );
    // Finally, the node is lost.
    let mut out = Outcome::default();
    g.withdrawn(PEER, 3, false, &mut out);
    assert_eq!(events(&out), [MembershipEvent::Left]);
}

/// Regression test for duplicate acknowledgements, which could block groups in the kernel for ever, and for similar
/// cases.
#[test]
fn acknowledgements_that_nobody_asked_for_change_nothing() {
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, member(7));
    introduce(&mut g, member(8));
    let mut out = Outcome::default();
    let ack = |next| GroupProtocolKind::Ack { next: Seq(next) };
    protocol(&mut g, member(7), ack(0));
    assert_eq!(g.broadcast(100, &mut out), Ok(true));
    g.sent_broadcast(100, true);
    assert_eq!(g.broadcast(100, &mut out), Err(Refusal::Congested), "two acknowledgements missing");
    for _ in 0..5 {
        protocol(&mut g, member(7), ack(1));
        protocol(&mut g, member(9), ack(1));
        protocol(&mut g, member(8), ack(0));
    }
    assert_eq!(
        g.broadcast(100, &mut out),
        Err(Refusal::Congested),
        "one acknowledgement is still missing"
    );
    assert!(protocol(&mut g, member(8), ack(1)).wake);
    for _ in 0..3 {
        protocol(&mut g, member(8), ack(1));
    }
    assert_eq!(g.broadcast(100, &mut out), Ok(false), "the broadcast may use the broadcast link");
    g.sent_broadcast(100, false);
    assert_eq!(g.broadcast(100, &mut out), Ok(false));
    // A member that leaves no longer owes an acknowledgement.
    g.sent_unicast(member(7), 1);
    assert_eq!(g.broadcast(1, &mut out), Ok(true));
    g.sent_broadcast(1, true);
    protocol(&mut g, member(8), ack(3));
    protocol(&mut g, member(7), GroupProtocolKind::Leave { sync: Seq(0) });
    assert_eq!(g.broadcast(1, &mut out), Ok(false));
}

#[test]
fn a_window_limits_the_sender_and_grows_when_the_reader_reads() {
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, PEER);
    let mut out = Outcome::default();
    let mut sent = 0;
    while g.unicast(PEER, 980, &mut out).is_ok() {
        g.sent_unicast(PEER, 980);
        sent += 1;
    }
    assert_eq!(sent, 32, "the window has 65 blocks, and each message needs two");
    assert!(!g.is_open());
    assert!(protocol(&mut g, PEER, GroupProtocolKind::Advertise { window: 60_000 }).wake);
    let m = &g.members[&PEER];
    assert_eq!(m.window, u32::from(GROUP_WINDOW_ACTIVE), "no window may exceed the large window");
    // The other direction: the first message read makes its sender active.
    let mut out = Outcome::default();
    g.read(PEER, 1, &mut out);
    let window = GROUP_WINDOW_ACTIVE - GROUP_WINDOW_IDLE + 1;
    assert_eq!(out.send, [(PEER, GroupProtocolKind::Advertise { window })]);
    let mut out = Outcome::default();
    g.read(PEER, 194, &mut out);
    assert!(out.send.is_empty(), "586 of 780 blocks are left, so the window is not renewed yet");
    g.read(PEER, 1, &mut out);
    assert_eq!(out.send, [(PEER, GroupProtocolKind::Advertise { window: 195 })]);
}

#[test]
fn a_window_that_is_wanted_back_is_given_back_but_for_a_small_one() {
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, PEER);
    protocol(&mut g, PEER, GroupProtocolKind::Advertise { window: 300 });
    let before = g.members[&PEER].window;
    let out = protocol(&mut g, PEER, GroupProtocolKind::Reclaim);
    let window = u16::try_from(before).unwrap();
    assert_eq!(out.send, [(PEER, GroupProtocolKind::Remit { window })]);
    assert_eq!(g.members[&PEER].window, u32::from(GROUP_WINDOW_IDLE));
}

#[test]
fn greetings_without_end_grant_no_more_than_a_large_window() {
    let mut g = Group::new(request(1), Seq(0));
    for sync in 0..100_000u32 {
        let join = GroupProtocolKind::Join { sync: Seq(sync as u16), window: u16::MAX };
        protocol(&mut g, PEER, join);
    }
    assert_eq!(g.members[&PEER].window, u32::from(GROUP_WINDOW_ACTIVE));
}

#[test]
fn large_windows_go_round_and_members_that_keep_them_stop_nobody() {
    let mut g = Group::new(request(1), Seq(0));
    for n in 0..40 {
        introduce(&mut g, member(n));
    }
    let mut reclaimed = Vec::new();
    for n in 0..40 {
        let mut out = Outcome::default();
        g.read(member(n), 1, &mut out);
        assert!(
            out.send.iter().any(|(to, kind)| {
                *to == member(n) && matches!(kind, GroupProtocolKind::Advertise { .. })
            }),
            "member {n} must still be able to send"
        );
        reclaimed
            .extend(out.send.iter().filter(|s| s.1 == GroupProtocolKind::Reclaim).map(|s| s.0));
    }
    assert!(g.active_count <= g.active_max() + 1, "{} large windows", g.active_count);
    assert_eq!(
        reclaimed[..3],
        [member(0), member(1), member(2)],
        "large windows are reclaimed from the longest idle members first"
    );
    let pending = g.pending.len();
    assert!(pending > 0);
    // One member returns its window: 700 blocks of it were left, the rest is still unread.
    let advertised = g.members[&member(0)].advertised;
    let left = advertised as u16 - 10;
    let out = protocol(&mut g, member(0), GroupProtocolKind::Remit { window: left });
    assert!(out.send.is_empty());
    let mut out = Outcome::default();
    g.read(member(0), 10, &mut out);
    assert_eq!(g.members[&member(0)].state, MemberState::Joined);
    assert_eq!(g.pending.len(), pending - 1, "the next member got a large window");
    // A member that never answers slows down only itself: those that wait keep getting their small window.
    for _ in 0..100 {
        let addr = g.pending[0];
        let mut out = Outcome::default();
        g.read(addr, 65, &mut out);
        assert_eq!(out.send, [(addr, GroupProtocolKind::Advertise { window: 65 })]);
    }
    let out = protocol(&mut g, member(30), GroupProtocolKind::Remit { window: 1 });
    assert_eq!(
        out.dropped,
        [DropReason::NotMember],
        "the return of a window that was not requested is dropped"
    );
}

#[test]
fn strangers_and_floods_are_bounded() {
    let mut g = Group::new(request(1), Seq(0));
    introduce(&mut g, PEER);
    let join = GroupProtocolKind::Join { sync: Seq(0), window: 1 };
    for n in 100..100 + GROUP_JOINING_MAX as u32 {
        protocol(&mut g, member(n), join);
    }
    assert_eq!(protocol(&mut g, member(1), join).dropped, [DropReason::TooManyMembers]);
    assert_eq!(
        arrive(&mut g, member(100), GroupCast::Broadcast, 0, 0, b"x").dropped,
        [DropReason::NotMember]
    );
    let mut dropped = 0;
    for n in 0..200_u16 {
        let out = arrive(&mut g, PEER, GroupCast::Broadcast, 0, n + 2, &[1; 60_000]);
        assert!(out.queue.is_empty(), "nothing may be delivered before number 0 arrives");
        dropped += out.dropped.len();
    }
    assert!(
        dropped > 150 && g.held_bytes() < 2 << 20,
        "{dropped} messages dropped, {} bytes stored",
        g.held_bytes()
    );
    let mut out = Outcome::default();
    g.lose_node(NodeAddr(2), &mut out);
    assert_eq!(
        events(&out).len(),
        1,
        "only the one member whose joining was reported may be reported as having left"
    );
    assert!(g.members.is_empty() && g.held_bytes() == 0);
}

#[test]
fn anycasts_go_round_and_pass_over_those_without_room() {
    let mut g = Group::new(request(1), Seq(0));
    for n in 1..=3 {
        introduce(&mut g, member(n));
    }
    let mut out = Outcome::default();
    let mut turns = Vec::new();
    for _ in 0..6 {
        let to = g.anycast(3, 10, &mut out).unwrap();
        g.sent_unicast(to, 10);
        turns.push(to.port.0);
    }
    assert_eq!(turns, [1, 2, 3, 1, 2, 3]);
    while g.unicast(member(1), 60_000, &mut out).is_ok() {
        g.sent_unicast(member(1), 60_000);
    }
    for expected in [2, 3] {
        assert_eq!(g.anycast(3, 60_000, &mut out), Ok(member(expected)));
        g.sent_unicast(member(expected), 60_000);
    }
    assert_eq!(g.anycast(3, 60_000, &mut out), Err(Refusal::Congested));
    assert_eq!(g.anycast(4, 1, &mut out), Err(Refusal::Nobody));
}
