//! Checks of subscriptions to the topology service of either node, from sockets of either node.

use crossway_tipc_client::{Address, Scope, ServiceRange, Socket, SocketAddress, SocketKind};

use super::{Part, soon};

const PUBLISHED: u32 = 1;
const WITHDRAWN: u32 = 2;
const TIMEOUT: u32 = 3;
const PORTS: u32 = 1;
const SERVICES: u32 = 2;
const CANCEL: u32 = 4;
const FOREVER: u32 = u32::MAX;
const EVENT_LEN: usize = 48;
/// Offset, from the check's first service, of the service that is bound and unbound.
const WATCHED: u32 = 1;

/// A connection to a topology service.
pub(super) struct Subscriber(Socket);

impl Subscriber {
    /// Connects to the topology service of a node (0 for this one) and subscribes to every binding of a service.
    pub(super) fn at(part: &Part<'_>, node: u32, service: u32) -> Self {
        let new = Self::quiet(part, node);
        new.ask(service, FOREVER, PORTS);
        new
    }

    fn quiet(part: &Part<'_>, node: u32) -> Self {
        let socket = part.socket(SocketKind::Seqpacket);
        let to = Address::Service { service: 1, instance: 1, domain: node };
        socket.connect(Some(to), soon()).unwrap();
        Self(socket)
    }

    fn ask(&self, service: u32, timeout_ms: u32, filter: u32) {
        let words = [service, 0, u32::MAX, timeout_ms, filter, 0x0403_0201, 0x0807_0605];
        let request: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.0.send(&request, None, soon()).unwrap();
    }

    /// Receives the next event: its kind, the range, and the socket.
    fn next(&self) -> (u32, (u32, u32), SocketAddress) {
        let mut event = [0; EVENT_LEN];
        assert_eq!(self.0.recv(&mut event, soon()), Ok(EVENT_LEN));
        let word = |n: usize| u32::from_ne_bytes(event[4 * n..4 * n + 4].try_into().unwrap());
        (word(0), (word(1), word(2)), SocketAddress { port: word(3), node: word(4) })
    }

    /// Receives the next event, which must report a published binding, and returns it.
    pub(super) fn published(&self) -> (u32, (u32, u32), SocketAddress) {
        let event = self.next();
        assert_eq!(event.0, PUBLISHED);
        event
    }
}

/// Binds and unbinds another socket on request.
pub(super) fn subject(part: &Part<'_>) {
    let control = part.bound(SocketKind::Rdm, 0, 1, 1);
    let watched = part.socket(SocketKind::Rdm);
    let range = ServiceRange { service: part.service + WATCHED, lower: 5, upper: 9 };
    let mut buf = [0; 16];
    loop {
        let message = control.recv_message(&mut buf, soon()).unwrap();
        match &buf[..message.len] {
            b"bind" => watched.bind(range, Scope::Cluster).unwrap(),
            b"unbind" => watched.unbind(range, Scope::Cluster).unwrap(),
            b"who" => {
                let own = watched.local_address().unwrap().port;
                control.send(&own.to_be_bytes(), Some(message.from.into()), soon()).unwrap();
            }
            other => break assert_eq!(other, b"done"),
        }
    }
}

pub(super) fn observer(part: &Part<'_>) {
    let control = part.server(0);
    let beside = part.socket(SocketKind::Rdm);
    let tell = |what: &[u8]| {
        beside.send(what, part.name(0), soon()).unwrap();
    };
    tell(b"who");
    let mut port = [0; 4];
    assert_eq!(beside.recv(&mut port, soon()), Ok(4));
    let watched = SocketAddress { port: u32::from_be_bytes(port), node: control.node };
    let service = part.service + WATCHED;
    let places = [0, control.node].map(|node| Subscriber::at(part, node, service));
    let services = Subscriber::quiet(part, control.node);
    services.ask(service, FOREVER, SERVICES);
    for _ in 0..2 {
        tell(b"bind");
        for place in &places {
            assert_eq!(place.next(), (PUBLISHED, (5, 9), watched));
        }
        assert_eq!(services.next().0, PUBLISHED);
        tell(b"unbind");
        for place in &places {
            assert_eq!(place.next(), (WITHDRAWN, (5, 9), watched));
        }
        assert_eq!(services.next().0, WITHDRAWN);
    }
    // One subscription times out; another is cancelled, and must not report anything.
    let short = Subscriber::quiet(part, control.node);
    short.ask(service, 30, PORTS);
    assert_eq!(short.next(), (TIMEOUT, (0, u32::MAX), SocketAddress::default()));
    places[1].ask(service, FOREVER, PORTS | CANCEL);
    // Requests are processed in order, so the cancellation has taken effect.
    places[1].ask(service, 1, PORTS);
    assert_eq!(places[1].next().0, TIMEOUT);
    tell(b"bind");
    assert_eq!(places[0].next(), (PUBLISHED, (5, 9), watched));
    places[1].ask(service + 1, 1, PORTS);
    assert_eq!(places[1].next().0, TIMEOUT, "no event of the cancelled subscription");
    // The nodes themselves, as services of each other.
    let nodes = Subscriber::quiet(part, control.node);
    nodes.ask(0, FOREVER, PORTS);
    let own = beside.local_address().unwrap().node;
    let mut up = [nodes.published().1.0, nodes.published().1.0];
    up.sort_unstable();
    let mut both = [own, control.node];
    both.sort_unstable();
    assert_eq!(up, both);
    // The link between them, as seen by either end.
    for (node, here, there) in [(control.node, control.node, own), (own, own, control.node)] {
        let links = Subscriber::quiet(part, node);
        links.ask(2, FOREVER, PORTS);
        let (_, range, bearers) = links.published();
        assert_eq!((range, bearers.node), ((there, there), here), "reported by {node:x}");
    }
    tell(b"done");
}
