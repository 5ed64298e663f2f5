//! A simulation of a large cluster, started manually: all nodes start within a second, discover each other and exchange
//! their names; then one node crashes, and the others detect it.
//!
//!     cargo run --profile fuzz -p crossway-tipc-sim --example large -- 1000

use core::time::Duration;
use std::time::Instant;

use crossway_tipc_proto::addr::{Scope, ServiceRange};
use crossway_tipc_proto::socket::SocketKind;
use crossway_tipc_sim::{HostId, Network};

const SERVICE: u32 = 1000;

fn main() {
    let argument = std::env::args().nth(1);
    let count: usize = match argument.as_deref().map(str::parse) {
        Some(Ok(count)) if (2..=4_000).contains(&count) => count,
        _ => {
            eprintln!("usage: large NODES (2 to 4000)");
            std::process::exit(2);
        }
    };
    let began = Instant::now();
    let mut net = Network::new(1, count, 1500, Duration::from_millis(1500));
    net.conditions.delay_max = Duration::from_millis(1);
    for host in (0..count).map(HostId) {
        net.start(host, false);
        net.with(host, |node, _| {
            let port = node.open(SocketKind::Rdm).expect("a socket");
            let range = ServiceRange::single(SERVICE, host.0 as u32);
            node.bind(port, range, Scope::Cluster).expect("a name");
        });
        net.run(Duration::from_micros(1_000_000 / count as u64));
    }
    let say = |net: &Network, what: &str| {
        println!(
            "{what}: {:.2} s of virtual and {:.1} s of real time; {} frames sent; at most {} bytes queued in any node",
            net.now().0 as f64 / 1e9,
            began.elapsed().as_secs_f64(),
            net.frames,
            net.bytes_max()
        );
    };
    say(&net, "all nodes are started");
    let agree = |net: &mut Network, expected: usize| {
        (0..count)
            .map(HostId)
            .filter(|host| net.hosts()[host.0].node.is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .all(|host| {
                let table = net.with(host, |node, _| {
                    node.names().iter().filter(|b| b.scope == Scope::Cluster).count()
                });
                table == Some(2 * expected)
            })
    };
    let await_tables = |net: &mut Network, expected: usize, what: &str| {
        let until = net.now() + Duration::from_secs(60);
        while !agree(net, expected) {
            assert!(net.now() < until, "{what}: not reached within a minute of virtual time");
            net.run(Duration::from_millis(100));
            drop(net.take_events());
        }
        say(net, what);
    };
    await_tables(&mut net, count, "every name table contains every node");
    let (before, at) = (net.frames, net.now());
    net.run(Duration::from_secs(2));
    drop(net.take_events());
    let seconds = net.now().since(at).as_secs_f64();
    println!(
        "an idle node sends {:.0} frames per second",
        (net.frames - before) as f64 / seconds / count as f64
    );
    net.crash(HostId(0));
    await_tables(&mut net, count - 1, "the crashed node is gone from every name table");
}
