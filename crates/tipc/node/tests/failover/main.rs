//! Two `tipcd` with two links between them while messages and streams run both ways: whichever way a medium is cut, everything arrives
//! once and in order. `cargo bench -p crossway-tipc-node --bench failover` measures how long it takes.

mod flows;
mod planes;

use std::time::Duration;

use crossway_netlab::NetError;
use crossway_tipc_client::admin::{Order, Settings};
use flows::Flows;
use planes::{Cut, Planes, ip};

#[test]
fn everything_arrives_once_and_in_order_whichever_medium_is_cut_and_however() {
    let mut planes = match Planes::up(Duration::from_millis(200)) {
        Ok(planes) => planes,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            return eprintln!("SKIP failover: {why}");
        }
        Err(why) => panic!("{why}"),
    };
    let flows = Flows::start([&planes.nodes[0].path, &planes.nodes[1].path]);
    for (n, how) in [(0, Cut::Silence), (1, Cut::Device), (1, Cut::Silence), (0, Cut::Device)] {
        let cut = planes.cut(n, how);
        let noticed = planes.noticed(n);
        flows.await_arrivals_after(noticed[0].max(noticed[1]));
        let pause = flows.longest_pause_since(cut);
        eprintln!("{how:?}: noticed after {:?}, pause {pause:?}", noticed.map(|at| at - cut));
        planes.mend(n, how);
    }
    // A device that is deleted is told as one that went down; its successor is another, which the operator names anew.
    ip(&mut planes.lab, "a", "link del p1");
    let noticed = planes.noticed(1);
    flows.await_arrivals_after(noticed[0].max(noticed[1]));
    for line in [
        "link add p1 type veth peer name q1",
        "link set q1 master br1",
        "link set q1 up",
        "link set p1 up",
    ] {
        ip(&mut planes.lab, "a", line);
    }
    planes.nodes[0].order(&Order::DisableBearer { name: "p1".into() });
    let (bearer, settings) = ("eth:p1".into(), Settings::default());
    planes.nodes[0].order(&Order::EnableBearer { bearer, name: None, settings });
    planes.await_links(2);
    let messages = flows.finish();
    assert!(messages > 100, "{messages}");
}
