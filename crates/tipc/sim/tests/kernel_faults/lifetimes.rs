//! Faults of kernels that happened when something was freed on one CPU while another used it. This node has one thread, and
//! nothing in it refers to something else than by a number that is looked up; so what remains to be tested is that the
//! events of these faults are handled in every order.

use core::time::Duration;

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr, Scope, ServiceRange};
use crossway_tipc_proto::link::LinkSettings;
use crossway_tipc_proto::node::BearerConfig;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_sim::{HostId, Network, Plane};

use crate::{A, B, C};

const PLANES: [Plane; 2] = [Plane { mtu: 1_500, priority: 10 }, Plane { mtu: 1_500, priority: 10 }];

fn bearer(host: HostId, plane: u8) -> BearerConfig {
    let media = MediaAddr::Ethernet([2, 0, 0, plane, 0, host.0 as u8]);
    BearerConfig::new(&format!("sim{plane}"), media, 1_500)
}

/// CVE-2024-56642, CVE-2026-68323, CVE-2026-74255, CVE-2026-74609 and the fault of discovery of 2026: a bearer is disabled while its links
/// carry, time out and are discovered.
#[test]
fn a_bearer_can_go_at_any_step_of_a_transfer() {
    for step in 0..80 {
        let mut net = Network::with_planes(step, 3, &PLANES, Duration::from_millis(200));
        for host in [A, B, C] {
            net.start(host, false);
        }
        net.run(Duration::from_secs(2));
        let server = net.with(B, |node, _| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, ServiceRange::single(7_000, 1), Scope::Cluster).unwrap();
            port
        });
        net.run(Duration::from_millis(100));
        let dest = Address::Service { service: 7_000, instance: 1, domain: NodeAddr(0) };
        net.with(A, |node, now| {
            for n in 0..8 {
                let port = node.open(SocketKind::Rdm).unwrap();
                let _ = node.send(now, port, Some(dest), &[n; 20_000]);
            }
        });
        for _ in 0..step {
            let until = net.now() + Duration::from_secs(1);
            net.step(until);
        }
        let plane = (step % 2) as u8;
        net.with(A, |node, now| {
            node.disable_bearer(now, BearerId(plane)).unwrap();
            let _ = node.set_link(now, NodeAddr(0x1001), BearerId(plane), LinkSettings::default());
            // Frames of that medium that are on their way find no bearer.
            node.medium_lost(now, BearerId(plane));
            node.medium_back(now, BearerId(plane));
        });
        net.run(Duration::from_secs(1));
        net.with(A, |node, now| node.enable_bearer(now, bearer(A, plane)).unwrap());
        net.run(Duration::from_secs(3));
        let up = net.with(A, |node, _| {
            node.peers().map(|p| (p.up, p.links.iter().filter(|l| l.active).count())).collect()
        });
        assert_eq!(up, Some(vec![(true, 2); 2]), "step {step}");
        // The other link took over: every message arrived once.
        let server = server.unwrap();
        let mut got = Vec::new();
        while let Ok(m) = net.with(B, |node, now| node.recv(now, server, 70_000)).unwrap() {
            got.push(m.payload[0]);
        }
        got.sort_unstable();
        assert_eq!(got, (0..8).collect::<Vec<u8>>(), "step {step}");
    }
}

/// CVE-2023-1382 and CVE-2025-38464: subscribers that connect, subscribe, and end in every order, also while the node that
/// serves them stops.
#[test]
fn subscribers_can_end_at_any_step() {
    let mut remote = 0;
    for step in 0..60_u64 {
        let mut net = Network::new(step, 3, 1_500, Duration::from_millis(500));
        for host in [A, B, C] {
            net.start(host, false);
        }
        net.run(Duration::from_secs(2));
        let dest = Address::Service { service: 1, instance: 1, domain: net.addr(C) };
        let mut ports = Vec::new();
        for n in 0..6_u32 {
            let port = net.with(B, |node, now| {
                let port = node.open(SocketKind::Seqpacket).unwrap();
                assert_eq!(node.connect(now, port, Some(dest), &[]), Err(SocketError::InProgress));
                port
            });
            ports.push(port.unwrap());
            let until = net.now() + Duration::from_micros(60 * u64::from(n % 3));
            net.run(until.since(net.now()));
        }
        net.run(Duration::from_millis(2));
        remote += net
            .with(B, |node, _| {
                let reports = ports.iter().map(|port| node.socket_report(*port).unwrap().peer);
                reports.filter(|peer| peer.is_some_and(|peer| peer.node.0 == 0x1002)).count()
            })
            .unwrap();
        for (n, port) in ports.iter().enumerate() {
            // A subscription to everything, a part of one, and one that is cancelled at once.
            let words = [7_000_u32, 0, u32::MAX, u32::MAX, if n % 3 == 2 { 4 } else { 1 }];
            let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            bytes.extend_from_slice(b"a handle");
            bytes.truncate(if n % 3 == 1 { 27 } else { 28 });
            let _ = net.with(B, |node, now| node.send(now, *port, None, &bytes));
        }
        for n in 0..step {
            let until = net.now() + Duration::from_secs(1);
            net.step(until);
            if n % 7 == 3 {
                net.with(C, |node, _| {
                    let port = node.open(SocketKind::Rdm).unwrap();
                    let range = ServiceRange::single(7_000, n as u32);
                    let _ = node.bind(port, range, Scope::Cluster);
                });
            }
            if let Some(port) = ports.get(n as usize / 10).filter(|_| n % 10 == 9) {
                let _ = net.with(B, |node, now| node.close(now, *port));
            }
        }
        if step % 2 == 0 {
            net.with(C, |node, now| node.stop(now));
            net.run(Duration::from_secs(2));
            let ended =
                net.with(B, |node, _| node.peers().all(|peer| peer.addr.0 != 0x1002 || !peer.up));
            assert_eq!(ended, Some(true), "step {step}");
            continue;
        }
        for port in ports {
            let _ = net.with(B, |node, now| node.close(now, port));
        }
        net.run(Duration::from_secs(1));
        let fine = net.with(C, |node, _| node.peers().all(|peer| peer.up));
        assert_eq!(fine, Some(true), "step {step}");
    }
    assert_eq!(remote, 60 * 6, "connections to the other node's service");
}

/// CVE-2026-99054 and CVE-2022-50555: the topology service stops while it accepts connections and serves others.
#[test]
fn the_topology_service_can_stop_at_any_step_of_a_connection() {
    for step in 0..40_u64 {
        let mut net = Network::new(step, 3, 1_500, Duration::from_millis(200));
        for host in [A, B, C] {
            net.start(host, false);
        }
        net.run(Duration::from_secs(2));
        let dest = Address::Service { service: 1, instance: 1, domain: net.addr(C) };
        let connect = |net: &mut Network, host| {
            let port = net.with(host, |node, now| {
                let port = node.open(SocketKind::Seqpacket).unwrap();
                assert_eq!(node.connect(now, port, Some(dest), &[]), Err(SocketError::InProgress));
                port
            });
            (host, port.unwrap())
        };
        let mut clients = vec![connect(&mut net, B)];
        net.run(Duration::from_millis(2));
        let words = [7_000_u32, 0, u32::MAX, u32::MAX, 1];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes.resize(28, 0);
        net.with(B, |node, now| node.send(now, clients[0].1, None, &bytes).unwrap());
        clients.extend([A, B, A, B].map(|host| connect(&mut net, host)));
        for _ in 0..step {
            let until = net.now() + Duration::from_secs(1);
            net.step(until);
        }
        // An event is on its way to the subscriber, too.
        net.with(C, |node, now| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, ServiceRange::single(7_000, 1), Scope::Cluster).unwrap();
            node.stop(now);
        });
        net.run(Duration::from_secs(12));
        for (host, port) in clients {
            let last = net.with(host, |node, now| {
                loop {
                    match node.recv(now, port, 100) {
                        Ok(message) if !message.payload.is_empty() => {}
                        end => break end.map(|message| message.payload.len()),
                    }
                }
            });
            assert!(
                !matches!(last, Some(Err(SocketError::WouldBlock))),
                "step {step}: {host:?} waits"
            );
            net.with(host, |node, now| node.close(now, port).unwrap());
        }
        for (host, other) in [(A, B), (B, A)] {
            let other = net.addr(other);
            let up = net.with(host, |node, _| node.peers().any(|p| p.up && p.addr == other));
            assert_eq!(up, Some(true), "step {step}: the honest link");
        }
    }
}

/// "fix NULL deref in tipc_named_node_up() on empty publication list" (2026): contact with a node that has nothing to say.
#[test]
fn nodes_without_bindings_come_up_and_publish_later() {
    let mut net = Network::new(9, 3, 1_500, Duration::from_millis(500));
    for host in [A, B, C] {
        net.start(host, false);
        // One binding that nobody else may see.
        net.with(host, |node, _| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, ServiceRange::single(7_000, host.0 as u32), Scope::Node).unwrap();
        });
    }
    net.run(Duration::from_secs(3));
    let known = |net: &mut Network, host, of| {
        let of = net.addr(of);
        net.with(host, |node, _| {
            assert!(node.peers().all(|peer| peer.up));
            node.names().count_of(of)
        })
        .unwrap()
    };
    let before = known(&mut net, B, A);
    net.with(A, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, ServiceRange::single(7_001, 1), Scope::Cluster).unwrap();
    });
    net.run(Duration::from_secs(1));
    assert_eq!(known(&mut net, B, A), before + 1);
}

/// CVE-2025-40280: the address trial ends, which starts the monitors anew, while bearers come and go; with more nodes than
/// each one watches, so that the monitors are in use.
#[test]
fn monitors_survive_the_end_of_the_address_trial() {
    const HOSTS: usize = 20;
    let mut net = Network::with_planes(7, HOSTS, &PLANES, Duration::from_millis(500));
    for host in 0..HOSTS {
        net.start(HostId(host), true);
        net.with(HostId(host), |node, _| node.set_monitor_threshold(3).unwrap());
        net.run(Duration::from_millis(40));
        // The trials of the first ones end while others disable and enable bearers.
        let other = HostId(host / 2);
        let plane = (host % 2) as u8;
        net.with(other, |node, now| {
            let _ = node.disable_bearer(now, BearerId(plane));
        });
        net.run(Duration::from_millis(10));
        net.with(other, |node, now| {
            let _ = node.enable_bearer(now, bearer(other, plane));
        });
    }
    // Nodes with peers look for others once a minute.
    net.run(Duration::from_secs(65));
    for host in 0..HOSTS {
        let addr = net.addr(HostId(host));
        let found = net.with(HostId(host), |node, _| {
            let up = node.peers().filter(|peer| peer.up).count();
            let monitored: Vec<_> = node
                .monitors()
                .map(|m| (m.active, m.cluster_size, node.monitored(m.bearer).len()))
                .collect();
            (node.addr(), up, monitored)
        });
        let (own, up, monitored) = found.unwrap();
        assert_eq!((own, up), (Some(addr), HOSTS - 1), "host {host}");
        for (active, cluster, nodes) in monitored {
            assert!(
                active && cluster > 15 && nodes > 15,
                "host {host}: {active}, {cluster}, {nodes}"
            );
        }
    }
}
