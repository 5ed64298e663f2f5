//! Tests runs: frames of equal length to one station, which are sent as one message that the system splits, and
//! received as one message that the system has joined (UDP_SEGMENT, UDP_GRO). Such runs are counted over loopback and
//! between two namespaces, with devices that do or do not split in hardware, and when the system refuses. Over
//! Ethernet, many frames are sent in one call.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crossway_netlab::{Host, Lab, Link, NetError, Offloads, Topology};
use crossway_sys::netns;
use crossway_tipc_node::{BearerSpec, Notice, Runner, Traffic};
use crossway_tipc_proto::addr::{
    BearerId, NetworkId, NodeAddr, NodeId, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::node::{Config, Event, Node};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;

/// Time limit for a step, long enough for a busy machine. It is only reached if something is wrong.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Number of messages. It is less than the smallest window, so all are sent at the same time. No two fit into a packet
/// of 1,280 bytes.
const MESSAGES: u8 = 40;
const MESSAGE_BYTES: usize = 1_100;

fn now() -> Nanos {
    Nanos(crossway_sys::clock::monotonic_ns())
}

fn runner(number: u32, bearer: &str) -> Runner {
    let mut runner = Runner::new(Config {
        id: NodeId::from_text(&format!("node-{number}")),
        addr: Some(NodeAddr(number)),
        network: NetworkId(1),
        seed: number.into(),
        ..Config::default()
    })
    .unwrap();
    let spec: BearerSpec = bearer.parse().unwrap();
    runner.enable(&spec, "udp0").unwrap();
    runner
}

/// Two nodes in contact, with a sender on the first and a receiver on the second.
struct Pair {
    one: Runner,
    two: Runner,
    sender: Port,
    receiver: Port,
    sent: u8,
}

impl Pair {
    fn meet(mut one: Runner, mut two: Runner) -> Self {
        let range = ServiceRange::single(1000, 5);
        let receiver = two.node().open(SocketKind::Rdm).unwrap();
        two.node().bind(receiver, range, Scope::Cluster).unwrap();
        let start = Instant::now();
        let mut known = false;
        while !known {
            two.turn(Duration::from_millis(1)).unwrap();
            one.turn(Duration::from_millis(1)).unwrap();
            while let Some(event) = one.poll_event() {
                known |= matches!(event, Event::Published(b) if b.range == range);
            }
            assert!(start.elapsed() < WATCHDOG, "the binding did not arrive: {:?}", one.node());
        }
        let sender = one.node().open(SocketKind::Rdm).unwrap();
        let mut pair = Self { one, two, sender, receiver, sent: 0 };
        // Packets left over from link setup must not be counted.
        for _ in 0..10 {
            pair.one.turn(Duration::from_millis(1)).unwrap();
            pair.two.turn(Duration::from_millis(1)).unwrap();
        }
        pair
    }

    /// Sends numbered messages in one turn, and waits until all have arrived, complete and in order. Returns the
    /// traffic of both bearers in that time.
    fn carry(&mut self) -> (Traffic, Traffic) {
        let before = [&self.one, &self.two].map(|node| node.traffic(BearerId(0)).unwrap());
        let to = Address::Socket(SocketAddr { port: self.receiver, node: NodeAddr(2) });
        for _ in 0..MESSAGES {
            self.sent += 1;
            self.one
                .node()
                .send(now(), self.sender, Some(to), &[self.sent; MESSAGE_BYTES])
                .unwrap();
        }
        self.one.turn(Duration::ZERO).unwrap();
        let mut next = self.sent - MESSAGES + 1;
        let start = Instant::now();
        while next <= self.sent {
            match self.two.node().recv(now(), self.receiver, 10_000) {
                Ok(message) => {
                    assert_eq!(message.payload, [next; MESSAGE_BYTES]);
                    next += 1;
                }
                Err(_) => {
                    self.two.turn(Duration::from_millis(1)).unwrap();
                    self.one.turn(Duration::from_millis(1)).unwrap();
                }
            }
            assert!(
                start.elapsed() < WATCHDOG,
                "message {next} did not arrive: {:?}",
                self.two.node()
            );
        }
        let after = [&self.one, &self.two].map(|node| node.traffic(BearerId(0)).unwrap());
        let since = |n: usize| Traffic {
            frames_sent: after[n].frames_sent - before[n].frames_sent,
            send_calls: after[n].send_calls - before[n].send_calls,
            runs_sent: after[n].runs_sent - before[n].runs_sent,
            refused_calls: after[n].refused_calls - before[n].refused_calls,
            frames_unsent: after[n].frames_unsent - before[n].frames_unsent,
            frames_received: after[n].frames_received - before[n].frames_received,
            receive_calls: after[n].receive_calls - before[n].receive_calls,
            runs_received: after[n].runs_received - before[n].runs_received,
        };
        (since(0), since(1))
    }
}

/// Checks that all frames were sent in few messages, except some of the link's own frames.
fn assert_sent_in_runs(out: &Traffic) {
    assert!((40..46).contains(&out.frames_sent), "{out:?}");
    assert!((1..=2).contains(&out.runs_sent), "{out:?}");
    assert!((1..=6).contains(&out.send_calls), "{out:?}");
    assert_eq!((out.refused_calls, out.frames_unsent), (0, 0), "{out:?}");
}

fn over_loopback(one: &str, two: &str) {
    let mut pair = Pair::meet(runner(1, one), runner(2, two));
    let (out, into) = pair.carry();
    assert_sent_in_runs(&out);
    assert!((1..=2).contains(&into.runs_received), "{into:?}");
    assert!((40..46).contains(&into.frames_received), "{into:?}");
    assert_eq!(pair.one.poll_notice(), None);
}

#[test]
fn runs_pass_loopback_whole() {
    for (local, mtu) in [("127.0.0.1", ",mtu=1280"), ("[::1]", "")] {
        let [one, two] = [(); 2].map(|()| {
            let socket = UdpSocket::bind(format!("{local}:0")).unwrap();
            format!("{local}:{}", socket.local_addr().unwrap().port())
        });
        over_loopback(&format!("udp:{one}{mtu},{two}"), &format!("udp:{two},{one}"));
    }
}

/// Creates two hosts in namespaces of this machine. If that is impossible, prints the reason and returns `None`.
fn lab(offloads: Offloads) -> Option<Lab> {
    let topology = Topology::of(&["a", "b"], Link { offloads, ..Link::default() });
    match Lab::up(&topology) {
        Ok(lab) => Some(lab),
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP runs of frames between namespaces: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn runner_on(host: &Host, number: u32, bearer: &str) -> Runner {
    netns::inside(&host.namespace_path(), || runner(number, bearer)).unwrap()
}

fn does(host: &Host, words: &[&str]) -> String {
    let out = host.command(words[0]).args(&words[1..]).output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Returns the number of packets passed to a host's device. A run counts once if the device splits it.
fn packets_sent(host: &Host) -> u64 {
    let file = format!("/sys/class/net/{}/statistics/tx_packets", host.interface);
    does(host, &["cat", &file]).trim().parse().unwrap()
}

#[test]
fn runs_pass_a_veth_whole_or_are_cut_before_it() {
    for offloads in [Offloads::On, Offloads::Off] {
        let Some(lab) = lab(offloads) else { return };
        let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
        let device = |host: &Host| host.interface.clone();
        for (one, two) in [
            // Discovery by multicast, and the packet size of the kernel's bearers.
            (format!("udp:{}%{}", a.ipv6, device(a)), format!("udp:{}%{}", b.ipv6, device(b))),
            // Full packets to one remote. The smaller of both sizes applies.
            (format!("udp:{},mtu=1472,{}", a.ipv4, b.ipv4), format!("udp:{},{}", b.ipv4, a.ipv4)),
        ] {
            let mut pair = Pair::meet(runner_on(a, 1, &one), runner_on(b, 2, &two));
            let mtu = if one.contains("mtu=") { 1472 } else { 1280 };
            assert_eq!(pair.two.node().peers().next().unwrap().links[0].mtu, mtu, "{one}");
            let before = packets_sent(a);
            let (out, into) = pair.carry();
            let packets = packets_sent(a) - before;
            assert_sent_in_runs(&out);
            assert!((40..46).contains(&into.frames_received), "{one} {offloads:?}: {into:?}");
            if offloads == Offloads::On {
                assert!(packets < 12, "{one}: {packets} packets for {out:?}");
                assert!((1..=2).contains(&into.runs_received), "{one}: {into:?}");
            } else {
                assert!(packets >= 40, "{one}: {packets} packets for {out:?}");
                assert_eq!(into.runs_received, 0, "{one}: {into:?}");
                assert!(into.receive_calls <= 6, "{one}: {into:?}");
            }
            assert_eq!(pair.one.poll_notice(), None, "{one} {offloads:?}");
            pair.one.stop();
            pair.two.stop();
        }
    }
}

#[test]
fn a_refused_run_goes_frame_by_frame_from_then_on() {
    let Some(lab) = lab(Offloads::On) else { return };
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    let bearer = |own: &Host, other: &Host| format!("udp:{},mtu=1472,{}", own.ipv4, other.ipv4);
    let mut pair = Pair::meet(runner_on(a, 1, &bearer(a, b)), runner_on(b, 2, &bearer(b, a)));
    assert_sent_in_runs(&pair.carry().0);
    // The path has a smaller MTU than the bearer was configured for: the system does not split runs into packets that would not pass.
    does(a, &["ip", "link", "set", &a.interface, "mtu", "1000"]);
    for _ in 0..2 {
        let (out, into) = pair.carry();
        assert!((40..46).contains(&out.frames_sent), "{out:?}");
        assert_eq!((out.runs_sent, out.frames_unsent, out.refused_calls), (0, 0, 0), "{out:?}");
        assert!((1..=6).contains(&out.send_calls), "{out:?}");
        assert!((40..46).contains(&into.frames_received), "{into:?}");
    }
    let notice = pair.one.poll_notice();
    let Some(Notice::RunsRefused { bearer: BearerId(0), .. }) = notice else {
        panic!("{notice:?}")
    };
    let text = notice.unwrap().to_string();
    assert!(text.contains("each frame is sent separately"), "{text}");
    assert_eq!(pair.one.poll_notice(), None, "it is reported only once");
    let (link, peer) = (pair.two.node(), NodeAddr(1));
    assert!(
        link.peers().any(|p| p.addr == peer && p.links[0].stats.packets_early == 0),
        "in order"
    );
}

#[test]
fn ethernet_frames_leave_by_one_call_and_wait_for_a_device_without_room() {
    let Some(lab) = lab(Offloads::Off) else { return };
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    let bearer = |host: &Host| format!("eth:{}", host.interface);
    let mut pair = Pair::meet(runner_on(a, 1, &bearer(a)), runner_on(b, 2, &bearer(b)));
    for _ in 0..3 {
        let (out, into) = pair.carry();
        assert!((40..46).contains(&out.frames_sent), "{out:?}");
        assert!((1..=6).contains(&out.send_calls), "{out:?}");
        assert_eq!((out.refused_calls, out.frames_unsent), (0, 0), "{out:?}");
        assert!((40..46).contains(&into.frames_received), "{into:?}");
    }
    // A queue of four frames before a slow device.
    let queue = ["tbf", "rate", "10mbit", "burst", "2kb", "limit", "4600"];
    does(a, &[&["tc", "qdisc", "add", "dev", &a.interface, "root"][..], &queue].concat());
    for _ in 0..3 {
        let (out, _) = pair.carry();
        assert!((40..60).contains(&out.frames_sent), "{out:?}");
        assert!(out.refused_calls > 0, "{out:?}");
        assert_eq!(out.frames_unsent, 0, "{out:?}");
    }
    let (one, two) = (pair.one.node(), pair.two.node());
    let stats = |node: &Node| node.peers().next().unwrap().links[0].stats;
    assert_eq!(
        (stats(one).packets_resent, stats(two).packets_early),
        (0, 0),
        "none is lost, and in order"
    );
    pair.one.stop();
    pair.two.stop();
}
