//! Tests that programs that are allowed to connect, but misbehave, disturb only their own channels.

mod channels;
mod node;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossway_sys::fdpass;
use crossway_sys::socket;

use crate::limits::RECORD;
use crate::signal::USER_BASE;
use crate::wire::local::{Channel, Event, Request, VERSION};
use crate::{Endpoint, Filter, Node, NodeThread, Options, Settings, Signal, Spid, Transport};

/// A deadline that only serves to catch hangs.
fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// A node with two endpoints that communicate with each other.
struct Place {
    node: NodeThread,
    a: Endpoint,
    b: Endpoint,
    exchanged: u32,
}

impl Place {
    fn new(transport: Transport) -> Place {
        let node = Node::spawn_private(Settings { transport, ..Settings::default() }).unwrap();
        let open = |name| {
            Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
        };
        let (a, b) = (open("a"), open("b"));
        Place { node, a, b, exchanged: 0 }
    }

    fn intruder(&self) -> Intruder {
        Intruder { fd: self.node.connection().unwrap() }
    }

    /// Asserts that the two endpoints still find each other and communicate, and have received nothing else.
    fn is_unharmed(&mut self, after: &str) {
        let found = self.a.hunt_and_wait("b", soon()).unwrap();
        assert_eq!(found, self.b.spid(), "{after}");
        for _ in 0..5 {
            self.exchanged += 1;
            let signal = Signal::with_payload(USER_BASE + self.exchanged, b"payload").unwrap();
            self.a.send(signal, found).unwrap();
            let got = self.b.receive(&Filter::ANY, soon()).unwrap().expect(after);
            assert_eq!(got.sender(), Some(self.a.spid()), "{after}");
            assert_eq!(
                (got.number(), got.payload()),
                (USER_BASE + self.exchanged, &b"payload"[..])
            );
        }
    }
}

/// A connection to the node.
struct Intruder {
    fd: OwnedFd,
}

impl Intruder {
    fn say(&self, request: &Request) {
        self.say_bytes(&request.encode());
    }

    /// Sends bytes to the node. It is no error if the node has already closed the connection.
    fn say_bytes(&self, bytes: &[u8]) {
        let _ = socket::send(&self.fd, bytes, false);
    }

    /// Waits for the next event; returns `None` at the end of the connection.
    fn hear(&self) -> Option<(Event, Vec<OwnedFd>)> {
        let (mut record, mut fds) = ([0; RECORD], Vec::new());
        match fdpass::receive(&self.fd, &mut record, &mut fds, false) {
            Ok(0) | Err(_) => None,
            Ok(len) => Some((Event::decode(&record[..len]).unwrap(), fds)),
        }
    }

    fn open(self, name: &str) -> (Self, Spid) {
        self.say(&Request::Open { version: VERSION, name: name.to_owned() });
        match self.hear() {
            Some((Event::Opened { spid }, _)) => (self, spid),
            other => panic!("{other:?}"),
        }
    }

    fn is_disconnected(&self, after: &str) {
        while let Some((event, _)) = self.hear() {
            assert!(
                matches!(event, Event::Refused { .. } | Event::Opened { .. }),
                "{after}: {event:?}"
            );
        }
    }

    /// Requests a channel to an endpoint; returns its description and descriptors.
    fn channel_to(&self, spid: Spid, transport: Transport) -> (Channel, Vec<OwnedFd>) {
        self.say(&Request::Connect { spid, transport: Some(transport) });
        match self.hear() {
            Some((Event::Channel { channel, .. }, fds)) => (channel, fds),
            other => panic!("{other:?}"),
        }
    }
}
