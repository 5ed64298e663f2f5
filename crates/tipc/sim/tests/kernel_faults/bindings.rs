//! Faults that bindings cause which a neighbour publishes.

use crossway_tipc_proto::addr::{NodeAddr, Port, ServiceRange};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::seq::Seq;
use crossway_tipc_proto::wire::{NameItem, NameMessage, NameSeries};

use crate::{A, Attack, encoded};

/// The number of B's bindings that A knows.
fn known(attack: &mut Attack) -> usize {
    attack.net.with(A, |node, _| node.names().count_of(NodeAddr(0x1001))).unwrap()
}

/// Publishes or withdraws bindings of B, in messages as large as they may be.
fn tell(attack: &mut Attack, withdrawal: bool, items: &[NameItem]) {
    for items in items.chunks(400) {
        let mut body = Vec::new();
        items.iter().for_each(|item| item.encode(&mut body));
        attack.deliver(&encoded(|link, out| {
            NameMessage {
                withdrawal,
                series: NameSeries::Legacy,
                number: Seq(0),
                owner: NodeAddr(0x1001),
                dest: NodeAddr(0x1000),
                bcast_ack_invalid: false,
                body: &body,
            }
            .encode(link, out)
        }));
    }
}

/// CVE-2026-74281: bindings whose lower bound is above the upper one, and more bindings than a node may have.
#[test]
fn inverted_ranges_are_not_stored_and_bindings_are_limited() {
    let mut attack = Attack::new();
    let item = |n: u32, lower, upper| NameItem {
        range: ServiceRange { service: 7_000, lower, upper },
        port: Port(n + 1),
        key: n,
    };
    let before = known(&mut attack);
    let refused = attack.drops(DropReason::BadBinding);
    let inverted: Vec<_> = (0..8_000).map(|n| item(n, n + 1, n)).collect();
    tell(&mut attack, false, &inverted);
    assert_eq!(known(&mut attack), before);
    assert_eq!(attack.drops(DropReason::BadBinding), refused + 8_000);
    let many: Vec<_> = (0..70_000).map(|n| item(n, n, n)).collect();
    tell(&mut attack, false, &many);
    assert_eq!(known(&mut attack), 65_535);
    attack.check();
}

/// "fix duplicate publication key in tipc_service_insert_publ()" (2026): the key of a binding is its socket's own; another
/// socket's binding of the same name may have the same key.
#[test]
fn bindings_of_two_sockets_with_one_key_are_two() {
    let mut attack = Attack::new();
    let before = known(&mut attack);
    for (withdrawal, port, left) in [
        (false, 20_062_001, 1),
        (false, 20_062_002, 2),
        // Once more.
        (false, 20_062_002, 2),
        (true, 20_062_001, 1),
        (true, 20_062_001, 1),
        (true, 20_062_002, 0),
    ] {
        let range = ServiceRange::single(7_000, 1);
        let item = NameItem { range, port: Port(port), key: 20_062_003 };
        tell(&mut attack, withdrawal, &[item]);
        assert_eq!(known(&mut attack), before + left, "withdrawal: {withdrawal}, port {port}");
    }
    attack.check();
}
