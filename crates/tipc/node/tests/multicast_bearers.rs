//! Tests bearers that receive a multicast group's packets while other bearers use the same port: bearers of a node with
//! listed remotes on the same host, and bearers of the same node on another device.

use std::time::{Duration, Instant};

use crossway_netlab::{Host, Lab, Link, NetError, Topology};
use crossway_sys::netns;
use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{NetworkId, NodeAddr, NodeId};
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::Config;

/// Time limit for a step, long enough for a busy machine. It is only reached if something is wrong.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Creates two hosts with two links between them, on each of which both hosts have two addresses: 10.88.LINK.1 and .3
/// on the first host, .2 and .4 on the second, and fd88:LINK:: for IPv6. If that is impossible, prints the reason and
/// returns `None`.
fn lab() -> Option<Lab> {
    let lab = match Lab::up(&Topology::of(&["a", "b"], Link::default())) {
        Ok(lab) => lab,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP multicast between namespaces: {why}");
            return None;
        }
        Err(why) => panic!("{why}"),
    };
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    for link in 0..2 {
        ip(a, &format!("link add p{link} type veth peer name p{link} netns {}", b.namespace));
        for (host, last) in [(a, 1), (a, 3), (b, 2), (b, 4)] {
            ip(host, &format!("addr add 10.88.{link}.{last}/24 dev p{link}"));
            ip(host, &format!("addr add fd88:{link}::{last}/64 dev p{link} nodad"));
            ip(host, &format!("link set p{link} up"));
        }
    }
    Some(lab)
}

fn ip(host: &Host, line: &str) {
    let out = host.command("ip").args(line.split(' ')).output().unwrap();
    assert!(out.status.success(), "ip {line}: {}", String::from_utf8_lossy(&out.stderr));
}

fn runner_on(host: &Host, number: u32, bearers: &[&str]) -> Runner {
    let cfg = Config {
        id: NodeId::from_text(&format!("node-{number}")),
        addr: Some(NodeAddr(number)),
        network: NetworkId(1),
        seed: number.into(),
        ..Config::default()
    };
    let start = || {
        let mut runner = Runner::new(cfg).unwrap();
        for (n, bearer) in bearers.iter().enumerate() {
            let spec: BearerSpec = bearer.parse().unwrap();
            runner.enable(&spec, &format!("udp{n}")).unwrap_or_else(|error| panic!("{error}"));
        }
        runner
    };
    netns::inside(&host.namespace_path(), start).unwrap()
}

/// Runs the nodes until each has as many links up as it has bearers, all of them to one peer. Returns the peers'
/// addresses.
fn await_links<const N: usize>(mut runners: [Runner; N], bearers: usize) -> [NodeAddr; N] {
    let start = Instant::now();
    loop {
        for runner in &mut runners {
            runner.turn(Duration::from_millis(1)).unwrap();
            while runner.poll_event().is_some() {}
        }
        let peers = runners.each_mut().map(|runner| runner.node().peers().collect::<Vec<_>>());
        let are_up = peers.iter().all(|peers| match &peers[..] {
            [peer] => {
                peer.links.iter().filter(|l| l.state == LinkState::Established).count() == bearers
            }
            _ => false,
        });
        if are_up {
            for link in peers.iter().flatten().flat_map(|peer| &peer.links) {
                assert_eq!(link.bearer, link.peer_bearer, "a link to another device's address");
            }
            for runner in &mut runners {
                runner.stop();
            }
            return peers.map(|peers| peers[0].addr);
        }
        assert!(start.elapsed() < WATCHDOG, "no links: {peers:#?}");
    }
}

#[test]
fn a_node_with_multicast_starts_before_and_after_one_with_listed_remotes() {
    let Some(lab) = lab() else { return };
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    for net in ["10.88.0.", "fd88:0::"] {
        let listed = [format!("udp:{net}3,{net}4"), format!("udp:{net}4,{net}3")];
        let group = [format!("udp:{net}1"), format!("udp:{net}2")];
        let listed_of_a = runner_on(a, 1, &[&listed[0]]);
        let group_of_a = runner_on(a, 2, &[&group[0]]);
        let group_of_b = runner_on(b, 3, &[&group[1]]);
        let listed_of_b = runner_on(b, 4, &[&listed[1]]);
        let runners = [listed_of_a, group_of_a, group_of_b, listed_of_b];
        assert_eq!(await_links(runners, 1).map(|peer| peer.0), [4, 3, 2, 1], "{net}");
    }
}

#[test]
fn a_node_receives_one_group_on_two_devices() {
    let Some(lab) = lab() else { return };
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    for bearers in [["udp:10.88.0.", "udp:10.88.1."], ["udp:fd88:0::", "udp:fd88:1::"]] {
        let [one, two] = [1, 2].map(|last| bearers.map(|bearer| format!("{bearer}{last}")));
        let runners = [(a, 1, one), (b, 2, two)].map(|(host, number, bearers)| {
            runner_on(host, number, &bearers.each_ref().map(String::as_str))
        });
        assert_eq!(await_links(runners, 2).map(|peer| peer.0), [2, 1]);
    }
}
