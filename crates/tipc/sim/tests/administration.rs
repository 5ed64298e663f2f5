//! Tests of settings that an operator changes on a running link, and that the other end must adopt.

use std::time::Duration;

use crossway_tipc_proto::addr::BearerId;
use crossway_tipc_proto::link::LinkSettings;
use crossway_tipc_proto::node::SettingError;
use crossway_tipc_sim::{HostId, Network};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const BEARER: BearerId = BearerId(0);

fn pair() -> Network {
    let mut net = Network::new(1, 2, 1500, Duration::from_millis(1500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(2));
    net
}

/// Returns the tolerance of a host's only link in milliseconds, its priority, and the number of times it came up.
fn link(net: &mut Network, host: HostId) -> (u128, u8, u64) {
    let links = net.with(host, |node, _| node.peers().flat_map(|p| p.links).collect::<Vec<_>>());
    let [one] = &links.unwrap()[..] else { panic!("one link") };
    (one.tolerance.as_millis(), one.priority, one.stats.ups)
}

fn set(net: &mut Network, settings: LinkSettings) -> Result<(), SettingError> {
    let peer = net.addr(B);
    net.with(A, |node, now| node.set_link(now, peer, BEARER, settings)).unwrap()
}

#[test]
fn a_tolerance_reaches_the_peer_and_a_priority_makes_the_link_come_up_again() {
    let mut net = pair();
    let before = link(&mut net, B);
    set(
        &mut net,
        LinkSettings { tolerance: Some(Duration::from_millis(400)), ..Default::default() },
    )
    .unwrap();
    net.run(Duration::from_millis(100));
    assert_eq!(link(&mut net, A), (400, before.1, before.2));
    assert_eq!(
        link(&mut net, B),
        (400, before.1, before.2),
        "the new tolerance must be announced immediately, and the link must stay up"
    );
    set(&mut net, LinkSettings { priority: Some(20), ..Default::default() }).unwrap();
    net.run(Duration::from_secs(3));
    assert_eq!(link(&mut net, A), (400, 20, before.2 + 1));
    assert_eq!(link(&mut net, B), (400, 20, before.2 + 1));
}

#[test]
fn what_is_out_of_bounds_is_refused_and_changes_nothing() {
    let mut net = pair();
    let before = link(&mut net, A);
    for (settings, error) in [
        (
            LinkSettings { tolerance: Some(Duration::from_millis(49)), ..Default::default() },
            SettingError::Tolerance,
        ),
        (LinkSettings { priority: Some(0), ..Default::default() }, SettingError::Priority),
        (LinkSettings { window_max: Some(0), ..Default::default() }, SettingError::Window),
    ] {
        assert_eq!(set(&mut net, settings), Err(error));
    }
    assert_eq!(link(&mut net, A), before);
    let nobody = net.addr(A);
    let result =
        net.with(A, |node, now| node.set_link(now, nobody, BEARER, LinkSettings::default()));
    assert_eq!(result.unwrap(), Err(SettingError::NoSuchLink));
}
