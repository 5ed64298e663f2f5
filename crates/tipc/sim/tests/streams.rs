//! Tests of the number of packets that a stream needs: large writes fill packets, small writes share packets, and no
//! write waits if waiting saves nothing.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{HostId, Network};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
/// Number of stream bytes that fill a packet of 1500 bytes.
const FULL: usize = 1_476;

struct Stream {
    net: Network,
    client: Port,
    server: Port,
}

impl Stream {
    fn new() -> Self {
        let mut net = Network::new(5, 2, 1500, Duration::from_millis(1500));
        net.start(A, false);
        net.start(B, false);
        net.run(Duration::from_secs(2));
        let listener = net.with(B, |node, _| {
            let port = node.open(SocketKind::Stream).unwrap();
            node.listen(port).unwrap();
            node.bind(port, ServiceRange::single(700, 0), Scope::Cluster).unwrap();
            port
        });
        net.run(Duration::from_millis(50));
        let client = net.with(A, |node, now| {
            let port = node.open(SocketKind::Stream).unwrap();
            let to = Address::Service { service: 700, instance: 0, domain: NodeAddr(0) };
            let result = node.connect(now, port, Some(to), &[]);
            assert_eq!(result, Err(SocketError::InProgress));
            port
        });
        net.run(Duration::from_millis(50));
        let accepted = net.with(B, |node, now| node.accept(now, listener.unwrap())).unwrap();
        net.run(Duration::from_millis(50));
        net.record = Some(Vec::new());
        Self { net, client: client.unwrap(), server: accepted.unwrap().0 }
    }

    fn write(&mut self, payload: &[u8]) -> Result<usize, SocketError> {
        let port = self.client;
        self.net.with(A, |node, now| node.send(now, port, None, payload)).unwrap()
    }

    /// Reads all data that has arrived.
    fn read(&mut self) -> Vec<u8> {
        let (mut all, port) = (Vec::new(), self.server);
        while let Ok(m) = self.net.with(B, |node, now| node.recv(now, port, 1 << 20)).unwrap() {
            if m.error != ErrorCode::Ok {
                break;
            }
            all.extend(m.payload);
        }
        all
    }

    fn run(&mut self, micros: u64) {
        self.net.run(Duration::from_micros(micros));
    }

    /// Returns the payload lengths of the stream's packets that were sent since the last call, and the number of
    /// acknowledgements sent on request.
    fn packets(&mut self) -> (Vec<usize>, usize) {
        let frames = self.net.record.replace(Vec::new()).unwrap_or_default();
        let (mut lens, mut acks) = (Vec::new(), 0);
        for frame in frames {
            match (frame[0] >> 1) & 15 {
                0..=3 => lens.push(frame.len() - 24),
                8 if frame[1] & 4 != 0 => acks += 1,
                12 | 6 => panic!("a stream needs neither fragments nor bundles here"),
                _ => {}
            }
        }
        (lens, acks)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n * 31) >> 3) as u8).collect()
}

#[test]
fn a_large_write_is_cut_into_full_packets() {
    let mut s = Stream::new();
    let data = pattern(40 * FULL + 100);
    assert_eq!(s.write(&data), Ok(data.len()));
    s.run(50_000);
    assert_eq!(s.read(), data);
    let (lens, acks) = s.packets();
    assert_eq!(lens.len(), 41);
    assert!(lens[..40].iter().all(|&len| len == FULL), "{lens:?}");
    assert_eq!(
        (lens[40], acks),
        (100, 0),
        "the last, partly filled packet must be sent immediately"
    );
}

#[test]
fn small_writes_in_a_row_share_packets() {
    let mut s = Stream::new();
    let data = pattern(64 * 1_000);
    for part in data.chunks(64) {
        assert_eq!(s.write(part), Ok(64));
    }
    s.run(50_000);
    assert_eq!(s.read(), data);
    let (lens, acks) = s.packets();
    // Four are sent alone, the fifth requests an acknowledgement; the others leave with 23 writes per packet, the last ones when
    // the answer arrives.
    let merged = 995 * 64;
    assert_eq!(lens[..5], [64; 5]);
    assert!(lens[5..5 + merged / FULL].iter().all(|&len| len == FULL), "{lens:?}");
    assert_eq!(lens.len(), 5 + merged.div_ceil(FULL), "{lens:?}");
    assert!(merged / 64 / (lens.len() - 5) >= 22, "too few writes per packet");
    assert_eq!(acks, 2, "one acknowledgement for the first packet, one for the last");
}

#[test]
fn without_merging_every_write_is_a_packet() {
    let mut s = Stream::new();
    let port = s.client;
    s.net.with(A, |node, _| {
        let mut options = node.socket_report(port).unwrap().options;
        options.nodelay = true;
        node.set_options(port, options).unwrap();
    });
    let data = pattern(64 * 100);
    for part in data.chunks(64) {
        assert_eq!(s.write(part), Ok(64));
        s.run(200);
    }
    assert_eq!(s.read(), data);
    assert_eq!(s.packets(), (vec![64; 100], 0));
}

#[test]
fn writes_at_leisure_are_not_delayed_and_soon_not_asked_about() {
    let mut s = Stream::new();
    for n in 0..400_u32 {
        assert_eq!(s.write(&n.to_be_bytes()), Ok(4));
        // Longer than a round trip.
        s.run(1_000);
        assert_eq!(s.read(), n.to_be_bytes(), "write {n} must arrive before the next one");
    }
    let (lens, acks) = s.packets();
    assert_eq!(lens, vec![4; 400]);
    assert!(
        acks <= 7,
        "{acks} acknowledgements were requested, instead of one after 4, 8, 16, ... writes"
    );
}

#[test]
fn a_conversation_never_waits() {
    let mut s = Stream::new();
    let (client, server) = (s.client, s.server);
    for _ in 0..50 {
        s.write(b"question").unwrap();
        s.run(1_000);
        assert_eq!(s.read(), b"question");
        s.net.with(B, |node, now| node.send(now, server, None, b"answer")).unwrap().unwrap();
        s.run(1_000);
        let got = s.net.with(A, |node, now| node.recv(now, client, 100)).unwrap().unwrap();
        assert_eq!(got.payload, b"answer");
    }
    assert_eq!(s.packets().1, 0, "no acknowledgement may be requested in a dialogue");
}

#[test]
fn what_is_collected_goes_before_the_end() {
    for close in [false, true] {
        let mut s = Stream::new();
        let data = pattern(64 * 30);
        for part in data.chunks(64) {
            s.write(part).unwrap();
        }
        let port = s.client;
        s.net
            .with(
                A,
                |node, now| if close { node.close(now, port) } else { node.shutdown(now, port) },
            )
            .unwrap()
            .unwrap();
        s.run(50_000);
        assert_eq!(s.read(), data);
        let end = s.net.with(B, |node, now| node.recv(now, s.server, 10)).unwrap();
        if close {
            assert_eq!(end, Err(SocketError::ConnectionReset));
        } else {
            assert_eq!(end, Err(SocketError::WouldBlock), "the end must be reported only once");
        }
    }
}

/// Whether the reader is slow, the window or the link is full, or packets are lost: every byte arrives once and in its
/// place, whatever the sizes of the writes.
#[test]
fn every_byte_arrives_in_its_place_whatever_is_full() {
    for loss in [0, 50] {
        let mut s = Stream::new();
        s.net.record = None;
        s.net.conditions.loss_per_mille = loss;
        let data = pattern(900_000);
        let (mut written, mut size, mut blocked, mut got) = (0, 1, 0, Vec::new());
        s.net.take_events();
        while written < data.len() {
            size = (size * 7 + 13) % 9_000 + 1;
            let size = if written % 3 == 0 { size % 50 + 1 } else { size };
            let part = &data[written..data.len().min(written + size)];
            match s.write(part) {
                Ok(taken) => written += taken,
                Err(error) => {
                    assert_eq!(error, SocketError::WouldBlock);
                    blocked += 1;
                    // The reader reads, and the writer is woken.
                    let until = s.net.now() + Duration::from_secs(20);
                    let ready = (A, Event::SocketReady(s.client));
                    while !s.net.take_events().contains(&ready) {
                        got.extend(s.read());
                        assert!(s.net.step(until), "the writer was never woken");
                    }
                }
            }
        }
        s.net.conditions.loss_per_mille = 0;
        s.run(3_000_000);
        got.extend(s.read());
        s.run(100_000);
        got.extend(s.read());
        assert!(
            got == data,
            "{} of {} bytes arrived, or some of them differ",
            got.len(),
            data.len()
        );
        assert!(blocked > 3, "neither the window nor the link was ever full");
    }
}

#[test]
fn an_idle_connection_is_asked_about_once_an_hour_and_lives_on() {
    let mut s = Stream::new();
    s.packets();
    s.net.run(Duration::from_secs(2 * 3_600 + 60));
    let frames = s.net.record.replace(Vec::new()).unwrap_or_default();
    let about_connections = |f: &&Vec<u8>| (f[0] >> 1) & 15 == 8;
    let kinds: Vec<u8> = frames.iter().filter(about_connections).map(|f| f[4] >> 5).collect();
    // Two ends, two hours: a probe (0) and an answer (1) each time.
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|k| **k == 0).count(), 4);
    assert_eq!(s.write(b"still here"), Ok(10));
    s.run(50_000);
    assert_eq!(s.read(), b"still here");
}
