//! Tests of groups on a bad medium, and with members that join and leave at random.

use core::time::Duration;

use crossway_tipc_proto::socket::{Address, MulticastMethod, SocketError, SocketKind};
use crossway_tipc_sim::{Conditions, HostId, seeds};
use rand::RngExt;

// Each of the group tests needs a part of it.
#[allow(dead_code, unreachable_pub)]
mod members;

use members::{Member, cluster, join, recv, request, send, texts, to_instance, try_send};

/// The messages that one member sent to another, and how many of them arrived.
#[derive(Default)]
struct Flow {
    sent: Vec<u32>,
    received: usize,
}

/// Random messages of all kinds on a bad medium, sent by changing methods: all of them arrive once and in order.
#[test]
fn all_kinds_of_messages_keep_their_order_on_a_bad_medium() {
    seeds::each("GROUPS_SEEDS", 0..40, |seed| {
        let mut net = cluster(seed, 4);
        let members: Vec<Member> =
            (0..6).map(|n| join(&mut net, n % 4, request(n as u32 % 3))).collect();
        net.conditions = Conditions {
            loss_per_mille: [0, 20, 100][seed as usize % 3],
            duplicate_per_mille: 20,
            delay_min: Duration::from_micros(50),
            delay_max: Duration::from_millis(1 + seed % 5),
            ..Conditions::default()
        };
        let count = members.len();
        let mut flows: Vec<Flow> = (0..count * count).map(|_| Flow::default()).collect();
        let (mut number, mut total, mut blocked) = (0_u32, 0, 0);
        for round in 0..150 {
            for (n, m) in members.iter().enumerate() {
                let method = [
                    MulticastMethod::Automatic,
                    MulticastMethod::Broadcast,
                    MulticastMethod::Replicast,
                ][net.rng().random_range(0..3)];
                net.with(m.host, |node, _| {
                    let mut options = node.socket_report(m.port).unwrap().options;
                    options.multicast = method;
                    node.set_options(m.port, options).unwrap();
                });
                let target = net.rng().random_range(0..count);
                let instance = net.rng().random_range(0..3);
                let of_instance = |other: usize| members[other].instance == instance;
                let others = (0..count).filter(|other| *other != n);
                let (to, receivers): (_, Vec<usize>) = match net.rng().random_range(0..3) {
                    0 => (None, others.collect()),
                    1 => (to_instance(instance), others.filter(|o| of_instance(*o)).collect()),
                    _ if target != n => {
                        (Some(Address::Socket(members[target].addr(&net))), vec![target])
                    }
                    _ => continue,
                };
                let mut text = number.to_be_bytes().to_vec();
                let len = net.rng().random_range(4..4_000);
                text.resize(len, 0);
                match try_send(&mut net, *m, to, &text) {
                    Ok(_) => receivers.iter().for_each(|r| flows[n * count + r].sent.push(number)),
                    Err(error) => {
                        assert_eq!(error, SocketError::WouldBlock);
                        blocked += 1;
                    }
                }
                number += 1;
            }
            let pause = net.rng().random_range(0..6_000);
            net.run(Duration::from_micros(pause));
            if round == 149 {
                net.conditions = Conditions::default();
                net.run(Duration::from_secs(3));
            }
            for (to, m) in members.iter().enumerate() {
                while let Some(r) = recv(&mut net, *m) {
                    if r.group.unwrap().event.is_some() {
                        continue;
                    }
                    let from = members.iter().position(|m| m.addr(&net) == r.from).unwrap();
                    let flow = &mut flows[from * count + to];
                    let got = u32::from_be_bytes(r.payload[..4].try_into().unwrap());
                    let expected = flow.sent.get(flow.received);
                    assert_eq!(Some(&got), expected, "from {from} to {to}");
                    flow.received += 1;
                    total += 1;
                }
            }
        }
        for (index, flow) in flows.iter().enumerate() {
            let (from, to) = (index / count, index % count);
            assert_eq!(flow.received, flow.sent.len(), "from {from} to {to}");
        }
        assert!(total > 300, "only {total} messages arrived, and {blocked} sends had to wait");
    });
}

/// Sockets join and are closed while others send. When all is quiet, every member knows exactly the members that exist,
/// and can reach each of them.
#[test]
fn members_that_come_and_go_leave_a_true_picture() {
    seeds::each("GROUPS_SEEDS", 0..100, |seed| assert!(history(seed, false)));
}

/// Sockets leave and join again while others send. Bindings and the group protocol use different links, and a JOIN does
/// not contain the binding to which it belongs. If a socket rejoins within the time that retransmissions take, its JOIN
/// can therefore be attributed to the wrong binding permanently, by this and by any other implementation (docs/TIPC.md,
/// "Known weaknesses"). Here this happens in two or three runs out of a hundred.
#[test]
fn members_that_return_are_seldom_misread() {
    let misread: Vec<u64> = (0..100).filter(|seed| !history(*seed, true)).collect();
    assert!(misread.len() <= 8, "SEEDS={misread:?}");
}

/// Makes a random run, and returns whether all members know each other afterwards.
fn history(seed: u64, returns: bool) -> bool {
    let mut net = cluster(seed, 4);
    net.conditions.loss_per_mille = [0, 50][seed as usize % 2];
    net.conditions.delay_max = Duration::from_millis(3);
    let mut members: Vec<Member> = Vec::new();
    for step in 0..60 {
        let host = net.rng().random_range(0..4);
        if members.len() < 4 || net.rng().random_range(0..5) < 3 {
            let port = net.with(HostId(host), |node, now| {
                let port = node.open(SocketKind::Rdm).unwrap();
                node.join(now, port, request(step)).unwrap();
                port
            });
            members.push(Member { host: HostId(host), port: port.unwrap(), instance: step });
        } else {
            let index = net.rng().random_range(0..members.len());
            let rejoins = returns && net.rng().random_bool(0.5);
            let m = &mut members[index];
            m.instance = if rejoins { step } else { m.instance };
            let (host, port) = (m.host, m.port);
            net.with(host, |node, now| {
                if rejoins {
                    node.leave(now, port).unwrap();
                    node.join(now, port, request(step)).unwrap();
                } else {
                    node.close(now, port).unwrap();
                }
            });
            if !rejoins {
                members.remove(index);
            }
        }
        for m in members.clone() {
            if net.rng().random_bool(0.3) {
                match try_send(&mut net, m, None, b"talk") {
                    Ok(_) | Err(SocketError::WouldBlock | SocketError::Unreachable) => {}
                    Err(error) => panic!("SEED={seed}: {error}"),
                }
            }
        }
        let pause = net.rng().random_range(0..20);
        net.run(Duration::from_millis(pause));
    }
    net.conditions = Conditions::default();
    net.run(Duration::from_secs(3));
    for m in &members {
        texts(&mut net, *m);
    }
    net.run(Duration::from_secs(1));
    for m in &members {
        if send(&mut net, *m, None, b"roll call") != Ok(9) {
            return false;
        }
        for other in &members {
            if texts(&mut net, *other).len() != usize::from(other != m) {
                return false;
            }
            let to = Some(Address::Socket(other.addr(&net)));
            if other != m
                && (send(&mut net, *m, to, b"and you") != Ok(7)
                    || texts(&mut net, *other).len() != 1)
            {
                return false;
            }
        }
    }
    true
}
