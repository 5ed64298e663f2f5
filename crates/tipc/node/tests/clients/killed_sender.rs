//! Tests a program that is killed while it sends through a lane. Everything that it had sent by then arrives, in order
//! and complete.

use std::process::{Command, Stdio};
use std::time::Instant;

use crossway_sys::Errno;
use crossway_tipc_client::admin::LaneView;
use crossway_tipc_client::{Address, NodeSocket, Patience, SocketKind};

use crate::direct;
use crate::hostile::works;
use crate::lane_pair::{bound, counts, site};
use crate::site::{WATCHDOG, soon, until};

#[test]
fn data_of_a_killed_sender_arrives_complete_and_in_order() {
    for (kind, is_direct) in [false, true]
        .iter()
        .flat_map(|direct| [SocketKind::Seqpacket, SocketKind::Stream].map(|kind| (kind, *direct)))
    {
        let site = if is_direct { direct::site() } else { site() };
        let by_lane = || -> u64 {
            let sent = |c: &LaneView| if is_direct { c.direct } else { c.sent };
            counts(&site).iter().map(sent).sum()
        };
        let (listener, name) = bound(&site, kind);
        let Address::Service { service, instance, .. } = name else { panic!("{name:?}") };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed_sender::as_a_sender_this_process_sends", "--exact", "--nocapture"])
            .env(
                "TIPC_LANE_SENDER",
                format!("{kind:?} {service} {instance} {}", site.path().display()),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (server, _) = listener.accept(soon()).unwrap();
        let (mut buf, mut carry, mut expected) = (vec![0; 4096], Vec::new(), 0_u64);
        let (begin, mut killed) = (Instant::now(), false);
        let outcome = loop {
            match server.recv(&mut buf, soon()) {
                Ok(len) => carry.extend_from_slice(&buf[..len]),
                Err(errno) => break errno,
            }
            let whole = carry.len() / 8 * 8;
            for word in carry[..whole].chunks_exact(8) {
                assert_eq!(u64::from_ne_bytes(word.try_into().unwrap()), expected, "{kind:?}");
                expected += 1;
                // When the lane is granted depends on the tipcd, which may be delayed on a busy machine.
                if !killed && expected >= 20_000 && expected.is_multiple_of(1_000) {
                    killed = by_lane() > 100;
                    assert!(
                        killed || begin.elapsed() < WATCHDOG,
                        "{kind:?}: not sent through the lane"
                    );
                    if killed {
                        child.kill().unwrap();
                    }
                }
            }
            carry.drain(..whole);
        };
        child.wait().unwrap();
        assert_eq!(outcome, Errno::CONNRESET);
        assert!(expected >= 20_000);
        assert!(carry.is_empty(), "{kind:?}: an incomplete message arrived");
        drop(server);
        until("the lanes' end", || counts(&site).is_empty());
        works(&site);
    }
}

#[test]
fn as_a_sender_this_process_sends() {
    let Ok(task) = std::env::var("TIPC_LANE_SENDER") else { return };
    let mut words = task.splitn(4, ' ');
    let mut word = || words.next().unwrap();
    let kind = if word() == "Stream" { SocketKind::Stream } else { SocketKind::Seqpacket };
    let (service, instance) = (word().parse().unwrap(), word().parse().unwrap());
    let socket = NodeSocket::open(std::path::Path::new(word()), kind).unwrap();
    socket.connect(Some(Address::service(service, instance)), soon()).unwrap();
    let mut n = 0_u64;
    loop {
        let message: Vec<u8> = (n..n + n % 7 + 1).flat_map(u64::to_ne_bytes).collect();
        match socket.send(&message, None, Patience::Forever) {
            Ok(len) => assert_eq!(len, message.len()),
            Err(_) => return,
        }
        n += n % 7 + 1;
    }
}
