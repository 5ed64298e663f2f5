//! The user-space end of the interoperability test, controlled by the kernel's side. A program in the guest opens,
//! binds, connects and uses sockets of this node with textual requests, so a single script controls both a kernel
//! socket and one of this node.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{
    Importance, NodeAddr, NodeId, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::node::{Config, Event, Node, option};
use crossway_tipc_proto::socket::{
    Address, GroupRequest, MembershipEvent, MulticastMethod, SocketError, SocketKind,
};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::ErrorCode;

/// Service that receives the requests.
const CONTROL: u32 = 19_100;

/// The parts of a request between blanks, taken one by one.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self) -> &str {
        self.0.next().expect("a request has all its words")
    }

    fn number(&mut self) -> u32 {
        self.word().parse().expect("a number")
    }

    fn port(&mut self) -> Port {
        Port(self.number())
    }

    fn range(&mut self) -> ServiceRange {
        ServiceRange { service: self.number(), lower: self.number(), upper: self.number() }
    }

    fn scope(&mut self) -> Scope {
        if self.number() == 3 { Scope::Node } else { Scope::Cluster }
    }

    /// Takes an address: `-` for none, or the kind and three numbers of a `sockaddr_tipc`.
    fn address(&mut self) -> Option<Address> {
        let kind = self.word().to_owned();
        match &kind[..] {
            "-" => None,
            "1" => Some(Address::Range(self.range())),
            "2" => Some(Address::Service {
                service: self.number(),
                instance: self.number(),
                domain: NodeAddr(self.number()),
            }),
            _ => {
                let (port, node) = (self.port(), NodeAddr(self.number()));
                self.number();
                Some(Address::Socket(SocketAddr { port, node }))
            }
        }
    }

    /// Takes a payload: bytes in hexadecimal digits, or `COUNTxDIGITS` for a repetition.
    fn payload(&mut self) -> Vec<u8> {
        let Some(text) = self.0.next() else { return Vec::new() };
        let (count, digits) = text.split_once('x').unwrap_or(("1", text));
        let byte = |n: usize| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect("digits");
        let once: Vec<u8> = (0..digits.len() / 2).map(byte).collect();
        once.repeat(count.parse().expect("a count"))
    }
}

#[derive(Default)]
struct Remote {
    /// Errors of failed connection requests that have not been queried yet.
    failed: BTreeMap<Port, SocketError>,
    /// Multicasts still to be sent: the socket, the destination, the next number and the total.
    casts: Option<(Port, ServiceRange, u32, u32)>,
    /// Numbered messages that a group member must still send: the destination, the next number, the total, and the
    /// length of each in bytes.
    bursts: BTreeMap<Port, (Option<Address>, u32, u32, usize)>,
    /// Sockets that are read immediately: for each sender, the number of messages received so far, which must be in
    /// order.
    drains: BTreeMap<Port, BTreeMap<SocketAddr, u32>>,
    /// Writes still to be made: the number of writes, the data, and the number of bytes of the current one already
    /// written.
    feeds: BTreeMap<Port, (u32, Vec<u8>, usize)>,
}

impl Remote {
    fn perform(
        &mut self,
        node: &mut Node,
        now: Nanos,
        request: &str,
    ) -> Result<String, SocketError> {
        let mut w = Words(request.split_ascii_whitespace());
        let verb = w.word().to_owned();
        let done = |()| String::new();
        match &verb[..] {
            "node" => Ok(format!("{}", node.addr().unwrap_or_default().0)),
            "known" => {
                let all = ServiceRange { service: w.number(), lower: 0, upper: u32::MAX };
                Ok(node.names().overlapping(all).count().to_string())
            }
            "open" => {
                let kind = match w.word() {
                    "stream" => SocketKind::Stream,
                    "seqpacket" => SocketKind::Seqpacket,
                    "rdm" => SocketKind::Rdm,
                    _ => SocketKind::Dgram,
                };
                node.open(kind).map(|port| port.0.to_string())
            }
            "close" => node.close(now, w.port()).map(done),
            "bind" => node.bind(w.port(), w.range(), w.scope()).map(done),
            "unbind" => {
                let (port, range, scope) = (w.port(), w.range(), w.scope());
                node.unbind(now, port, Some((range, scope))).map(done)
            }
            "unbind-all" => node.unbind(now, w.port(), None).map(done),
            "listen" => node.listen(w.port()).map(done),
            "accept" => node.accept(now, w.port()).map(|(port, _)| port.0.to_string()),
            "connect" => {
                let (port, dest) = (w.port(), w.address());
                node.connect(now, port, dest, &[]).map(done)
            }
            "error" => match self.failed.remove(&w.port()) {
                Some(error) => Err(error),
                None => Ok(String::new()),
            },
            "send" => {
                let (port, dest) = (w.port(), w.address());
                node.send(now, port, dest, &w.payload()).map(|taken| taken.to_string())
            }
            "recv" => node.recv(now, w.port(), w.number() as usize).map(|m| {
                let service = m
                    .service
                    .map_or("-".to_owned(), |s| format!("{},{},{}", s.service, s.lower, s.upper));
                let hex: String = m.payload.iter().map(|b| format!("{b:02x}")).collect();
                let error = ErrorCode::number(m.error);
                let (port, at) = (m.from.port.0, m.from.node.0);
                let group = m.group.map_or("-".to_owned(), |g| {
                    let event = match g.event {
                        None => 0,
                        Some(MembershipEvent::Joined) => 1,
                        Some(MembershipEvent::Left) => 2,
                    };
                    format!("{},{},{event}", g.group, g.instance)
                });
                format!("{port} {at} {service} {error} {} {hex} {group}", u32::from(m.truncated))
            }),
            "shutdown" => node.shutdown(now, w.port()).map(done),
            "ready" => node.readiness(w.port()).map(|r| {
                let bit = |b: bool| u32::from(b);
                format!("{} {} {}", bit(r.readable), bit(r.writable), bit(r.hangup))
            }),
            "report" => node.socket_report(w.port()).map(|r| {
                let peer = r.peer.map_or("-".to_owned(), |p| format!("{},{}", p.port.0, p.node.0));
                let (messages, bytes) = (r.queued_messages, r.queued_bytes);
                format!("{},{} {peer} {messages} {bytes}", r.local.port.0, r.local.node.0)
            }),
            "setopt" => {
                let (port, number) = (w.port(), w.number());
                let value = w.word().parse().ok();
                if number == option::GROUP_LEAVE {
                    return node.leave(now, port).map(done);
                }
                node.set_option(port, number, value).map(done)
            }
            "getopt" => {
                let (port, number) = (w.port(), w.number());
                node.get_option(port, number).map(|value| value.to_string())
            }
            "peer" => {
                let peer = node.socket_report(w.port())?.peer.ok_or(SocketError::NotConnected)?;
                Ok(peer.port.0.to_string())
            }
            "option" => {
                let port = w.port();
                let (name, value) = (w.word().to_owned(), w.number());
                let mut o = node.socket_report(port)?.options;
                match &name[..] {
                    "importance" => {
                        o.importance =
                            Importance::from_number(value).ok_or(SocketError::Invalid)?;
                    }
                    "dest_droppable" => o.dest_droppable = value != 0,
                    "nodelay" => o.nodelay = value != 0,
                    "src_droppable" => o.src_droppable = value != 0,
                    "connect_timeout" => {
                        o.connect_timeout = Duration::from_millis(value.into());
                    }
                    "multicast" => {
                        o.multicast = match value {
                            133 => MulticastMethod::Broadcast,
                            134 => MulticastMethod::Replicast,
                            _ => MulticastMethod::Automatic,
                        };
                    }
                    other => panic!("no option {other}"),
                }
                node.set_options(port, o).map(done)
            }
            "join" => {
                let port = w.port();
                let (group, instance, scope) = (w.number(), w.number(), w.scope());
                let flags = w.number();
                let (loopback, events) = (flags & 1 != 0, flags & 2 != 0);
                node.join(now, port, GroupRequest { group, instance, scope, loopback, events })
                    .map(done)
            }
            "leave" => node.leave(now, w.port()).map(done),
            "burst" => {
                let (port, dest, count) = (w.port(), w.address(), w.number());
                self.bursts.insert(port, (dest, 0, count, w.number() as usize));
                self.burst(node, now, port);
                Ok(String::new())
            }
            "unsent" => {
                let left = self.bursts.get(&w.port()).map_or(0, |b| b.2 - b.1);
                Ok(left.to_string())
            }
            "drain" => {
                let port = w.port();
                self.drains.entry(port).or_default();
                self.drain(node, now, port);
                let all = self.drains[&port].iter();
                let one = |(from, count): (&SocketAddr, &u32)| {
                    format!("{},{},{count}", from.port.0, from.node.0)
                };
                Ok(all.map(one).collect::<Vec<_>>().join(" "))
            }
            "feed" => {
                let (port, count) = (w.port(), w.number());
                self.feeds.insert(port, (count, w.payload(), 0));
                self.feed(node, now, port);
                Ok(String::new())
            }
            "cast" => {
                let port = node.open(SocketKind::Rdm)?;
                self.casts = Some((port, w.range(), 0, w.number()));
                self.send_casts(node, now);
                Ok(port.0.to_string())
            }
            other => panic!("no request {other}"),
        }
    }

    /// Sends a member's numbered messages until all are sent or some member has no room.
    fn burst(&mut self, node: &mut Node, now: Nanos, port: Port) {
        let Some((dest, number, count, size)) = self.bursts.get_mut(&port) else { return };
        while number < count {
            let mut text = number.to_be_bytes().to_vec();
            text.resize(*size, *number as u8);
            match node.send(now, port, *dest, &text) {
                Ok(_) => *number += 1,
                Err(SocketError::WouldBlock) => return,
                Err(error) => panic!("burst: {error}"),
            }
        }
    }

    /// Reads all messages of a socket. The messages of each sender must be numbered without a gap.
    fn drain(&mut self, node: &mut Node, now: Nanos, port: Port) {
        let Some(counts) = self.drains.get_mut(&port) else { return };
        while let Ok(m) = node.recv(now, port, 100_000) {
            if m.group.is_some_and(|g| g.event.is_some()) {
                continue;
            }
            let count = counts.entry(m.from).or_default();
            assert_eq!(m.payload[..4], count.to_be_bytes(), "from {:?}", m.from);
            *count += 1;
        }
    }

    /// Continues to write until everything is written or the stream has no room. When everything is written, shuts the
    /// stream down.
    fn feed(&mut self, node: &mut Node, now: Nanos, port: Port) {
        let Some((left, payload, done)) = self.feeds.get_mut(&port) else { return };
        while *left > 0 {
            match node.send(now, port, None, &payload[*done..]) {
                Ok(taken) => *done += taken,
                Err(SocketError::WouldBlock) => return,
                Err(error) => panic!("write: {error}"),
            }
            if *done == payload.len() {
                (*left, *done) = (*left - 1, 0);
            }
        }
        self.feeds.remove(&port);
        node.shutdown(now, port).expect("shutdown");
    }

    /// Sends numbered multicasts, changing the multicast method after every third.
    fn send_casts(&mut self, node: &mut Node, now: Nanos) {
        while let Some((port, range, number, count)) = &mut self.casts {
            let mut options = node.socket_report(*port).expect("open").options;
            options.multicast = match *number / 3 % 2 {
                0 => MulticastMethod::Replicast,
                _ => MulticastMethod::Broadcast,
            };
            node.set_options(*port, options).expect("open");
            let mut text = number.to_be_bytes().to_vec();
            text.resize(4 + (*number as usize * 37) % 4_000, 0);
            match node.send(now, *port, Some(Address::Range(*range)), &text) {
                Ok(_) => *number += 1,
                Err(SocketError::WouldBlock) => return,
                Err(error) => panic!("multicast: {error}"),
            }
            if number == count {
                self.casts = None;
            }
        }
    }
}

/// Runs a node with this identity on a bearer, and executes requests until standard input ends.
pub(crate) fn run(bearer: &str, id: NodeId) {
    let spec: BearerSpec = bearer.parse().expect("a bearer");
    let birth = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cfg = Config { id: Some(id), seed: birth.as_nanos() as u64, ..Config::default() };
    let mut runner = Runner::new(cfg).expect("epoll");
    let node = runner.node();
    let control = node.open(SocketKind::Rdm).expect("open");
    let range = ServiceRange::single(CONTROL, 0);
    node.bind(control, range, Scope::Cluster).expect("bind");
    // Answers have a backlog of their own, so that the controlled sockets cannot block them.
    let mut options = node.socket_report(control).expect("open").options;
    options.importance = Importance::Critical;
    node.set_options(control, options).expect("open");
    runner.enable(&spec, "user0").expect("the bearer opens");
    let (mut remote, stdin) = (Remote::default(), std::io::stdin());
    runner.watch(&stdin).expect("a pipe");
    loop {
        let ended = runner.turn(Duration::from_secs(1)).expect("a turn");
        while let Some(event) = runner.poll_event() {
            let now = Nanos(crossway_sys::clock::monotonic_ns());
            match event {
                Event::ConnectFailed { port, error } => {
                    remote.failed.insert(port, error);
                }
                Event::SocketReady(port) if port == control => {
                    while let Ok(m) = runner.node().recv(now, control, 200_000) {
                        let text = String::from_utf8(m.payload).expect("text");
                        let answer = match remote.perform(runner.node(), now, &text) {
                            Ok(words) => format!("ok {words}"),
                            Err(error) => format!("err {}", error.errno()),
                        };
                        let back = Some(Address::Socket(m.from));
                        runner.node().send(now, control, back, answer.as_bytes()).expect("answer");
                    }
                }
                Event::SocketReady(port)
                    if remote.bursts.contains_key(&port) || remote.drains.contains_key(&port) =>
                {
                    remote.drain(runner.node(), now, port);
                    remote.burst(runner.node(), now, port);
                }
                Event::SocketReady(port) if remote.feeds.contains_key(&port) => {
                    remote.feed(runner.node(), now, port);
                }
                Event::SocketReady(port) if remote.casts.is_some_and(|c| c.0 == port) => {
                    remote.send_casts(runner.node(), now);
                }
                _ => {}
            }
        }
        if ended {
            break;
        }
    }
    let drops: Vec<_> = runner.node().drops().iter().collect();
    eprintln!("user side: drops {drops:?}, unsent {}", runner.unsent());
    runner.stop();
}
