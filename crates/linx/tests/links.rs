//! Tests of several nodes in one process, linked over loopback.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crossway_linx::signal::{ATTACH, NEW_LINK, USER_BASE};
use crossway_linx::{
    Count, Endpoint, EndpointKind, Error, Filter, LinkAddress, LinkSettings, Node, NodeThread,
    Options, Settings, Signal, Spid,
};

/// A time limit that only serves to catch hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

fn soon() -> Option<Instant> {
    Some(Instant::now() + WATCHDOG)
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

struct Host {
    node: NodeThread,
    at: Vec<SocketAddr>,
}

impl Host {
    fn new(name: &str, links: &[(&str, Vec<SocketAddr>)]) -> Host {
        // No test waits for this timeout, and a busy machine does not reach it.
        Self::at(name, loopback(), WATCHDOG, links)
    }

    fn at(
        name: &str,
        at: SocketAddr,
        link_timeout: Duration,
        links: &[(&str, Vec<SocketAddr>)],
    ) -> Host {
        let links = links
            .iter()
            .map(|(name, addresses)| LinkSettings {
                name: (*name).to_owned(),
                addresses: addresses.iter().copied().map(LinkAddress::Tcp).collect(),
            })
            .collect();
        let settings = Settings {
            name: name.to_owned(),
            listen: vec![at.into()],
            links,
            link_timeout,
            ..Settings::default()
        };
        let node = Node::spawn_private(settings).unwrap();
        let address = |at: &LinkAddress| match at {
            LinkAddress::Tcp(address) => *address,
            other => panic!("{other}"),
        };
        let at = node.listens_at().iter().map(address).collect();
        Host { node, at }
    }

    fn open(&self, name: &str) -> Endpoint {
        let connection = self.node.connection().unwrap();
        Endpoint::open_on(connection, name, &Options::default()).unwrap()
    }
}

fn signal(n: u32) -> Signal {
    Signal::with_payload(USER_BASE + n, b"payload").unwrap()
}

fn any(endpoint: &mut Endpoint) -> Signal {
    endpoint.receive(&Filter::ANY, soon()).unwrap().expect("a signal comes")
}

#[test]
fn a_path_of_links_leads_to_an_endpoint_and_back() {
    let c = Host::new("c", &[]);
    let b = Host::new("b", &[("east", c.at.clone())]);
    let a = Host::new("a", &[("b", b.at.clone())]);
    let mut client = a.open("client");
    client.hunt("b/east/server", Some(signal(1))).unwrap();
    let mut server = c.open("server");
    let found = any(&mut client);
    assert_eq!(found.number(), USER_BASE + 1);
    let there = found.sender().unwrap();
    let info = client.info(there).unwrap();
    assert_eq!((info.name.as_str(), info.kind), ("b/east/server", EndpointKind::Remote));

    client.attach(there, None).unwrap();
    for n in 0..50 {
        client.send(signal(n), there).unwrap();
    }
    for n in 0..50 {
        let got = any(&mut server);
        assert_eq!((got.number(), got.payload()), (USER_BASE + n, &b"payload"[..]));
        let back = got.sender().unwrap();
        if n == 0 {
            assert_eq!(server.info(back).unwrap().name, "b/a/client");
            server.attach(back, Some(signal(500))).unwrap();
        }
        server.send(got, back).unwrap();
    }
    for n in 0..50 {
        let got = any(&mut client);
        assert_eq!((got.number(), got.sender()), (USER_BASE + n, Some(there)));
    }
    let own = client.spid();
    let traffic = client.condition(own).unwrap().traffic;
    let all = Count { signals: 50, bytes: 50 * signal(0).size() as u64 };
    assert_eq!((traffic.sent_remote, traffic.received_remote), (all, all));
    assert_eq!((traffic.sent_local.signals, traffic.received_local.signals), (0, 1), "its hunt");
    assert!(matches!(client.condition(there), Err(Error::NotHere { .. })));
    for size in [4, 65_536, 3 << 20, 16 << 20] {
        let mut big = Signal::new(USER_BASE + 7, size).unwrap();
        big.payload_mut().iter_mut().enumerate().for_each(|(at, b)| *b = (at % 251) as u8);
        std::thread::scope(|scope| {
            scope.spawn(|| client.send(big, there).unwrap());
            let got = any(&mut server);
            assert_eq!(got.payload().len(), size);
            assert!(got.payload().iter().enumerate().all(|(at, b)| *b == (at % 251) as u8));
        });
    }
    // The last signals arrive before the notice of the end.
    server.send(signal(70), server.spid()).unwrap();
    let back = any(&mut server).sender().unwrap();
    assert_eq!(back, server.spid());
    drop(client);
    assert_eq!(any(&mut server).number(), USER_BASE + 500);
}

#[test]
fn the_end_of_an_endpoint_is_reported_after_its_last_signal() {
    let b = Host::new("b", &[]);
    let a = Host::new("a", &[("b", b.at.clone())]);
    let mut client = a.open("client");
    let mut server = b.open("server");
    let there = client.hunt_and_wait("b/server", soon()).unwrap();
    client.send(signal(0), there).unwrap();
    let back = any(&mut server).sender().unwrap();
    client.attach(there, None).unwrap();
    for _ in 0..5 {
        server.send(Signal::new(USER_BASE + 1, 100_000).unwrap(), back).unwrap();
    }
    drop(server);
    for _ in 0..5 {
        assert_eq!(any(&mut client).payload().len(), 100_000);
    }
    let told = any(&mut client);
    assert_eq!((told.number(), told.sender()), (ATTACH, Some(there)));
    assert!(matches!(client.send(signal(1), there), Err(Error::Gone { .. })));
    // The successor is a different endpoint.
    let _server = b.open("server");
    assert_ne!(client.hunt_and_wait("b/server", soon()).unwrap(), there);
}

#[test]
fn the_loss_of_a_node_reaches_everyone_attached_and_hunts_go_on_when_it_is_back() {
    let timeout = Duration::from_millis(300);
    let b = Host::at("b", loopback(), timeout, &[]);
    let at = b.at[0];
    let a = Host::at("a", loopback(), timeout, &[("b", vec![at])]);
    let mut client = a.open("client");
    client.request_new_link(0).unwrap();
    let up = any(&mut client);
    assert_eq!((up.number(), &up.payload()[8..]), (NEW_LINK, &b"b\0"[..]));
    let token = u64::from_ne_bytes(up.payload()[..8].try_into().unwrap());
    let server = b.open("server");
    let there = client.hunt_and_wait("b/server", soon()).unwrap();
    let link = client.hunt_and_wait("b", soon()).unwrap();
    assert_eq!(client.info(link).unwrap().kind, EndpointKind::Link);
    client.attach(there, Some(signal(1))).unwrap();
    client.attach(link, Some(signal(2))).unwrap();
    drop(b);
    drop(server);
    let mut told = [any(&mut client).number(), any(&mut client).number()];
    told.sort_unstable();
    assert_eq!(told, [USER_BASE + 1, USER_BASE + 2]);
    client.hunt("b/server", Some(signal(3))).unwrap();
    client.request_new_link(token).unwrap();
    let b = Host::at("b", at, timeout, &[]);
    assert_eq!(any(&mut client).number(), NEW_LINK);
    let _server = b.open("server");
    let found = any(&mut client);
    assert_eq!(found.number(), USER_BASE + 3);
    assert_ne!(found.sender(), Some(there));
}

/// Forwards a connection until `cut` receives a message.
struct Way {
    at: SocketAddr,
    cut: std::sync::mpsc::Sender<()>,
}

impl Way {
    fn to(target: SocketAddr) -> Way {
        let listener = TcpListener::bind(loopback()).unwrap();
        let at = listener.local_addr().unwrap();
        let (cut, is_cut) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let Ok((from, _)) = listener.accept() else { return };
            drop(listener);
            let to = TcpStream::connect(target).unwrap();
            for (mut a, mut b) in [
                (from.try_clone().unwrap(), to.try_clone().unwrap()),
                (to.try_clone().unwrap(), from.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || std::io::copy(&mut a, &mut b));
            }
            let _ = is_cut.recv();
            let _ = from.shutdown(std::net::Shutdown::Both);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        Way { at, cut }
    }
}

#[test]
fn a_link_goes_on_by_its_other_address_without_losing_or_repeating_a_signal() {
    let b = Host::new("b", &[]);
    let first = Way::to(b.at[0]);
    let a = Host::new("a", &[("b", vec![first.at, b.at[0]])]);
    let mut client = a.open("client");
    let mut server = b.open("server");
    let there = client.hunt_and_wait("b/server", soon()).unwrap();
    client.attach(there, None).unwrap();
    const COUNT: u32 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..COUNT {
                client.send(signal(n), there).unwrap();
                if n == COUNT / 3 {
                    first.cut.send(()).unwrap();
                }
            }
        });
        for n in 0..COUNT {
            assert_eq!(any(&mut server).number(), USER_BASE + n);
        }
    });
    assert_eq!(client.receive(&Filter::ANY, Some(Instant::now())).unwrap(), None, "nobody died");
}

/// Returns the payload of the nth signal of a sequence of large ones.
fn large(n: u32) -> Vec<u8> {
    let sizes = [65_531, 65_532, 65_533, 131_072, 300_000, 1 << 20, 3 << 20];
    let len = sizes[n as usize % sizes.len()] as u32;
    (0..len / 4).flat_map(|at| (at ^ n.rotate_right(8)).to_ne_bytes()).collect()
}

/// Sends large signals, in turn from shared memory, from ordinary memory and without a signal object, while `cut`
/// breaks the connection.
fn send_large(from: &mut Endpoint, to: Spid, count: u32, cut: impl Fn(u32)) {
    for n in 0..count {
        let (number, payload) = (USER_BASE + n, large(n));
        match n % 3 {
            0 => from.send_copy(number, &payload, to, None).unwrap(),
            1 => {
                let signal = Signal::with_payload(number, &payload).unwrap();
                from.send(signal, to).unwrap();
            }
            _ => {
                let mut signal = from.alloc_for(number, payload.len(), to).unwrap();
                signal.payload_mut().copy_from_slice(&payload);
                from.send(signal, to).unwrap();
            }
        }
        cut(n);
    }
}

fn receive_large(at: &mut Endpoint, count: u32) {
    let mut shared = 0;
    for n in 0..count {
        let signal = any(at);
        assert_eq!(signal.number(), USER_BASE + n);
        assert!(signal.payload() == large(n), "signal {n} is damaged");
        shared += u32::from(signal.is_shared());
    }
    assert!(shared > 0, "no signal was passed by reference");
}

#[test]
fn large_signals_arrive_whole_by_reference_also_when_their_connection_is_cut() {
    let b = Host::new("b", &[]);
    let first = Way::to(b.at[0]);
    let a = Host::new("a", &[("b", vec![first.at, b.at[0]])]);
    let (mut client, mut server) = (a.open("client"), b.open("server"));
    let there = client.hunt_and_wait("b/server", soon()).unwrap();
    client.attach(there, None).unwrap();
    let here = {
        client.send(signal(0), there).unwrap();
        any(&mut server).sender().unwrap()
    };
    const COUNT: u32 = 100;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send_large(&mut client, there, COUNT, |n| {
                if n == COUNT / 3 {
                    first.cut.send(()).unwrap();
                }
            });
        });
        receive_large(&mut server, COUNT);
    });
    std::thread::scope(|scope| {
        scope.spawn(|| send_large(&mut server, here, COUNT, |_| {}));
        receive_large(&mut client, COUNT);
    });
    // The buffer of a request is used for its reply.
    let mut request = client.alloc_for(USER_BASE, 1 << 20, there).unwrap();
    assert!(request.is_shared());
    request.payload_mut().fill(7);
    client.send(request, there).unwrap();
    let mut reply = any(&mut server);
    assert!(reply.is_shared() && reply.payload().iter().all(|byte| *byte == 7));
    reply.set_size(200_004).unwrap();
    reply.payload_mut().fill(8);
    server.send(reply, here).unwrap();
    assert!(any(&mut client).payload() == [8; 200_000]);
    assert_eq!(client.receive(&Filter::ANY, Some(Instant::now())).unwrap(), None, "nobody died");
}

#[test]
fn large_signals_that_nobody_receives_hold_back_their_sender() {
    let b = Host::new("b", &[]);
    let a = Host::new("a", &[("b", b.at.clone())]);
    let (mut client, mut deaf) = (a.open("client"), b.open("deaf"));
    let there = client.hunt_and_wait("b/deaf", soon()).unwrap();
    let mut sent = 0;
    loop {
        let until = Some(Instant::now() + Duration::from_millis(100));
        let signal = client.alloc_for(USER_BASE + sent, 4 << 20, there).unwrap();
        match client.send_until(signal, there, until) {
            Ok(()) => sent += 1,
            Err(Error::TimedOut) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 64, "the sender is never blocked");
    }
    std::thread::scope(|scope| {
        // Part of the last one may still be here.
        scope.spawn(|| client.flush(soon()).unwrap());
        for n in 0..sent {
            assert_eq!(any(&mut deaf).number(), USER_BASE + n);
        }
    });
}

#[test]
fn a_receiver_that_does_not_receive_holds_back_its_own_senders_only() {
    let b = Host::new("b", &[]);
    let a = Host::new("a", &[("b", b.at.clone())]);
    let (mut busy, mut other) = (a.open("busy"), a.open("other"));
    let (_deaf, mut server) = (b.open("deaf"), b.open("server"));
    let deaf = busy.hunt_and_wait("b/deaf", soon()).unwrap();
    let there = other.hunt_and_wait("b/server", soon()).unwrap();
    let mut bytes = 0;
    loop {
        let until = Some(Instant::now() + Duration::from_millis(100));
        match busy.send_until(Signal::new(USER_BASE, 60_000).unwrap(), deaf, until) {
            Ok(()) => bytes += 60_000,
            Err(Error::TimedOut) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(bytes < 64 << 20, "the sender is never blocked");
    }
    other.send(signal(1), there).unwrap();
    assert_eq!(any(&mut server).number(), USER_BASE + 1);
}

#[test]
fn strangers_and_second_nodes_of_a_name_harm_nobody() {
    let b = Host::new("b", &[]);
    let a = Host::new("a", &[("b", b.at.clone())]);
    let mut client = a.open("client");
    let mut server = b.open("server");
    let there = client.hunt_and_wait("b/server", soon()).unwrap();
    let garbage: [&[u8]; 4] = [b"GET / HTTP/1.0\r\n\r\n", &[0; 64], &[255; 64], &[0, 0, 0, 1, 4]];
    for bytes in garbage {
        let mut stranger = TcpStream::connect(b.at[0]).unwrap();
        stranger.write_all(bytes).unwrap();
    }
    let _impostor = Host::new("a", &[("b", b.at.clone())]);
    for n in 0..100 {
        client.send(signal(n), there).unwrap();
        assert_eq!(any(&mut server).number(), USER_BASE + n);
        std::thread::sleep(Duration::from_millis(5));
    }
}
