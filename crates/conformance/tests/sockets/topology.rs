//! The topology service, as programs use it: a connection to {1, 1}.

use crossway_tipc_client::{Address, Kind, Patience, Scope, ServiceRange};

use crate::site::{Site, soon};

fn subscription(service: u32, timeout_ms: u32, filter: u32) -> Vec<u8> {
    let words = [service, 0, u32::MAX, timeout_ms, filter, 0x0403_0201, 0x0807_0605];
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn word(event: &[u8], n: usize) -> u32 {
    u32::from_ne_bytes(event[4 * n..4 * n + 4].try_into().unwrap())
}

#[test]
fn subscribers_hear_of_bindings_that_come_and_go() {
    let site = Site::lone();
    let early = site.socket(Kind::Rdm);
    early.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    let topology = site.socket(Kind::Seqpacket);
    topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
    topology.send(&subscription(1000, u32::MAX, 1), None, Patience::Forever).unwrap();
    let mut event = [0; 48];
    let mut expect = |what: u32, instance: u32, port: u32| {
        assert_eq!(topology.recv(&mut event, soon()), Ok(48));
        assert_eq!([word(&event, 0), word(&event, 1), word(&event, 3)], [what, instance, port]);
        assert_eq!(event[20..], subscription(1000, u32::MAX, 1)[..]);
    };
    expect(1, 1, early.local_address().unwrap().port);
    let late = site.socket(Kind::Rdm);
    late.bind(ServiceRange::single(1000, 2), Scope::Cluster).unwrap();
    let port = late.local_address().unwrap().port;
    expect(1, 2, port);
    late.unbind_all().unwrap();
    expect(2, 2, port);
    let port = early.local_address().unwrap().port;
    drop(early);
    expect(2, 1, port);
}

#[test]
fn a_subscription_ends_with_its_time() {
    let site = Site::lone();
    let topology = site.socket(Kind::Seqpacket);
    topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
    topology.send(&subscription(1000, 20, 2), None, Patience::Forever).unwrap();
    let mut event = [0; 48];
    assert_eq!(topology.recv(&mut event, soon()), Ok(48));
    assert_eq!(word(&event, 0), 3, "TIMEOUT");
    // Nonsense ends the connection in good order.
    topology.send(b"nonsense", None, Patience::Forever).unwrap();
    assert_eq!(topology.recv(&mut event, soon()), Ok(0));
}
