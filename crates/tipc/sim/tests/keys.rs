//! Tests of encryption between nodes in virtual time: all kinds of keys, changes of keys under load and loss, frames that
//! were altered, cut, repeated or encrypted with other keys, and the way from plain to encrypted frames.

use core::time::Duration;
use std::cell::Cell;
use std::collections::BTreeSet;

use crossway_tipc_proto::addr::{NodeAddr, NodeId, Port, Scope, ServiceRange};
use crossway_tipc_proto::crypto::{KeyOwner, KeyState, Keyring, Rekeying, SecretKey};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_sim::{HostId, Network, Toy, seeds};
use rand::RngExt as _;

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const C: HostId = HostId(2);
const ALL: [HostId; 3] = [A, B, C];
const SECOND: Duration = Duration::from_secs(1);

fn key(n: u8) -> SecretKey {
    SecretKey::new(&[n; 36][..[20, 28, 36][usize::from(n) % 3]]).unwrap()
}

/// The identity that [`Network::start`] gives to a host.
fn id(host: HostId) -> NodeId {
    let mut id = [0; 16];
    id[12..].copy_from_slice(&(0x1000 + host.0 as u32).to_be_bytes());
    NodeId(id)
}

type Keys = fn(HostId, &mut Keyring<Toy>, Nanos);

fn cluster(host: HostId, ring: &mut Keyring<Toy>, now: Nanos) {
    ring.set_key(now, Some(id(host)), key(1), KeyOwner::Cluster).unwrap();
}

fn master(host: HostId, ring: &mut Keyring<Toy>, now: Nanos) {
    ring.set_key(now, Some(id(host)), key(2), KeyOwner::Master).unwrap();
}

fn of_nodes(host: HostId, ring: &mut Keyring<Toy>, now: Nanos) {
    for other in ALL {
        let owner = KeyOwner::Node(id(other));
        ring.set_key(now, Some(id(host)), key(10 + other.0 as u8), owner).unwrap();
    }
}

fn rekeyed(host: HostId, ring: &mut Keyring<Toy>, now: Nanos) {
    master(host, ring, now);
    ring.set_rekeying(now, Rekeying::Every(2 * SECOND));
}

fn network(seed: u64, keys: Keys) -> Network {
    let mut net = Network::new(seed, 3, 1500, Duration::from_millis(1500));
    net.keys = Some(keys);
    for host in ALL {
        net.start(host, false);
    }
    net
}

fn peers_up(net: &mut Network, host: HostId) -> usize {
    net.with(host, |node, _| node.peers().filter(|p| p.up).count()).unwrap()
}

fn drops(net: &mut Network, host: HostId, reason: DropReason) -> u64 {
    net.with(host, |node, _| node.drops().get(reason)).unwrap()
}

fn contacts_lost(net: &mut Network) -> usize {
    let events = net.take_events();
    events.iter().filter(|(_, event)| matches!(event, Event::PeerDown { .. })).count()
}

/// What all nodes have dropped, and the keys that they know, for a failing test.
fn state(net: &mut Network) -> String {
    let mut text = format!("at {:?}", net.now());
    for host in ALL {
        let drops = net.with(host, |node, _| node.drops().iter().collect::<Vec<_>>());
        let ring = &net.hosts()[host.0].keyring;
        let peers: Vec<_> = ring.peer_keys().collect();
        text += &format!("\n{host:?}: {drops:?}, {:?}, {peers:?}", ring.own_keys(net.now()));
    }
    text
}

/// Numbered messages between all hosts, unicast and multicast; checks that they arrive once and in order.
struct Traffic {
    ports: Vec<Port>,
    sent: u32,
    /// For each receiver and sender, the number of the next unicast and multicast.
    next: [[[u32; 2]; 3]; 3],
}

impl Traffic {
    fn open(net: &mut Network) -> Self {
        let open = |host| {
            let port = net.with(host, |node, _| {
                let port = node.open(SocketKind::Rdm).unwrap();
                let own = ServiceRange::single(1000, host.0 as u32);
                node.bind(port, own, Scope::Cluster).unwrap();
                node.bind(port, ServiceRange::single(1001, 0), Scope::Cluster).unwrap();
                port
            });
            port.unwrap()
        };
        let ports = ALL.map(open).to_vec();
        net.run(SECOND);
        Self { ports, sent: 0, next: [[[0; 2]; 3]; 3] }
    }

    /// Sends one message from every host to every other one, and a multicast from every host.
    fn send(&mut self, net: &mut Network) {
        for from in ALL {
            let mut payload = vec![from.0 as u8, 0];
            payload.extend_from_slice(&self.sent.to_be_bytes());
            // Fragments, too.
            payload.resize(100 + self.sent as usize % 7 * 700, 7);
            let port = self.ports[from.0];
            for to in ALL.into_iter().filter(|to| *to != from) {
                let instance = to.0 as u32;
                let dest = Address::Service { service: 1000, instance, domain: NodeAddr(0) };
                let sent = net.with(from, |node, now| node.send(now, port, Some(dest), &payload));
                assert!(sent.unwrap().is_ok(), "from {from:?} to {to:?}: {}", state(net));
            }
            payload[1] = 1;
            let everyone = Address::Range(ServiceRange::single(1001, 0));
            net.with(from, |node, now| node.send(now, port, Some(everyone), &payload).unwrap());
        }
        self.sent += 1;
    }

    fn receive(&mut self, net: &mut Network) {
        for to in ALL {
            let port = self.ports[to.0];
            loop {
                match net.with(to, |node, now| node.recv(now, port, 10_000)).unwrap() {
                    Ok(message) => {
                        let (from, kind) = (message.payload[0], message.payload[1]);
                        let number = u32::from_be_bytes(message.payload[2..6].try_into().unwrap());
                        let next = &mut self.next[to.0][usize::from(from)][usize::from(kind)];
                        assert_eq!(number, *next, "from {from} to {to:?}");
                        *next += 1;
                    }
                    Err(SocketError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Runs for some time with messages every 100 ms.
    fn run(&mut self, net: &mut Network, time: Duration) {
        for _ in 0..time.as_millis() / 100 {
            self.send(net);
            net.run(Duration::from_millis(100));
            self.receive(net);
        }
    }

    fn check(&mut self, net: &mut Network) {
        net.run(5 * SECOND);
        self.receive(net);
        for (to, from) in ALL.into_iter().flat_map(|to| ALL.map(|from| (to, from))) {
            let [unicasts, multicasts] = self.next[to.0][from.0];
            assert_eq!(multicasts, self.sent, "from {from:?} to {to:?}");
            assert_eq!(unicasts, if to == from { 0 } else { self.sent }, "from {from:?} to {to:?}");
        }
    }
}

#[test]
fn with_each_kind_of_key_messages_arrive_and_every_frame_is_encrypted() {
    for keys in [cluster as Keys, master, of_nodes, rekeyed] {
        let mut net = network(1, keys);
        net.record = Some(Vec::new());
        net.run(4 * SECOND);
        let mut traffic = Traffic::open(&mut net);
        traffic.run(&mut net, 25 * SECOND);
        traffic.check(&mut net);
        assert_eq!(contacts_lost(&mut net), 0);
        let frames = net.record.take().unwrap();
        assert!(frames.len() > 1_000);
        assert!(frames.iter().all(|f| f[0] >> 5 == 7), "no plain frame");
        assert!(!frames.iter().any(|f| f.windows(16).any(|w| w == [7; 16])), "nothing readable");
        for host in ALL {
            for reason in [DropReason::NotGenuine, DropReason::Replayed, DropReason::Plain] {
                assert_eq!(drops(&mut net, host, reason), 0, "{}", reason.name());
            }
        }
    }
}

#[test]
fn nodes_without_the_key_or_with_another_one_stay_outside() {
    let mut net = network(2, |host, ring, now| match host {
        A => cluster(host, ring, now),
        B => ring.set_key(now, Some(id(host)), key(9), KeyOwner::Cluster).unwrap(),
        _ => {}
    });
    net.run(30 * SECOND);
    for host in ALL {
        assert_eq!(peers_up(&mut net, host), 0, "{host:?}");
    }
    for host in [A, B] {
        assert!(drops(&mut net, host, DropReason::NotGenuine) > 5, "the other key");
        assert!(drops(&mut net, host, DropReason::Plain) > 5, "no key");
    }
    assert!(drops(&mut net, C, DropReason::Encrypted) > 10);
}

thread_local! {
    static FRAMES: Cell<u32> = const { Cell::new(0) };
}

/// Flips a bit of every 20th frame, and cuts every 21st.
fn meddle(_: HostId, frame: &mut Vec<u8>) {
    let n = FRAMES.get() + 1;
    FRAMES.set(n);
    if n.is_multiple_of(20) {
        let bit = n as usize * 7919 % (frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
    } else if n.is_multiple_of(21) {
        frame.truncate(n as usize * 7907 % frame.len());
    }
}

#[test]
fn altered_and_cut_frames_are_counted_and_sent_again() {
    let mut net = network(3, cluster);
    net.meddler = Some(meddle);
    net.run(4 * SECOND);
    let mut traffic = Traffic::open(&mut net);
    traffic.run(&mut net, 20 * SECOND);
    net.meddler = None;
    traffic.check(&mut net);
    assert_eq!(contacts_lost(&mut net), 0);
    for host in ALL {
        assert!(drops(&mut net, host, DropReason::NotGenuine) > 20);
    }
}

#[test]
fn repeated_frames_are_refused_also_after_the_sender_restarted() {
    for keys in [cluster as Keys, of_nodes] {
        let mut net = network(4, keys);
        net.record = Some(Vec::new());
        net.run(4 * SECOND);
        let mut traffic = Traffic::open(&mut net);
        traffic.run(&mut net, 2 * SECOND);
        let recorded = net.record.take().unwrap();
        let replay = |net: &mut Network| {
            for frame in &recorded {
                let before = net.with(A, |node, _| node.drops().iter().map(|d| d.1).sum::<u64>());
                net.deliver(0, B, A, frame.clone());
                let after = net.with(A, |node, _| node.drops().iter().map(|d| d.1).sum::<u64>());
                assert!(after > before, "a frame was accepted twice, or one of A itself");
            }
        };
        replay(&mut net);
        assert!(drops(&mut net, A, DropReason::Replayed) > 50);
        traffic.check(&mut net);
        assert_eq!(contacts_lost(&mut net), 0);
        // A new life with the same key begins with other numbers, and is heard.
        net.crash(B);
        net.run(5 * SECOND);
        net.start(B, false);
        net.run(5 * SECOND);
        assert_eq!(peers_up(&mut net, A), 2);
        contacts_lost(&mut net);
        replay(&mut net);
        net.run(5 * SECOND);
        assert_eq!((peers_up(&mut net, A), contacts_lost(&mut net)), (2, 0));
    }
}

/// Keys of each kind are replaced while frames are lost, repeated and overtaken, and paths are cut for up to a second, as
/// long as plain links would stand.
#[test]
fn keys_change_under_load_without_losing_a_message() {
    let switches = seeds::each("KEYS_SEEDS", 0..6, |seed| {
        let keys = [rekeyed as Keys, cluster, of_nodes][seed as usize % 3];
        let mut net = network(seed, keys);
        net.conditions.delay_max = Duration::from_millis(net.rng().random_range(1..30));
        net.conditions.loss_per_mille = net.rng().random_range(0..60);
        net.conditions.duplicate_per_mille = net.rng().random_range(0..60);
        // So long until the first key is in use for good.
        net.run(14 * SECOND);
        let mut traffic = Traffic::open(&mut net);
        for n in 0..3_u8 {
            // One node after another gets the new keys.
            for host in ALL {
                net.with_keys(host, |ring, now| match seed % 3 {
                    0 => {}
                    1 => ring.set_key(now, Some(id(host)), key(20 + n), KeyOwner::Cluster).unwrap(),
                    _ => {
                        for other in ALL {
                            let new = key(20 + 10 * n + other.0 as u8);
                            let owner = KeyOwner::Node(id(other));
                            ring.set_key(now, Some(id(host)), new, owner).unwrap();
                        }
                    }
                });
                traffic.run(&mut net, SECOND);
            }
            let end = (seed as usize + usize::from(n)) % 3;
            net.conditions.dead_paths = vec![(0, ALL[end], ALL[(end + 1) % 3])];
            let cut = Duration::from_millis(net.rng().random_range(0..1_000));
            traffic.run(&mut net, cut);
            net.conditions.dead_paths.clear();
            traffic.run(&mut net, 14 * SECOND);
        }
        net.conditions.loss_per_mille = 0;
        traffic.check(&mut net);
        assert_eq!(contacts_lost(&mut net), 0);
        ALL.iter().map(|host| net.hosts()[host.0].keyring.switches()).min().unwrap()
    });
    assert!(switches.iter().all(|n| *n >= 3), "{switches:?}");
}

#[test]
fn a_node_that_restarts_gets_the_session_keys_of_the_others() {
    let mut net = network(5, rekeyed);
    net.run(30 * SECOND);
    for _ in 0..3 {
        net.crash(C);
        net.run(3 * SECOND);
        net.start(C, false);
        net.run(20 * SECOND);
        assert_eq!(ALL.map(|host| peers_up(&mut net, host)), [2; 3]);
    }
    let used = net.hosts()[A.0].keyring.own_keys(net.now());
    assert!(used.iter().any(|k| k.state == KeyState::Active), "{used:?}");
}

#[test]
fn a_cluster_becomes_encrypted_without_losing_contact() {
    let mut net = network(6, |_, ring, _| ring.allow_plain(true));
    net.run(4 * SECOND);
    let mut traffic = Traffic::open(&mut net);
    traffic.run(&mut net, 2 * SECOND);
    net.record = Some(Vec::new());
    for host in ALL {
        net.with_keys(host, |ring, now| cluster(host, ring, now));
        traffic.run(&mut net, 5 * SECOND);
    }
    let secret = key(1);
    let leaks = |f: &Vec<u8>| f.windows(20).any(|bytes| bytes == &secret.bytes()[..20]);
    assert!(!net.record.take().unwrap().iter().any(leaks), "a key was sent in plain");
    // Plain broadcasts end when the last node that does not encrypt has been silent for long enough.
    traffic.run(&mut net, 35 * SECOND);
    net.record = Some(Vec::new());
    traffic.run(&mut net, SECOND);
    let frames = net.record.take().unwrap();
    assert!(
        frames.iter().all(|f| f[0] >> 5 == 7 || f[0] >> 1 & 15 == 13),
        "only discovery is plain"
    );
    for host in ALL {
        net.with_keys(host, |ring, _| ring.allow_plain(false));
        traffic.run(&mut net, SECOND);
    }
    traffic.check(&mut net);
    assert_eq!(contacts_lost(&mut net), 0);
}

/// CVE-2026-98805: nonces that were used twice.
#[test]
fn no_number_is_used_twice_with_a_key() {
    let mut net = network(7, cluster);
    let mut used = BTreeSet::new();
    for _ in 0..5 {
        net.record = Some(Vec::new());
        net.run(10 * SECOND);
        for frame in net.record.take().unwrap() {
            // The sender's word and the number make the nonce.
            assert!(used.insert((frame[12..16].to_vec(), frame[4..12].to_vec())));
        }
        // Back with the same key.
        net.crash(B);
        net.start(B, false);
    }
    assert!(used.len() > 300, "{} frames", used.len());
}

/// CVE-2022-49017, 2024-40983, 2025-38052: frames that end during decryption, or decrypt to nothing.
#[test]
fn keyed_nodes_survive_what_strangers_send() {
    let mut net = network(8, rekeyed);
    net.run(20 * SECOND);
    contacts_lost(&mut net);
    net.record = Some(Vec::new());
    net.run(2 * SECOND);
    let recorded = net.record.take().unwrap();
    for frame in recorded.iter().take(40) {
        for len in 0..frame.len() {
            net.deliver(0, C, A, frame[..len].to_vec());
        }
        for bit in 0..frame.len() * 8 {
            let mut forged = frame.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            net.deliver(0, C, A, forged);
        }
    }
    for n in 0..20_000_u32 {
        let mut frame = vec![0; net.rng().random_range(0..200)];
        net.rng().fill(&mut frame[..]);
        if let Some(first) = frame.first_mut() {
            *first = 7 << 5 | *first & 0x1f;
        }
        if frame.len() >= 16 {
            frame[12..16].copy_from_slice(&(0x1000 + n % 4).to_be_bytes());
        }
        net.deliver(0, C, A, frame);
    }
    assert!(drops(&mut net, A, DropReason::NotGenuine) > 10_000);
    net.run(10 * SECOND);
    assert_eq!((peers_up(&mut net, A), contacts_lost(&mut net)), (2, 0));
}
