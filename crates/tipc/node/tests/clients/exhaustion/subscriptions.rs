//! Shares of subscriptions.

use crossway_sys::proc;
use crossway_tipc_client::{Address, NodeSocket, SocketKind};

use super::{NOBODY, as_another, holder, node};
use crate::site::{Site, soon, until};

/// A connection to the topology service.
pub(super) fn subscriber(path: &std::path::Path) -> NodeSocket {
    let socket = NodeSocket::open(path, SocketKind::Seqpacket).unwrap();
    socket.connect(Some(Address::service(1, 1)), soon()).unwrap();
    socket
}

/// Subscribes to the topology service itself. Whether the event arrives that reports its binding.
pub(super) fn subscribes(subscriber: &NodeSocket) -> bool {
    let words = [1, 1, 1, u32::MAX, 1, 0, 0];
    let request: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    subscriber.send(&request, None, soon()).is_ok()
        && subscriber.recv(&mut [0; 64], soon()) == Ok(48)
}

#[test]
fn a_user_has_a_share_of_subscriptions_and_the_next_one_finds_room() {
    if !proc::is_root() {
        eprintln!(
            "SKIP a_user_has_a_share_of_subscriptions_and_the_next_one_finds_room: needs programs of three users; run as root"
        );
        return;
    }
    let site = Site::of_user(NOBODY, 512, &["--subscriptions", "80"]);
    let (mut first, count) = holder(&site, 1001, "subscriptions");
    assert_eq!(count, 60, "three quarters for one user");
    let (mut rest, count) = holder(&site, 1002, "subscriptions");
    assert_eq!(count, 70 - 60, "an eighth is left for operators");
    for uid in [0, NOBODY] {
        assert!(as_another(&site, "subscribe", uid).contains("subscribed"), "user {uid}");
    }
    assert!(as_another(&site, "subscribe", 1003).contains("refused"));
    assert!(node(&site).turned_away >= 3);
    for child in [&mut first, &mut rest] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    until("free subscriptions", || as_another(&site, "subscribe", 1003).contains("subscribed"));
    // Each connection also takes a socket of the node, of which the connections of a user get an eighth.
    let site = Site::of_user(NOBODY, 512, &["--sockets", "160"]);
    let (mut first, count) = holder(&site, 1001, "subscriptions");
    assert_eq!(count, 160 / 8);
    assert!(as_another(&site, "subscribe", 1002).contains("subscribed"));
    first.kill().unwrap();
    first.wait().unwrap();
}
