//! Frames that get lost, doubled, reordered and delayed on real links. Needs root, `ip`, `tc` and `ethtool`.

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use crossway_netlab::{Host, ImpairedBy, Impairment, Lab, Link, NetError, Topology};
use crossway_sys::netns::inside;

/// Few enough that a receiver's socket buffer holds them all.
const DATAGRAMS: u32 = 100;

/// A network of two hosts impaired so, or `None` with the reason on standard error.
fn up(name: &str, impairment: Impairment) -> Option<Lab> {
    let link = Link { impairment, ..Link::default() };
    let topology = Topology { name: Some(name.to_owned()), ..Topology::of(&["a", "b"], link) };
    match Lab::up(&topology) {
        Ok(lab) => Some(lab),
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP {name}: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn socket(host: &Host, limit: Duration) -> UdpSocket {
    let address = (IpAddr::from(host.ipv4), 0);
    let bound = inside(&host.namespace_path(), || UdpSocket::bind(address));
    let socket = bound.unwrap().unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    socket
}

/// Tells each host the other's Ethernet address, so that no question for it can get lost.
fn introduce(lab: &Lab) {
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    for (host, peer) in [(a, b), (b, a)] {
        let words =
            ["neigh", "replace", &peer.ipv4.to_string(), "lladdr", &peer.mac, "dev", "eth0"];
        assert!(host.command("ip").args(words).status().unwrap().success());
    }
}

/// Sends numbered datagrams from `a` to `b`; returns the numbers in the order in which they arrived.
fn numbers(lab: &Lab) -> Vec<u32> {
    introduce(lab);
    let near = socket(lab.host("a").unwrap(), Duration::from_secs(1));
    let far = socket(lab.host("b").unwrap(), Duration::from_secs(1));
    for number in 0..DATAGRAMS {
        near.send_to(&number.to_le_bytes(), far.local_addr().unwrap()).unwrap();
    }
    // The end of the stream is a second of silence: the loss under test takes whatever would mark it.
    let mut bytes = [0; 4];
    std::iter::from_fn(|| far.recv(&mut bytes).ok().map(|_| u32::from_le_bytes(bytes))).collect()
}

fn is_own(lab: &Lab) -> bool {
    let own = lab.network().impaired_by == ImpairedBy::Crossway;
    assert!(own || lab.network().impaired_by == ImpairedBy::Netem);
    assert_eq!(own, lab.impairment_counts().is_some());
    own
}

#[test]
fn what_is_lost_is_counted() {
    let Some(lab) = up("iloss", Impairment { loss: 0.3, seed: 1, ..Impairment::default() }) else {
        return;
    };
    let arrived = numbers(&lab);
    assert!(arrived.is_sorted(), "loss alone must not reorder");
    let lost = u64::from(DATAGRAMS) - arrived.len() as u64;
    assert!(lost > 0 && !arrived.is_empty());
    if is_own(&lab) {
        let counts = lab.impairment_counts().unwrap();
        // Frames of the hosts' own accord (multicast reports) are drawn for, too.
        let others = counts.frames - u64::from(DATAGRAMS);
        assert!(lost <= counts.lost && counts.lost <= lost + others, "{lost} lost, {counts:?}");
        assert_eq!(counts.overflowed, 0);
    }
}

#[test]
fn every_frame_comes_twice_or_never() {
    let twice = Impairment { duplicate: 1.0, ..Impairment::default() };
    let Some(lab) = up("idup", twice) else { return };
    let arrived = numbers(&lab);
    let expected: Vec<u32> = (0..DATAGRAMS).flat_map(|n| [n, n]).collect();
    assert_eq!(arrived, expected);
    drop(lab);
    let Some(lab) = up("inone", Impairment { loss: 1.0, ..Impairment::default() }) else { return };
    assert!(numbers(&lab).is_empty());
}

#[test]
fn frames_overtake_and_all_arrive() {
    let Some(lab) = up("ireord", Impairment { reorder: 0.5, seed: 3, ..Impairment::default() })
    else {
        return;
    };
    let mut arrived = numbers(&lab);
    if is_own(&lab) {
        assert!(!arrived.is_sorted());
        assert!(lab.impairment_counts().unwrap().reordered > 0);
    }
    arrived.sort_unstable();
    assert_eq!(arrived, (0..DATAGRAMS).collect::<Vec<_>>());
}

#[test]
fn a_round_trip_takes_both_delays() {
    let delay = Duration::from_millis(20);
    let Some(lab) = up("idelay", Impairment { delay, ..Impairment::default() }) else { return };
    introduce(&lab);
    let near = socket(lab.host("a").unwrap(), Duration::from_secs(20));
    let far = socket(lab.host("b").unwrap(), Duration::from_secs(20));
    let start = Instant::now();
    near.send_to(b"there", far.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    let (_, back) = far.recv_from(&mut buffer).unwrap();
    far.send_to(b"back", back).unwrap();
    near.recv(&mut buffer).unwrap();
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
}
