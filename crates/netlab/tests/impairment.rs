//! Tests loss, duplication, reordering and delay of frames on real links. Needs root, `ip`, `tc` and
//! `ethtool`.

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use crossway_netlab::{Host, ImpairedBy, Impairment, Lab, Link, NetError, Topology};
use crossway_sys::netns::inside;

/// Number of datagrams: few enough to fit into a receiver's socket buffer.
const DATAGRAMS: u32 = 100;

/// A network of two hosts with this impairment, or `None` after printing the reason to standard error.
fn up(name: &str, impairment: Impairment) -> Option<Lab> {
    let link = Link { impairment, ..Link::default() };
    // A name that no other run of these tests on this machine uses.
    let own = format!("{name}{:x}", std::process::id() & 0xf_ffff);
    let topology = Topology { name: Some(own), ..Topology::of(&["a", "b"], link) };
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

/// Sets each host's neighbour entry for the other, so that no address resolution can get lost.
fn introduce(lab: &Lab) {
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    for (host, peer) in [(a, b), (b, a)] {
        let words =
            ["neigh", "replace", &peer.ipv4.to_string(), "lladdr", &peer.mac, "dev", "eth0"];
        assert!(host.command("ip").args(words).status().unwrap().success());
    }
}

/// Time limit for a datagram; none takes this long unless something hangs.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The number sent as an end mark after all other numbers.
const END: u32 = u32::MAX;

/// Sends numbered datagrams from `a` to `b`; returns the numbers in order of arrival once no more can
/// arrive.
fn numbers(lab: &Lab, come: Come) -> Vec<u32> {
    introduce(lab);
    let near = socket(lab.host("a").unwrap(), WATCHDOG);
    let far = socket(lab.host("b").unwrap(), WATCHDOG);
    let to = far.local_addr().unwrap();
    for number in 0..DATAGRAMS {
        near.send_to(&number.to_le_bytes(), to).unwrap();
    }
    let mut arrived = Vec::new();
    let mut bytes = [0; 4];
    let mut next = |limit: Duration| {
        far.set_read_timeout(Some(limit)).unwrap();
        far.recv(&mut bytes).ok().map(|_| u32::from_le_bytes(bytes))
    };
    match come {
        Come::Exactly(count) => {
            arrived.extend((0..count).map_while(|_| next(WATCHDOG)));
            // No more numbers arrive after those.
            arrived.extend(next(SILENCE));
        }
        Come::InOrder => {
            // The impairment under test loses some of the marks, too.
            let start = Instant::now();
            loop {
                assert!(start.elapsed() < WATCHDOG, "no mark arrives");
                near.send_to(&END.to_le_bytes(), to).unwrap();
                match next(Duration::from_millis(100)) {
                    Some(END) => break,
                    Some(number) => arrived.push(number),
                    None => {}
                }
            }
        }
    }
    arrived
}

/// Which of the datagrams are expected to arrive.
#[derive(Clone, Copy)]
enum Come {
    /// This many datagrams.
    Exactly(u32),
    /// Some of them, in the order in which they were sent.
    InOrder,
}

/// How long to wait before concluding that nothing arrives.
const SILENCE: Duration = Duration::from_secs(1);

fn is_own(lab: &Lab) -> bool {
    let own = lab.network().impaired_by == ImpairedBy::Crossway;
    assert!(own || lab.network().impaired_by == ImpairedBy::Netem);
    assert_eq!(own, lab.impairment_counts().is_some());
    own
}

#[test]
fn lost_messages_are_counted() {
    let Some(lab) = up("ilo", Impairment { loss: 0.3, seed: 1, ..Impairment::default() }) else {
        return;
    };
    let arrived = numbers(&lab, Come::InOrder);
    assert!(arrived.is_sorted(), "loss alone must not reorder");
    let lost = u64::from(DATAGRAMS) - arrived.len() as u64;
    assert!(lost > 0 && !arrived.is_empty());
    if is_own(&lab) {
        let counts = lab.impairment_counts().unwrap();
        // Marks, and frames that the hosts send on their own (multicast reports), are also subject to loss.
        let others = counts.frames - u64::from(DATAGRAMS);
        assert!(lost <= counts.lost && counts.lost <= lost + others, "{lost} lost, {counts:?}");
        assert_eq!(counts.overflowed, 0);
    }
}

#[test]
fn every_frame_comes_twice_or_never() {
    let twice = Impairment { duplicate: 1.0, ..Impairment::default() };
    let Some(lab) = up("idu", twice) else { return };
    let arrived = numbers(&lab, Come::Exactly(2 * DATAGRAMS));
    let expected: Vec<u32> = (0..DATAGRAMS).flat_map(|n| [n, n]).collect();
    assert_eq!(arrived, expected);
    drop(lab);
    let Some(lab) = up("ino", Impairment { loss: 1.0, ..Impairment::default() }) else { return };
    assert!(numbers(&lab, Come::Exactly(0)).is_empty());
}

#[test]
fn frames_overtake_and_all_arrive() {
    let Some(lab) = up("ire", Impairment { reorder: 0.5, seed: 3, ..Impairment::default() }) else {
        return;
    };
    let mut arrived = numbers(&lab, Come::Exactly(DATAGRAMS));
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
    let Some(lab) = up("ide", Impairment { delay, ..Impairment::default() }) else { return };
    introduce(&lab);
    let near = socket(lab.host("a").unwrap(), WATCHDOG);
    let far = socket(lab.host("b").unwrap(), WATCHDOG);
    let start = Instant::now();
    near.send_to(b"there", far.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    let (_, back) = far.recv_from(&mut buffer).unwrap();
    far.send_to(b"back", back).unwrap();
    near.recv(&mut buffer).unwrap();
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
}
