//! Tests of multicasts by broadcast and by replicast, and of their order when a sender switches between the two.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::socket::{Address, MulticastMethod, SocketError, SocketKind};
use crossway_tipc_sim::{Conditions, HostId, Network, seeds};
use rand::RngExt;

const SERVICE: u32 = 4000;
const EVERYBODY: Address =
    Address::Range(ServiceRange { service: SERVICE, lower: 0, upper: u32::MAX });

fn cluster(seed: u64, hosts: usize) -> Network {
    let mut net = Network::new(seed, hosts, 1500, Duration::from_millis(1500));
    for host in 0..hosts {
        net.start(HostId(host), false);
    }
    net.run(Duration::from_secs(3));
    for host in 0..hosts {
        assert_eq!(net.with(HostId(host), |n, _| n.peers().count()), Some(hosts - 1));
    }
    net
}

/// Opens a socket on a host and binds it to the host's own instance.
fn receiver(net: &mut Network, host: HostId) -> Port {
    let port = net.with(host, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        let range = ServiceRange::single(SERVICE, host.0 as u32);
        node.bind(port, range, Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_millis(50));
    port.unwrap()
}

fn choose(net: &mut Network, host: HostId, port: Port, method: MulticastMethod) {
    net.with(host, |node, _| {
        let mut options = node.socket_report(port).unwrap().options;
        options.multicast = method;
        node.set_options(port, options).unwrap();
    });
}

fn send(
    net: &mut Network,
    host: HostId,
    port: Port,
    to: Address,
    text: &[u8],
) -> Result<usize, SocketError> {
    net.with(host, |node, now| node.send(now, port, Some(to), text)).unwrap()
}

fn received(net: &mut Network, host: HostId, port: Port) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(Ok(m)) = net.with(host, |node, now| node.recv(now, port, 100_000)) {
        all.push(m.payload);
    }
    all
}

/// Returns the numbers of data frames among the recorded frames: those sent by broadcast, and those sent by replicast.
fn data_frames(net: &mut Network) -> (usize, usize) {
    let frames = net.record.replace(Vec::new()).unwrap_or_default();
    // Version 2, users 0 to 3 or fragments: the first byte without its last bit.
    let is_data = |f: &&Vec<u8>| matches!((f[0] >> 1) & 15, 0..=3 | 12);
    let (mut broadcast, mut replicast) = (0, 0);
    for frame in frames.iter().filter(is_data) {
        if frame[1] & 0x10 != 0 {
            broadcast += 1;
        } else {
            replicast += 1;
        }
    }
    (broadcast, replicast)
}

#[test]
fn few_destinations_get_copies_and_many_get_one_broadcast() {
    let mut net = cluster(1, 12);
    let ports: Vec<Port> = (1..12).map(|n| receiver(&mut net, HostId(n))).collect();
    let sender = net.with(HostId(0), |n, _| n.open(SocketKind::Rdm).unwrap()).unwrap();
    let up_to = |n: u32| Address::Range(ServiceRange { service: SERVICE, lower: 1, upper: n });
    net.record = Some(Vec::new());
    // Eleven peers: two destinations, one plus a tenth of eleven, still get individual copies.
    send(&mut net, HostId(0), sender, up_to(2), b"two").unwrap();
    net.run(Duration::from_millis(100));
    assert_eq!(data_frames(&mut net), (0, 2));
    send(&mut net, HostId(0), sender, up_to(11), b"all").unwrap();
    net.run(Duration::from_millis(100));
    assert_eq!(data_frames(&mut net), (1, 11), "one broadcast, and one twin to each node");
    send(&mut net, HostId(0), sender, up_to(11), &[7; 5_000]).unwrap();
    net.run(Duration::from_millis(100));
    assert_eq!(data_frames(&mut net), (4, 0), "four broadcast fragments reach all eleven nodes");
    for (n, port) in ports.iter().enumerate() {
        let got = received(&mut net, HostId(n + 1), *port);
        let lens: Vec<usize> = got.iter().map(Vec::len).collect();
        assert_eq!(lens, if n < 2 { vec![3, 3, 5_000] } else { vec![3, 5_000] }, "host {}", n + 1);
    }
    // A node without a matching binding also receives the broadcast and drops it.
    choose(&mut net, HostId(0), sender, MulticastMethod::Broadcast);
    send(&mut net, HostId(0), sender, up_to(1), b"one").unwrap();
    net.run(Duration::from_millis(100));
    assert_eq!(received(&mut net, HostId(1), ports[0]), [b"one"]);
    assert!(received(&mut net, HostId(2), ports[1]).is_empty());
}

#[test]
fn a_sender_of_broadcasts_waits_for_room_and_is_woken() {
    let mut net = cluster(3, 3);
    let ports: Vec<Port> = (1..3).map(|n| receiver(&mut net, HostId(n))).collect();
    let sender = net.with(HostId(0), |n, _| n.open(SocketKind::Rdm).unwrap()).unwrap();
    choose(&mut net, HostId(0), sender, MulticastMethod::Broadcast);
    let (mut sent, mut waits) = (0_u32, 0);
    net.take_events();
    while sent < 2_000 {
        match send(&mut net, HostId(0), sender, EVERYBODY, &[sent.to_be_bytes(); 300].concat()) {
            Ok(_) => sent += 1,
            Err(error) => {
                assert_eq!(error, SocketError::WouldBlock);
                waits += 1;
                let woken = |net: &mut Network| {
                    net.take_events().iter().any(|(h, e)| {
                        let ready = crossway_tipc_proto::node::Event::SocketReady(sender);
                        *h == HostId(0) && *e == ready
                    })
                };
                let until = net.now() + Duration::from_secs(5);
                while !woken(&mut net) {
                    assert!(net.step(until), "the sender was never woken");
                }
            }
        }
    }
    assert!(waits > 5, "the backlog never filled");
    net.run(Duration::from_secs(2));
    for (n, port) in ports.iter().enumerate() {
        let got = received(&mut net, HostId(n + 1), *port);
        // The receive queue of 2 MiB holds less than all of it; what was received is the beginning, in order.
        assert!(got.len() > 800, "{}", got.len());
        for (n, payload) in got.iter().enumerate() {
            assert_eq!(payload[..4], (n as u32).to_be_bytes());
        }
    }
}

/// Senders switch methods at random, on a medium that delays, loses and duplicates frames. Every receiver must get
/// every message once and in order.
#[test]
fn changing_the_way_keeps_every_message_and_its_order() {
    seeds::each("MULTICAST_SEEDS", 0..60, |seed| {
        let mut net = cluster(seed, 4);
        let hosts = || (0..4).map(HostId);
        let ports: Vec<Port> = hosts().map(|h| receiver(&mut net, h)).collect();
        net.conditions = Conditions {
            loss_per_mille: [0, 20, 100][seed as usize % 3],
            duplicate_per_mille: 20,
            delay_min: Duration::from_micros(50),
            delay_max: Duration::from_millis(1 + seed % 7),
            ..Conditions::default()
        };
        let mut sent = [0_u32; 4];
        let mut expected = [[0_u32; 4]; 4];
        let mut got_total = 0;
        for _ in 0..120 {
            for host in hosts() {
                let method = match net.rng().random_range(0..3) {
                    0 => MulticastMethod::Broadcast,
                    1 => MulticastMethod::Replicast,
                    _ => MulticastMethod::Automatic,
                };
                choose(&mut net, host, ports[host.0], method);
                for _ in 0..net.rng().random_range(1..4) {
                    let mut text = vec![host.0 as u8];
                    text.extend_from_slice(&sent[host.0].to_be_bytes());
                    let len = net.rng().random_range(5..3_000);
                    text.resize(len, 0);
                    match send(&mut net, host, ports[host.0], EVERYBODY, &text) {
                        Ok(_) => sent[host.0] += 1,
                        Err(error) => assert_eq!(error, SocketError::WouldBlock),
                    }
                }
            }
            let pause = net.rng().random_range(0..4_000);
            net.run(Duration::from_micros(pause));
            for to in hosts() {
                for payload in received(&mut net, to, ports[to.0]) {
                    let from = usize::from(payload[0]);
                    let number = u32::from_be_bytes(payload[1..5].try_into().unwrap());
                    assert_eq!(number, expected[to.0][from], "from {from} to {to:?}");
                    expected[to.0][from] += 1;
                    got_total += 1;
                }
            }
        }
        // Shorter than the time after which a missing twin is given up: no result may depend on that.
        net.conditions = Conditions::default();
        net.run(Duration::from_secs(3));
        for to in hosts() {
            for payload in received(&mut net, to, ports[to.0]) {
                let from = usize::from(payload[0]);
                let number = u32::from_be_bytes(payload[1..5].try_into().unwrap());
                assert_eq!(number, expected[to.0][from], "from {from} to {to:?}");
                expected[to.0][from] += 1;
                got_total += 1;
            }
            assert_eq!(expected[to.0], sent, "{to:?} has not received all messages");
            let overload = net.with(to, |n, _| n.drops().get(DropReason::Overload));
            assert_eq!(overload, Some(0));
        }
        assert!(got_total > 1_000, "too few messages arrived for a meaningful test");
    });
}

#[test]
fn messages_that_wait_for_a_lost_node_are_delivered() {
    let mut net = cluster(9, 2);
    let port = receiver(&mut net, HostId(1));
    let sender = net.with(HostId(0), |n, _| n.open(SocketKind::Rdm).unwrap()).unwrap();
    let to = Address::Range(ServiceRange::single(SERVICE, 1));
    choose(&mut net, HostId(0), sender, MulticastMethod::Replicast);
    send(&mut net, HostId(0), sender, to, b"first").unwrap();
    net.run(Duration::from_millis(50));
    assert_eq!(received(&mut net, HostId(1), port), [b"first"]);
    // A forged start of a switch: its twin never arrives.
    let forged = |net: &mut Network| {
        net.record = Some(Vec::new());
        send(net, HostId(0), sender, to, b"again").unwrap();
        let frames = net.record.take().unwrap();
        let mut frame = frames.into_iter().find(|f| f.ends_with(b"again")).unwrap();
        frame[1] |= 2;
        frame
    };
    net.conditions.loss_per_mille = 1000;
    let frame = forged(&mut net);
    net.with(HostId(1), |node, now| {
        node.handle_frame(now, crossway_tipc_proto::addr::BearerId(0), None, &frame);
    });
    assert!(received(&mut net, HostId(1), port).is_empty(), "the multicast must wait for its twin");
    net.crash(HostId(0));
    net.run(Duration::from_secs(4));
    let state = net.with(HostId(1), |n, _| {
        n.peers().all(|p| {
            p.addr != NodeAddr(0x1000)
                || p.links[0].state != crossway_tipc_proto::link::LinkState::Established
        })
    });
    assert_eq!(state, Some(true), "node 0x1000 must be without contact");
    assert_eq!(received(&mut net, HostId(1), port), [b"again"]);
}
