//! Tests of how quickly losses are repaired, and of the number of retransmissions. All times are virtual, so every
//! figure is exact and reproducible.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::link::LinkStats;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_sim::{HostId, Network};
use rand::RngExt;

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const ONE_WAY: Duration = Duration::from_millis(1);
const ROUND_TRIP: Duration = Duration::from_millis(2);
const SERVICE: Address = Address::Service { service: 1000, instance: 0, domain: NodeAddr(0) };

/// Two nodes, a millisecond apart, with a link that is up.
fn pair(seed: u64) -> Network {
    apart(seed, ONE_WAY)
}

/// Two nodes with a link that is up; a frame takes `one_way`.
fn apart(seed: u64, one_way: Duration) -> Network {
    let mut net = Network::new(seed, 2, 1500, Duration::from_millis(1500));
    net.conditions.delay_min = one_way;
    net.conditions.delay_max = one_way;
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(5));
    net
}

fn stats(net: &mut Network, host: HostId) -> LinkStats {
    net.with(host, |node, _| node.peers().next().expect("a peer").links[0].stats).expect("up")
}

/// Opens a datagram socket at each end. Returns the sender's and the receiver's port.
fn sockets(net: &mut Network) -> (Port, Port) {
    let server = net.with(B, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, ServiceRange::single(1000, 0), Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_millis(100));
    let client = net.with(A, |node, _| node.open(SocketKind::Rdm).unwrap());
    (client.unwrap(), server.unwrap())
}

/// Runs until the receiver has a message, and returns the time since `sent`.
fn arrival(net: &mut Network, server: Port, sent: Nanos) -> Duration {
    loop {
        if let Some(Ok(_)) = net.with(B, |node, now| node.recv(now, server, 10_000)) {
            return net.now().since(sent);
        }
        assert!(net.now().since(sent) < Duration::from_secs(10), "the message never arrived");
        let next = net.now() + Duration::from_micros(10);
        net.step(next);
    }
}

#[test]
fn a_lost_last_packet_is_repaired_within_three_round_trips_and_5_ms() {
    let mut net = pair(1);
    let (client, server) = sockets(&mut net);
    for payload in [&[1; 100][..], &[2; 9_000]] {
        let sent = net.now();
        net.conditions.loss_per_mille = 1000;
        net.with(A, |node, now| node.send(now, client, Some(SERVICE), payload)).unwrap().unwrap();
        net.conditions.loss_per_mille = 0;
        let time = arrival(&mut net, server, sent);
        assert!(
            time <= 3 * ROUND_TRIP + Duration::from_millis(5),
            "a message of {} bytes arrived only after {time:?}",
            payload.len()
        );
        net.run(Duration::from_secs(1));
    }
    assert_eq!(
        stats(&mut net, A).packets_resent,
        1 + 7,
        "only what was lost must be retransmitted: one packet, then seven fragments"
    );
}

/// The last packet of a burst is repaired within three round trips plus 5 ms, whatever the distance between the ends
/// and the preceding traffic.
#[test]
fn the_last_of_a_burst_is_repaired_as_soon_at_any_distance() {
    for one_way_us in [20, 200, 1_000, 10_000, 50_000] {
        let one_way = Duration::from_micros(one_way_us);
        let mut net = apart(1, one_way);
        let (client, server) = sockets(&mut net);
        let mut lost = 0;
        for burst in [1, 2, 17, 200, 1, 40] {
            let send = |net: &mut Network, n: u32| {
                let payload = [&n.to_be_bytes()[..], &[7; 1_300]].concat();
                net.with(A, |node, now| node.send(now, client, Some(SERVICE), &payload)).unwrap()
            };
            let next = |net: &mut Network| {
                let number = |m: Vec<u8>| u32::from_be_bytes(m[..4].try_into().unwrap());
                let taken = net.with(B, |node, now| node.recv(now, server, 10_000)).unwrap();
                taken.ok().map(|message| number(message.payload))
            };
            let mut got = 0;
            let mut n = 0;
            while n < burst - 1 {
                match send(&mut net, n) {
                    Ok(_) => n += 1,
                    Err(error) => {
                        assert_eq!(error, SocketError::WouldBlock);
                        let soon = net.now() + one_way;
                        net.step(soon);
                    }
                }
            }
            let (sent, resent) = (net.now(), stats(&mut net, A).packets_resent);
            net.conditions.loss_per_mille = 1000;
            while send(&mut net, n).is_err() {
                net.conditions.loss_per_mille = 0;
                let soon = net.now() + one_way;
                net.step(soon);
                net.conditions.loss_per_mille = 1000;
            }
            net.conditions.loss_per_mille = 0;
            let lost_at = net.now();
            while got < burst {
                match next(&mut net) {
                    Some(number) => {
                        assert_eq!(number, got);
                        got += 1;
                    }
                    None => {
                        assert!(net.now().since(sent) < Duration::from_secs(60));
                        let soon = net.now() + Duration::from_micros(10);
                        net.step(soon);
                    }
                }
            }
            let time = net.now().since(lost_at);
            assert!(
                time <= 3 * (2 * one_way) + Duration::from_millis(5),
                "the last of {burst} messages, at a distance of {one_way:?}, arrived only after {time:?}"
            );
            lost += u32::from(stats(&mut net, A).packets_resent > resent);
            net.run(Duration::from_secs(1));
        }
        // Packets for which the window was full were sent later, and were not lost.
        assert!(lost >= 4, "only {lost} of 6 bursts lost a packet");
    }
}

#[test]
fn a_packet_lost_in_the_middle_is_repaired_by_the_report_of_those_behind_it() {
    let mut net = pair(2);
    let (client, server) = sockets(&mut net);
    let send = |net: &mut Network| {
        net.with(A, |node, now| node.send(now, client, Some(SERVICE), &[1; 1400])).unwrap()
    };
    let sent = net.now();
    net.conditions.loss_per_mille = 1000;
    send(&mut net).unwrap();
    net.conditions.loss_per_mille = 0;
    for _ in 0..3 {
        send(&mut net).unwrap();
    }
    // One way with the packets behind it, one way for the report, one way for the retransmission.
    let time = arrival(&mut net, server, sent);
    assert!(time <= 3 * ONE_WAY + Duration::from_micros(100), "took {time:?}");
    assert_eq!(stats(&mut net, A).packets_resent, 1);
}

/// Sends `total` bytes on a stream, and returns the virtual time that this took.
fn stream(net: &mut Network, total: usize) -> Duration {
    let listener = net.with(B, |node, _| {
        let port = node.open(SocketKind::Stream).unwrap();
        node.listen(port).unwrap();
        node.bind(port, ServiceRange::single(1000, 0), Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_millis(200));
    let client = net.with(A, |node, _| node.open(SocketKind::Stream).unwrap()).unwrap();
    let request = net.with(A, |node, now| node.connect(now, client, Some(SERVICE), &[])).unwrap();
    assert_eq!(request, Err(SocketError::InProgress));
    net.run(Duration::from_millis(500));
    let (server, _) =
        net.with(B, |node, now| node.accept(now, listener.unwrap())).unwrap().unwrap();
    net.run(Duration::from_millis(500));
    let start = net.now();
    let (mut sent, mut received) = (0, 0);
    let byte = |n: usize| (n / 7 + n / 1009) as u8;
    while received < total {
        while sent < total {
            let len = net.rng().random_range(1..40_000).min(total - sent);
            let payload: Vec<u8> = (sent..sent + len).map(byte).collect();
            match net.with(A, |node, now| node.send(now, client, None, &payload)).unwrap() {
                Ok(taken) => sent += taken,
                Err(error) => {
                    assert_eq!(error, SocketError::WouldBlock);
                    break;
                }
            }
        }
        while let Ok(part) = net.with(B, |node, now| node.recv(now, server, 50_000)).unwrap() {
            for (n, got) in part.payload.iter().enumerate() {
                assert_eq!(*got, byte(received + n), "byte {}", received + n);
            }
            received += part.payload.len();
        }
        let next = net.now() + Duration::from_millis(10);
        net.step(next);
        assert!(
            net.now().since(start) < Duration::from_secs(600),
            "only {received} of {total} bytes arrived"
        );
    }
    net.now().since(start)
}

#[test]
fn a_stream_through_losses_is_whole_and_only_what_was_lost_goes_twice() {
    let total = 2 << 20;
    let clean = stream(&mut pair(3), total);
    for (loss_per_mille, slower_at_most, resent_percent_max) in [(1, 2, 1), (10, 3, 2), (50, 6, 8)]
    {
        let mut net = pair(3);
        net.conditions.loss_per_mille = loss_per_mille;
        let time = stream(&mut net, total);
        let s = stats(&mut net, A);
        assert!(s.packets_sent > 1_400, "{s:?}");
        assert!(
            s.packets_resent * 100 <= s.packets_sent * resent_percent_max,
            "with {loss_per_mille} per mille lost, {} retransmissions for {} packets",
            s.packets_resent,
            s.packets_sent
        );
        assert!(
            time <= clean * slower_at_most,
            "with {loss_per_mille} per mille lost, the stream took {time:?} instead of {clean:?}"
        );
    }
}
