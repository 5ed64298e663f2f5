//! Tests of two links to a peer, step by step: which link carries which traffic, and what happens when a medium or a
//! bearer fails and recovers.

use core::time::Duration;

use crossway_tipc_proto::addr::{
    BearerId, MediaAddr, NodeAddr, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::{BearerConfig, Event};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::wire::Capabilities;
use crossway_tipc_sim::{HostId, Network, Plane, seeds};

const SERVICE: u32 = 1000;
const TOLERANCE: Duration = Duration::from_millis(500);

/// Two nodes on two planes. Returns an even and an odd port of the first node, and the address of a socket of the
/// second.
fn pair(priority: u8, tolerance: Duration) -> (Network, [Port; 2], Address) {
    pair_without(Capabilities::default(), priority, tolerance)
}

/// Like `pair`, but the nodes do not announce the capabilities in `withheld`.
fn pair_without(
    withheld: Capabilities,
    priority: u8,
    tolerance: Duration,
) -> (Network, [Port; 2], Address) {
    let planes = [Plane { mtu: 1500, priority: 10 }, Plane { mtu: 1500, priority }];
    let mut net = Network::with_planes(7, 2, &planes, tolerance);
    net.withheld = withheld;
    net.start(HostId(0), false);
    net.start(HostId(1), false);
    let sink = net.with(HostId(1), |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, ServiceRange::single(SERVICE, 0), Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_secs(3));
    let mut half = |half: u32| {
        net.with(HostId(0), |node, _| {
            loop {
                let port = node.open(SocketKind::Rdm).unwrap();
                if port.0 & 1 == half {
                    return port;
                }
            }
        })
        .unwrap()
    };
    let ports = [half(0), half(1)];
    let dest = SocketAddr { port: sink.unwrap(), node: NodeAddr(0x1001) };
    (net, ports, Address::Socket(dest))
}

/// The number of packets that host 0 has sent on each link, and whether each link is active.
fn sent_on(net: &mut Network) -> ([u64; 2], [bool; 2]) {
    let links = net.with(HostId(0), |node, _| node.peers().next().unwrap().links).unwrap();
    let of = |n: usize| (links[n].stats.packets_sent, links[n].active);
    ([of(0).0, of(1).0], [of(0).1, of(1).1])
}

#[test]
fn each_half_of_the_ports_has_its_link_and_a_link_of_lower_priority_stands_by() {
    for (priority, expected) in [(10, [true, true]), (5, [true, false])] {
        let (mut net, ports, dest) = pair(priority, TOLERANCE);
        let (before, active) = sent_on(&mut net);
        assert_eq!(active, expected);
        for _ in 0..50 {
            for port in ports {
                net.with(HostId(0), |node, now| node.send(now, port, Some(dest), b"x"))
                    .unwrap()
                    .unwrap();
            }
            net.run(Duration::from_millis(1));
        }
        let (after, _) = sent_on(&mut net);
        let counts = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(counts, if expected[1] { [50, 50] } else { [100, 0] });
    }
}

#[test]
fn a_cut_plane_costs_no_contact_and_its_traffic_goes_on_over_the_other() {
    let (mut net, ports, dest) = pair(10, TOLERANCE);
    net.conditions.dead_paths.push((1, HostId(0), HostId(1)));
    for port in ports {
        net.with(HostId(0), |node, now| node.send(now, port, Some(dest), b"x")).unwrap().unwrap();
    }
    net.take_events();
    net.run(Duration::from_secs(2));
    let events: Vec<Event> = net.take_events().into_iter().map(|(_, event)| event).collect();
    assert!(events.iter().any(|e| matches!(e, Event::LinkDown { .. })), "{events:?}");
    assert!(!events.iter().any(|e| matches!(e, Event::PeerDown { .. })), "{events:?}");
    let Address::Socket(sink) = dest else { unreachable!("a socket's address") };
    for _ in 0..2 {
        let got = net.with(HostId(1), |node, now| node.recv(now, sink.port, 10)).unwrap();
        assert_eq!(got.map(|m| m.payload), Ok(b"x".to_vec()));
    }
    assert_eq!(sent_on(&mut net).1, [true, false]);
    net.conditions.dead_paths.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(sent_on(&mut net).1, [true, true], "the link is back");
}

/// A discovery message that arrives on the second medium while the first link is coming up must not be mistaken for a
/// restart of the peer.
#[test]
fn both_links_come_up_at_once_and_stay_up() {
    seeds::each("TWO_LINKS_SEEDS", 0..200, |seed| {
        let mut net =
            Network::with_planes(seed, 2, &[Plane { mtu: 1500, priority: 10 }; 2], TOLERANCE);
        net.conditions.delay_max = Duration::from_millis(3);
        net.start(HostId(0), false);
        net.run(Duration::from_micros(50 * seed));
        net.start(HostId(1), false);
        net.run(TOLERANCE);
        for host in [HostId(0), HostId(1)] {
            let up = net.with(host, |node, _| {
                let peer = node.peers().next();
                peer.map(|p| p.links.iter().filter(|l| l.state == LinkState::Established).count())
            });
            assert_eq!(up, Some(Some(2)), "seed {seed}, {host:?}");
        }
        let down = |(_, e): &(HostId, Event)| matches!(e, Event::LinkDown { .. });
        assert_eq!(net.take_events().iter().find(|e| down(e)), None, "seed {seed}");
    });
}

/// If the device reports the failure of the medium, neither end waits for the tolerance.
#[test]
fn a_medium_that_is_known_to_be_lost_costs_a_round_trip() {
    let (mut net, ports, dest) = pair(10, TOLERANCE);
    let Address::Socket(sink) = dest else { unreachable!("a socket's address") };
    net.take_events();
    net.conditions.dead_paths.push((1, HostId(0), HostId(1)));
    for port in ports {
        net.with(HostId(0), |node, now| node.send(now, port, Some(dest), b"x")).unwrap().unwrap();
    }
    net.run(Duration::from_millis(1));
    net.with(HostId(0), |node, now| node.medium_lost(now, BearerId(1)));
    net.run(Duration::from_millis(2));
    for _ in ports {
        let got = net.with(HostId(1), |node, now| node.recv(now, sink.port, 10)).unwrap();
        assert_eq!(got.map(|m| m.payload), Ok(b"x".to_vec()));
    }
    let events = net.take_events();
    let down = |host: HostId| {
        move |(at, e): &&(HostId, Event)| *at == host && matches!(e, Event::LinkDown { .. })
    };
    for host in [HostId(0), HostId(1)] {
        assert_eq!(events.iter().filter(down(host)).count(), 1, "{events:?}");
    }
    assert!(!events.iter().any(|(_, e)| matches!(e, Event::PeerDown { .. })), "{events:?}");
    net.conditions.dead_paths.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(sent_on(&mut net).1, [true, true], "the link is back");
}

/// If a link fails in the middle of a message, the parts that it has delivered are not lost. The other parts are
/// fragmented as the other link requires: if the peer cannot reassemble tunnelled fragments, each part must fit whole.
#[test]
fn a_message_of_which_half_has_come_when_its_link_dies_arrives_whole() {
    for withheld in [Capabilities::default(), Capabilities::TUNNEL_ENHANCED] {
        let (mut net, ports, dest) = pair_without(withheld, 10, TOLERANCE);
        let Address::Socket(sink) = dest else { unreachable!("a socket's address") };
        let messages: Vec<Vec<u8>> = (0..3).map(|n| vec![n; 60_000]).collect();
        net.take_events();
        for message in &messages {
            net.with(HostId(0), |node, now| node.send(now, ports[1], Some(dest), message))
                .unwrap()
                .unwrap();
        }
        // A window of packets arrives: a message and a fragment of the next.
        net.run(Duration::from_micros(60));
        net.conditions.dead_paths.push((1, HostId(0), HostId(1)));
        net.with(HostId(0), |node, now| node.medium_lost(now, BearerId(1)));
        net.run(Duration::from_millis(500));
        for message in &messages {
            let got = net.with(HostId(1), |node, now| node.recv(now, sink.port, 66_000)).unwrap();
            assert!(got.is_ok_and(|m| m.payload == *message), "without {withheld:?}");
        }
        let events = net.take_events();
        assert!(!events.iter().any(|(_, e)| matches!(e, Event::PeerDown { .. })), "{events:?}");
    }
}

/// Messages sent earlier on the old link arrive before any message on the new link: nothing is sent on the new link
/// until the peer has acknowledged them. If the old link fails first, its packets are sent first through the new link.
#[test]
fn a_new_link_waits_for_what_is_under_way_on_the_old_one() {
    for old_dies in [false, true] {
        let (mut net, ports, dest) = pair(10, TOLERANCE);
        let Address::Socket(sink) = dest else { unreachable!("a socket's address") };
        let (a, b) = (HostId(0), HostId(1));
        net.conditions.dead_paths.push((1, a, b));
        net.with(a, |node, now| node.medium_lost(now, BearerId(1)));
        net.run(Duration::from_secs(2));
        assert!(sent_on(&mut net).1[0], "the remaining link must carry the traffic");
        let send = |net: &mut Network, text: &[u8]| {
            net.with(a, |node, now| node.send(now, ports[1], Some(dest), text)).unwrap().unwrap();
        };
        // The old link falls silent with a message in flight, and the new one comes up.
        net.conditions.dead_paths = vec![(0, a, b)];
        send(&mut net, b"first");
        for host in [a, b] {
            net.with(host, |node, now| node.medium_back(now, BearerId(1)));
        }
        net.run(Duration::from_millis(20));
        assert_eq!(sent_on(&mut net).1, [true, true]);
        net.record = Some(Vec::new());
        send(&mut net, b"second");
        net.run(Duration::from_millis(20));
        let holds = |net: &Network, text: &[u8]| {
            let frames = net.record.as_ref().unwrap();
            frames.iter().position(|f| f.windows(text.len()).any(|w| w == text))
        };
        assert_eq!(holds(&net, b"second"), None, "the second message must not be sent yet");
        if !old_dies {
            net.conditions.dead_paths.clear();
        }
        net.run(Duration::from_secs(2));
        assert!(holds(&net, b"first") < holds(&net, b"second"));
        for text in [&b"first"[..], b"second"] {
            let got = net.with(b, |node, now| node.recv(now, sink.port, 10)).unwrap();
            assert_eq!(got.map(|m| m.payload), Ok(text.to_vec()));
        }
    }
}

/// A link that has been down for a long time sends RESET rarely. If the device reports that the medium is back, the
/// link does not wait for the next RESET.
#[test]
fn a_medium_that_is_known_to_be_back_has_its_link_after_a_few_round_trips() {
    let (mut net, ..) = pair(10, TOLERANCE);
    net.conditions.dead_paths.push((1, HostId(0), HostId(1)));
    net.conditions.dead_paths.push((1, HostId(1), HostId(0)));
    net.with(HostId(0), |node, now| node.medium_lost(now, BearerId(1)));
    net.run(Duration::from_secs(200));
    net.conditions.dead_paths.clear();
    net.take_events();
    net.with(HostId(0), |node, now| node.medium_back(now, BearerId(1)));
    net.run(Duration::from_millis(10));
    let events = net.take_events();
    for host in [HostId(0), HostId(1)] {
        let up = |(at, e): &&(HostId, Event)| {
            *at == host && matches!(e, Event::LinkUp { bearer: BearerId(1), .. })
        };
        assert_eq!(events.iter().filter(up).count(), 1, "{events:?}");
    }
}

/// Disabling a bearer takes only its own link down. When the bearer is enabled again, the link comes up again.
#[test]
fn a_bearer_comes_and_goes_without_a_message_lost() {
    let (mut net, ports, dest) = pair(10, TOLERANCE);
    let Address::Socket(sink) = dest else { unreachable!("a socket's address") };
    net.conditions.loss_per_mille = 20;
    let (mut sent, mut got, mut next) = (0_u32, 0, [0_u32; 2]);
    for round in 0..60 {
        let (host, plane) = (HostId(round / 2 % 2), round as u8 / 4 % 2);
        net.with(host, |node, now| match round % 2 {
            0 => node.disable_bearer(now, BearerId(plane)).unwrap(),
            _ => {
                let media = MediaAddr::Ethernet([2, 0, 0, plane, 0, host.0 as u8]);
                let mut cfg = BearerConfig::new("again", media, 1500);
                cfg.tolerance = TOLERANCE;
                assert_eq!(node.enable_bearer(now, cfg), Ok(BearerId(plane)));
            }
        });
        for _ in 0..20 {
            for (half, port) in ports.into_iter().enumerate() {
                let payload = [[half as u8; 4], sent.to_be_bytes()].concat();
                let result =
                    net.with(HostId(0), |node, now| node.send(now, port, Some(dest), &payload));
                assert_eq!(result, Some(Ok(8)), "there must be contact and room to send");
            }
            sent += 1;
            net.run(Duration::from_millis(7));
        }
        if round % 2 == 1 {
            // Time for the link to come up again before the other fails.
            net.run(Duration::from_secs(4));
        }
        while let Some(Ok(m)) = net.with(HostId(1), |node, now| node.recv(now, sink.port, 100)) {
            let half = usize::from(m.payload[0]);
            assert_eq!(m.payload[4..], next[half].to_be_bytes(), "round {round}");
            next[half] += 1;
            got += 1;
        }
    }
    net.run(Duration::from_secs(2));
    while let Some(Ok(_)) = net.with(HostId(1), |node, now| node.recv(now, sink.port, 100)) {
        got += 1;
    }
    assert_eq!(got, 2 * sent);
    assert!(!net.take_events().iter().any(|(_, e)| matches!(e, Event::PeerDown { .. })));
}

/// With three media, there are two links, and a link on the third medium replaces one that stays down.
#[test]
fn a_third_medium_replaces_one_that_stays_dead() {
    let planes = [Plane { mtu: 1500, priority: 10 }; 3];
    let mut net = Network::with_planes(3, 2, &planes, TOLERANCE);
    net.start(HostId(0), false);
    net.start(HostId(1), false);
    net.run(Duration::from_secs(3));
    let bearers = |net: &mut Network| -> Vec<u8> {
        let links = net.with(HostId(0), |node, _| node.peers().next().unwrap().links).unwrap();
        links.iter().filter(|l| l.state == LinkState::Established).map(|l| l.bearer.0).collect()
    };
    let first = bearers(&mut net);
    assert_eq!(first.len(), 2, "there must be exactly two links");
    let spare = (0..3).find(|n| !first.contains(n)).unwrap();
    net.take_events();
    net.conditions.dead_paths.push((usize::from(first[0]), HostId(0), HostId(1)));
    net.run(Duration::from_secs(130));
    let mut expected = vec![first[1], spare];
    expected.sort_unstable();
    assert_eq!(bearers(&mut net), expected);
    assert!(!net.take_events().iter().any(|(_, e)| matches!(e, Event::PeerDown { .. })));
}

/// Measures the delay of a message that was sent to a medium that had just failed. The delay is at most one and a half
/// tolerances: the tolerance, which is checked at intervals of a quarter of it, plus two such intervals. All times are
/// virtual.
#[test]
fn a_cut_costs_at_most_six_quarters_of_the_tolerance() {
    for tolerance_ms in [50, 200, 1_500] {
        let tolerance = Duration::from_millis(tolerance_ms);
        let (mut net, ports, dest) = pair(10, tolerance);
        let Address::Socket(sink) = dest else { unreachable!("a socket's address") };
        let mut longest = Duration::ZERO;
        for round in 0..20_u32 {
            let plane = round as usize % 2;
            // At various moments between two steps.
            net.run(Duration::from_micros(u64::from(round) * tolerance_ms * 13));
            net.conditions.dead_paths.push((plane, HostId(0), HostId(1)));
            let cut = net.now();
            for port in ports {
                let payload = round.to_be_bytes();
                net.with(HostId(0), |node, now| node.send(now, port, Some(dest), &payload))
                    .unwrap()
                    .unwrap();
            }
            let mut got = 0;
            while got < 2 {
                let next = net.now() + Duration::from_micros(100);
                net.step(next);
                while let Some(Ok(m)) =
                    net.with(HostId(1), |node, now| node.recv(now, sink.port, 100))
                {
                    assert_eq!(m.payload, round.to_be_bytes());
                    got += 1;
                }
                assert!(
                    net.now().since(cut) < Duration::from_secs(10),
                    "round {round}: only {got} of 2 messages arrived"
                );
            }
            longest = longest.max(net.now().since(cut));
            net.conditions.dead_paths.clear();
            net.run(tolerance * 20);
        }
        assert!(
            longest <= tolerance * 3 / 2,
            "with a tolerance of {tolerance:?}, a message was delayed by {longest:?}"
        );
        eprintln!(
            "with a tolerance of {tolerance:?}, a message was delayed by at most {longest:?}"
        );
    }
}
