//! The user-space end of the interoperability test: a node with several services.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{NodeAddr, NodeId, Port, Scope, ServiceRange};
use crossway_tipc_proto::node::{Config, Event, Node};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::ErrorCode;

/// A function that creates the role of an accepted connection.
type NewRole = fn() -> Role;

/// The purpose of a socket.
#[derive(Debug)]
enum Role {
    /// Returns every message to its sender.
    Echo(VecDeque<(Address, Vec<u8>)>),
    /// Accepts connections, which get this role.
    Listener(NewRole),
    /// Returns every message of a connection.
    EchoConnection(VecDeque<Vec<u8>>),
    /// Reads a length and that many bytes, and answers with their checksum.
    Sink(Vec<u8>, u64, crc32fast::Hasher),
    /// Reads a length, and sends that many bytes and their checksum.
    Source { head: Vec<u8>, left: u64, crc: crc32fast::Hasher, pending: Vec<u8> },
    /// Binds and unbinds on request.
    Control,
    /// Communicates with the kernel's datagram service.
    Client,
    /// Connects to the kernel's listener.
    Caller { greeted: bool },
}

struct Services {
    roles: BTreeMap<Port, Role>,
}

fn bind(node: &mut Node, port: Port, service: u32, lower: u32, upper: u32) {
    node.bind(port, ServiceRange { service, lower, upper }, Scope::Cluster).expect("bind");
}

impl Services {
    fn open(node: &mut Node) -> Self {
        let mut roles = BTreeMap::new();
        let mut open = |node: &mut Node, kind, role| {
            let port = node.open(kind).expect("open");
            roles.insert(port, role);
            port
        };
        let echo = open(node, SocketKind::Rdm, Role::Echo(VecDeque::new()));
        bind(node, echo, 19000, 1, 1);
        let cast = open(node, SocketKind::Rdm, Role::Echo(VecDeque::new()));
        bind(node, cast, 19003, 0, 99);
        let control = open(node, SocketKind::Rdm, Role::Control);
        bind(node, control, 19008, 0, 0);
        let listeners: [(u32, SocketKind, NewRole); 3] = [
            (19002, SocketKind::Seqpacket, || Role::EchoConnection(VecDeque::new())),
            (19005, SocketKind::Stream, || Role::Sink(Vec::new(), 0, crc32fast::Hasher::new())),
            (19006, SocketKind::Stream, || Role::Source {
                head: Vec::new(),
                left: 0,
                crc: crc32fast::Hasher::new(),
                pending: Vec::new(),
            }),
        ];
        for (service, kind, role) in listeners {
            let port = open(node, kind, Role::Listener(role));
            node.listen(port).expect("listen");
            bind(node, port, service, 0, 0);
        }
        let ready = open(node, SocketKind::Rdm, Role::Echo(VecDeque::new()));
        bind(node, ready, 19010, 0, 0);
        Self { roles }
    }

    fn handle(&mut self, node: &mut Node, now: Nanos, event: &Event) {
        match event {
            Event::SocketReady(port) => self.ready(node, now, *port),
            Event::Published(b)
                if Some(b.socket.node) != node.addr() && b.range.service == 19001 =>
            {
                let port = node.open(SocketKind::Rdm).expect("open");
                self.roles.insert(port, Role::Client);
                let dest = Address::Service { service: 19001, instance: 5, domain: NodeAddr(0) };
                node.send(now, port, Some(dest), b"hello from user space").expect("send");
            }
            Event::Published(b)
                if Some(b.socket.node) != node.addr() && b.range.service == 19004 =>
            {
                let port = node.open(SocketKind::Seqpacket).expect("open");
                self.roles.insert(port, Role::Caller { greeted: false });
                let dest = Address::Service { service: 19004, instance: 0, domain: NodeAddr(0) };
                let result = node.connect(now, port, Some(dest), &[]);
                assert_eq!(result, Err(SocketError::InProgress));
            }
            Event::ConnectFailed { port, error } => {
                panic!("connection of {port:?} failed: {error}")
            }
            _ => {}
        }
    }

    fn ready(&mut self, node: &mut Node, now: Nanos, port: Port) {
        let Some(role) = self.roles.get_mut(&port) else { return };
        let done = match role {
            Role::Listener(make) => {
                let make = *make;
                let mut accepted = Vec::new();
                while let Ok((new, _)) = node.accept(now, port) {
                    self.roles.insert(new, make());
                    accepted.push(new);
                }
                // A request may have carried the first message.
                for new in accepted {
                    self.ready(node, now, new);
                }
                return;
            }
            Role::Echo(back) => {
                while let Ok(m) = node.recv(now, port, 100_000) {
                    back.push_back((Address::Socket(m.from), m.payload));
                }
                while let Some((to, payload)) = back.front()
                    && node.send(now, port, Some(*to), payload) != Err(SocketError::WouldBlock)
                {
                    back.pop_front();
                }
                false
            }
            Role::EchoConnection(back) => {
                let over = read(node, now, port, &mut |payload| back.push_back(payload.to_vec()));
                while let Some(payload) = back.front()
                    && node.send(now, port, None, payload) != Err(SocketError::WouldBlock)
                {
                    back.pop_front();
                }
                over
            }
            Role::Sink(head, count, crc) => {
                let over = read(node, now, port, &mut |payload| {
                    let rest = fill(head, payload);
                    crc.update(rest);
                    *count += rest.len() as u64;
                });
                if head.len() == 8 && *count == u64::from_be_bytes(head[..].try_into().unwrap()) {
                    // While a plane is silent there may be no room; try again then.
                    match node.send(now, port, None, &crc.clone().finalize().to_be_bytes()) {
                        Ok(_) => head.push(0),
                        Err(error) => assert_eq!(error, SocketError::WouldBlock),
                    }
                }
                over
            }
            Role::Source { head, left, crc, pending } => {
                let over = read(node, now, port, &mut |payload| {
                    fill(head, payload);
                    if head.len() == 8 {
                        *left = u64::from_be_bytes(head[..].try_into().unwrap());
                    }
                });
                head.len() == 8 && feed(node, now, port, left, crc, pending) || over
            }
            Role::Control => {
                while let Ok(m) = node.recv(now, port, 100) {
                    let range = ServiceRange { service: 19020, lower: 3, upper: 8 };
                    match &m.payload[..] {
                        b"bind" => node.bind(port, range, Scope::Cluster).expect("bind"),
                        _ => node.unbind(now, port, Some((range, Scope::Cluster))).expect("unbind"),
                    }
                }
                false
            }
            Role::Client => match node.recv(now, port, 100) {
                Ok(m) => {
                    assert_eq!(
                        (m.error, &m.payload[..]),
                        (ErrorCode::Ok, &b"nice to meet you"[..])
                    );
                    node.send(now, port, Some(Address::Socket(m.from)), b"thank you")
                        .expect("send");
                    true
                }
                Err(_) => false,
            },
            Role::Caller { greeted } => {
                if !*greeted && node.readiness(port).expect("open").writable {
                    *greeted = true;
                    node.send(now, port, None, b"connected from user space").expect("send");
                }
                match node.recv(now, port, 100) {
                    Ok(m) => {
                        assert_eq!(&m.payload[..], b"welcome");
                        node.shutdown(now, port).expect("shutdown");
                        true
                    }
                    Err(_) => false,
                }
            }
        };
        if done {
            self.roles.remove(&port);
            node.close(now, port).expect("close");
        }
    }
}

/// Passes all available data of a connection to `take`. Returns whether the connection has ended.
fn read(node: &mut Node, now: Nanos, port: Port, take: &mut dyn FnMut(&[u8])) -> bool {
    loop {
        match node.recv(now, port, 100_000) {
            Ok(m) if m.error == ErrorCode::Ok => take(&m.payload),
            Ok(_) | Err(SocketError::ConnectionReset) => return true,
            Err(_) => return false,
        }
    }
}

/// Completes the 8 bytes of a length and returns the rest of the payload.
fn fill<'a>(head: &mut Vec<u8>, payload: &'a [u8]) -> &'a [u8] {
    let (length, rest) = payload.split_at(payload.len().min(8usize.saturating_sub(head.len())));
    head.extend_from_slice(length);
    rest
}

/// Continues to send. Returns whether everything has been sent and the connection has been shut down.
fn feed(
    node: &mut Node,
    now: Nanos,
    port: Port,
    left: &mut u64,
    crc: &mut crc32fast::Hasher,
    pending: &mut Vec<u8>,
) -> bool {
    loop {
        if pending.is_empty() {
            if *left == u64::MAX {
                node.shutdown(now, port).expect("shutdown");
                return true;
            }
            let len = (*left).min(50_000);
            pending.extend(
                (0..len).map(|n| (*left - n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]),
            );
            crc.update(pending);
            *left -= len;
            if *left == 0 {
                pending.extend_from_slice(&crc.clone().finalize().to_be_bytes());
                *left = u64::MAX;
            }
        }
        match node.send(now, port, None, pending) {
            Ok(taken) => {
                pending.drain(..taken);
            }
            Err(SocketError::WouldBlock) => return false,
            Err(error) => panic!("send: {error}"),
        }
    }
}

/// Printed, followed by the number of links that are up, whenever that number changes.
pub(crate) const LINKS_UP: &str = "links up: ";

/// Runs the services on a node with this identity until standard input ends. Several bearers are separated by `+`.
pub(crate) fn run(bearers: &str, id: NodeId) {
    serve(bearers, id, false);
}

/// Like [`run`], but losing a peer is an error.
pub(crate) fn run_without_losing_contact(bearers: &str, id: NodeId) {
    serve(bearers, id, true);
}

fn serve(bearers: &str, id: NodeId, keeps_contact: bool) {
    let birth = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cfg = Config { id: Some(id), seed: birth.as_nanos() as u64, ..Config::default() };
    let mut runner = Runner::new(cfg).expect("epoll");
    let has_keys = super::keys::set(&mut runner, id);
    let mut services = Services::open(runner.node());
    let mut whole = Vec::new();
    for (n, bearer) in bearers.split('+').enumerate() {
        let spec: BearerSpec = bearer.parse().expect("a bearer");
        let id = runner.enable(&spec, &format!("user{n}")).expect("the bearer opens");
        // Stream packets that IP need not fragment.
        if matches!(spec, BearerSpec::Udp { local, mtu, .. } if local.is_ipv6() || mtu.is_some()) {
            whole.push(id);
        }
    }
    let stdin = std::io::stdin();
    let mut links = 0;
    runner.watch(&stdin).expect("a pipe");
    loop {
        let ended = runner.turn(Duration::from_secs(1)).expect("a turn");
        while let Some(event) = runner.poll_event() {
            let change = match event {
                Event::LinkUp { .. } => 1,
                Event::LinkDown { .. } => -1,
                _ => 0,
            };
            if change != 0 {
                links += change;
                println!("{LINKS_UP}{links}");
            }
            if matches!(
                event,
                Event::LinkUp { .. } | Event::LinkDown { .. } | Event::AddressSettled(_)
            ) {
                eprintln!("user side: {event:?}");
            }
            assert!(
                !(keeps_contact && matches!(event, Event::PeerDown { .. })),
                "contact was lost: {event:?}"
            );
            let now = Nanos(crossway_sys::clock::monotonic_ns());
            services.handle(runner.node(), now, &event);
        }
        if ended {
            break;
        }
    }
    for peer in runner.node().peers() {
        eprintln!("user side: {peer:?}");
    }
    if has_keys {
        super::keys::report(&mut runner);
    }
    let drops: Vec<_> = runner.node().drops().iter().collect();
    eprintln!("user side: drops {drops:?}, unsent {}", runner.unsent());
    for id in whole {
        let traffic = runner.traffic(id).expect("enabled");
        eprintln!("user side: {traffic:?}");
        assert!(traffic.runs_sent > 0, "no frames went as one message: {traffic:?}");
        assert_eq!(runner.poll_notice(), None);
    }
    runner.stop();
}
