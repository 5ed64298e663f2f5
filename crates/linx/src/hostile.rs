//! Programs that may connect and then misbehave disturb only their own channels.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crossway_ring::pool::{Pool, Reference, UNIT};
use crossway_sys::fdpass;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::words::SharedWords;

use crate::channel::frame::{ABANDONED, FIRST, GONE, HEADER, Header};
use crate::channel::{Outgoing, RingChannel, Sent};
use crate::control::Control;
use crate::limits::{LARGEST_SIGNAL, POOL, RECORD};
use crate::signal::USER_BASE;
use crate::trace::Trace;
use crate::wire::local::{Channel, Event, Report, Request, VERSION};
use crate::{
    Endpoint, Filter, LinkSettings, Node, NodeThread, Options, Settings, Signal, Spid, Transport,
};

/// A deadline that only catches hangs.
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

    /// A failure because the node has already closed the connection is expected, too.
    fn say_bytes(&self, bytes: &[u8]) {
        let _ = socket::send(&self.fd, bytes, false);
    }

    /// The next event, `None` at the end of the connection.
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

    /// The descriptors of a channel to an endpoint.
    fn channel_to(&self, spid: Spid, transport: Transport) -> (Channel, Vec<OwnedFd>) {
        self.say(&Request::Connect { spid, transport: Some(transport) });
        match self.hear() {
            Some((Event::Channel { channel, .. }, fds)) => (channel, fds),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_malformed_request_ends_its_own_connection_and_no_other() {
    let mut place = Place::new(Transport::Uds);
    let own = Request::Hunt { id: 1, owner: None, path: "a".into() };
    let open = Request::Open { version: VERSION, name: "x".into() };
    let report = Request::Report { serial: 0, report: Report::default() };
    let bad_path = Request::Hunt { id: 1, owner: None, path: "//".into() };
    // Sent immediately, and after opening an endpoint.
    let at_once: [Vec<u8>; 6] =
        [vec![0], vec![255; 100], vec![1; RECORD], own.encode(), report.encode(), {
            let mut cut = open.encode();
            cut.pop();
            cut
        }];
    for bytes in &at_once {
        let intruder = place.intruder();
        intruder.say_bytes(bytes);
        intruder.is_disconnected(&format!("{bytes:?} at once"));
    }
    let later = [vec![0], vec![77; 5], open.encode(), bad_path.encode(), vec![6; RECORD + 100]];
    for bytes in later {
        let (intruder, _) = place.intruder().open("x");
        intruder.say_bytes(&bytes);
        intruder.is_disconnected(&format!("{bytes:?} after opening"));
    }
    // The same reference used twice.
    for twice in [
        Request::Hunt { id: 7, owner: None, path: "nobody".into() },
        Request::Attach { id: 7, spid: place.b.spid() },
    ] {
        let (intruder, _) = place.intruder().open("x");
        intruder.say(&twice);
        intruder.say(&twice);
        intruder.is_disconnected(&format!("{twice:?} twice"));
    }
    place.is_unharmed("garbage");
}

#[test]
fn requests_that_name_other_endpoints_change_nothing_of_theirs() {
    let mut place = Place::new(Transport::Uds);
    place.is_unharmed("nothing yet");
    let (a, b) = (place.a.spid(), place.b.spid());
    place.a.attach(b, None).unwrap();
    place.a.hunt("late", None).unwrap();
    let (intruder, own) = place.intruder().open("x");
    // References are local to each connection.
    for id in 0..100 {
        intruder.say(&Request::CancelHunt { id });
        intruder.say(&Request::Detach { id });
        intruder.say(&Request::CancelNewLink { id });
        intruder.say(&Request::Report { serial: id, report: Report::default() });
    }
    // Ending a hunt that is owned by another endpoint does not affect that endpoint.
    intruder.say(&Request::Hunt { id: 1, owner: Some(a), path: "nobody".into() });
    intruder.say(&Request::Attach { id: 1, spid: a });
    intruder.say(&Request::Name { spid: own });
    assert!(matches!(intruder.hear(), Some((Event::NameIs(_), _))));
    drop(intruder);
    place.is_unharmed("requests about others");
    let _late = Endpoint::open_on(place.node.connection().unwrap(), "late", &Options::default());
    let found = place.a.receive(&Filter::only(&[crate::signal::HUNT]), soon()).unwrap();
    assert!(found.is_some(), "its hunt is still there");
    drop(place.b);
    let told = place.a.receive(&Filter::only(&[crate::signal::ATTACH]), soon()).unwrap().unwrap();
    assert_eq!(told.sender(), Some(b), "its attach is still there");
}

/// Headers and following bytes that a receiver must reject.
fn forgeries(own: Spid, other: Spid, to: Spid) -> Vec<Vec<u8>> {
    let of = |piece: u32, size: u32, from, flags| Header { piece, size, from, to: to.get(), flags };
    let with = |header: Header, body: &[u8]| [&header.encode()[..], body].concat();
    let number = USER_BASE.to_ne_bytes();
    vec![
        with(of(4, 4, other, FIRST), &number),
        with(of(4, 4, own, FIRST), &[0; 4]),
        with(of(4, 8, own, 0), &number),
        with(of(0, 8, own, FIRST), &number),
        with(of(4, LARGEST_SIGNAL as u32 + 1, own, FIRST), &number),
        with(of(9, 8, own, FIRST), &[1; 9]),
        with(of(4, 4, own, 0xf0 | FIRST), &[0; 4]),
        [with(of(4, 8, own, FIRST), &number), with(of(4, 8, own, FIRST), &number)].concat(),
        [with(of(4, 8, own, FIRST), &number), with(of(8, 8, own, 0), &[1; 8])].concat(),
        [with(of(0, 0, other, GONE), &[]), with(of(0, 0, other, ABANDONED), &[]), vec![0; HEADER]]
            .concat(),
        vec![0; 5000],
        vec![255; 5000],
    ]
}

#[test]
fn forged_signals_end_their_own_channel_and_no_other() {
    for transport in [Transport::Uds, Transport::Fifo] {
        let mut place = Place::new(transport);
        let (a, b) = (place.a.spid(), place.b.spid());
        // Its reference is the first one, which a forged notice could answer.
        place.b.attach(a, None).unwrap();
        for n in 0.. {
            let (intruder, own) = place.intruder().open("x");
            let forged = forgeries(own, a, b);
            let Some(bytes) = forged.get(n) else { break };
            let (_, fds) = intruder.channel_to(b, transport);
            let wire = fds.last().unwrap();
            match transport {
                Transport::Uds => drop(socket::send(wire, bytes, true).unwrap()),
                _ => write(wire, bytes),
            }
            // What the intruder sends is read while it is alive...
            assert_eq!(place.b.receive(&Filter::ANY, Some(Instant::now())).unwrap(), None);
            place.is_unharmed(&format!("forgery {n} by {transport}"));
            drop(intruder);
            // ...and the rest after its end.
            place.is_unharmed(&format!("the end of forgery {n} by {transport}"));
        }
    }
}

/// Writes to a descriptor that is not a socket.
fn write(to: &OwnedFd, bytes: &[u8]) {
    let _ = std::fs::File::from(to.try_clone().unwrap()).write_all(bytes);
}

#[test]
fn scribbling_in_shared_memory_harms_only_its_own_channel() {
    let mut place = Place::new(Transport::Shm);
    let b = place.b.spid();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..60 {
        let (intruder, _) = place.intruder().open("x");
        let (_, fds) = intruder.channel_to(b, Transport::Shm);
        let memory = std::fs::File::from(fds[0].try_clone().unwrap());
        let pool = std::fs::File::from(fds[3].try_clone().unwrap());
        let len = memory.metadata().unwrap().len();
        for _ in 0..20 {
            for _ in 0..200 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Mostly where positions and lengths are.
                let within = if state & 1 == 0 { 8192.min(len) } else { len };
                let at = ((state >> 16) % within) & !7;
                let word = if state & 6 == 0 { u64::MAX } else { state >> (state & 63) };
                memory.write_all_at(&word.to_ne_bytes(), at).unwrap();
                pool.write_all_at(&word.to_ne_bytes(), (state >> 16) % (1 << 20)).unwrap();
            }
            write(&fds[2], &1u64.to_ne_bytes());
            // The intruder may forge signals of its own, but none of other endpoints.
            let until = Some(Instant::now());
            while let Some(signal) = place.b.receive(&Filter::ANY, until).unwrap() {
                assert_ne!(signal.sender(), Some(place.a.spid()), "round {round}");
            }
        }
        drop(intruder);
        while place.b.receive(&Filter::ANY, Some(Instant::now())).unwrap().is_some() {}
    }
    place.is_unharmed("scribbling");
}

#[test]
fn invalid_references_end_their_own_channel_and_no_other() {
    let mut place = Place::new(Transport::Shm);
    let b = place.b.spid();
    let half = (POOL / UNIT) as u32;
    let all = [(0, 0), (0, half + 1), (half, 1), (2 * half, 1), (u32::MAX, u32::MAX), (0, 1)];
    for (at, units) in all {
        let (intruder, own) = place.intruder().open("x");
        let (channel, fds) = intruder.channel_to(b, Transport::Shm);
        let fds: [OwnedFd; 4] = fds.try_into().unwrap();
        let [memory, ours, theirs, pool] = fds;
        let pool = Pool::map(&pool, POOL, true).unwrap();
        pool.alloc(1).unwrap()[0] = 1;
        let bells = (ours, theirs);
        let capacity = channel.capacity as usize;
        let mut ring = RingChannel::new(&memory, bells, capacity, true, 1, None).unwrap();
        let payload = [7; 100];
        let out = Outgoing {
            from: own,
            to: b,
            out_of_band: false,
            number: 1,
            payload: &payload,
            block: None,
        };
        let reference = Reference { at, units };
        let mut came = Vec::new();
        for n in 0..2 {
            // The channel may be closed after the first one.
            let sent = ring.send_reference(&out, reference);
            assert!(n > 0 || matches!(sent, Ok(Sent::Lent)), "{sent:?}");
            while let Some(signal) = place.b.receive(&Filter::ANY, Some(Instant::now())).unwrap() {
                came.push(signal);
            }
        }
        // Only the last one is valid, once: two signals cannot be in the same place.
        assert_eq!(came.len(), usize::from((at, units) == (0, 1)), "{at} {units}");
        place.is_unharmed(&format!("reference {at} {units}"));
    }
}

#[test]
fn forged_signals_for_a_link_end_their_own_channel_and_not_the_link() {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let far = Node::spawn_private(Settings { listen, ..Settings::default() }).unwrap();
    let addresses = far.listens_at().to_vec();
    let links = vec![LinkSettings { name: "far".to_owned(), addresses }];
    let near = Node::spawn_private(Settings { links, ..Settings::default() }).unwrap();
    let open = |node: &NodeThread, name| {
        Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
    };
    let (mut a, mut b) = (open(&near, "a"), open(&far, "b"));
    let there = a.hunt_and_wait("far/b", soon()).unwrap();
    a.attach(there, None).unwrap();
    for n in 0..4 {
        let (intruder, own) = Intruder { fd: near.connection().unwrap() }.open("x");
        let (_, fds) = intruder.channel_to(there, Transport::Uds);
        let pool = Pool::map(&fds[1], POOL, false).unwrap();
        let block = pool.alloc(100_001).unwrap();
        let half = (POOL / UNIT) as u32;
        let reference = |reference: Reference| {
            let header = Header::of_reference(100_000, own, there, false);
            [&header.encode()[..], &reference.encode()[..]].concat()
        };
        let bytes = match n {
            0 => reference(Reference { at: 0, units: 200 }),
            1 => reference(Reference { at: half, units: half + 1 }),
            // Its number is 0.
            2 => reference(block.reference()),
            _ => {
                let to = there.get();
                let header = Header { piece: 8, size: 8, from: own, to, flags: FIRST };
                [&header.encode()[..], &[0; 8]].concat()
            }
        };
        socket::send(&fds[0], &bytes, false).unwrap();
        while intruder.hear().is_some() {}
        a.send(Signal::with_payload(USER_BASE + n, b"payload").unwrap(), there).unwrap();
        let got = b.receive(&Filter::ANY, soon()).unwrap().expect("a signal");
        assert_eq!((got.number(), got.payload()), (USER_BASE + n, &b"payload"[..]));
        assert_eq!(a.receive(&Filter::ANY, Some(Instant::now())).unwrap(), None, "forgery {n}");
    }
}

#[test]
fn a_program_that_floods_the_node_and_reads_nothing_stops_no_other() {
    let mut place = Place::new(Transport::Uds);
    let b = place.b.spid();
    let (flood, _) = place.intruder().open("x");
    let (answers, _) = place.intruder().open("y");
    let bytes = |request: Request| request.encode();
    let mut id = 0;
    for round in 0..100 {
        for _ in 0..300 {
            id += 1;
            for (to, request) in [
                (&flood, bytes(Request::Hunt { id, owner: None, path: format!("nobody-{id}") })),
                // Answered immediately, but never received.
                (&answers, bytes(Request::Hunt { id, owner: None, path: "a".into() })),
                (&answers, bytes(Request::Name { spid: b })),
            ] {
                // As fast as the node accepts it.
                let _ = socket::send(&to.fd, &request, true);
            }
        }
        if round % 10 == 0 {
            place.is_unharmed("a flood of hunts");
        }
    }
    place.is_unharmed("floods");
}

#[test]
fn records_that_a_program_invents_harm_no_trace() {
    let mut place = Place::new(Transport::Uds);
    let tool = place.node.connection().unwrap();
    let mut trace = Trace::on(Control::on(tool), 16).unwrap();
    let (intruder, _) = place.intruder().open("x");
    intruder.say(&Request::JoinTrace);
    let Some((Event::Trace { .. }, fds)) = intruder.hear() else { panic!("no trace") };
    for bytes in [&[0; 1][..], &[0; 60], &[1; 60], &vec![9; 60_000]] {
        socket::send(&fds[0], bytes, false).unwrap();
    }
    let to = place.b.spid();
    place.a.send(Signal::with_payload(USER_BASE, b"true").unwrap(), to).unwrap();
    let mut sent = Vec::new();
    while let Some(record) = trace.try_next().unwrap() {
        sent.push(record.bytes.to_vec());
    }
    assert_eq!(trace.invalid(), 4);
    assert!(sent.last().unwrap().ends_with(b"true"), "{sent:?}");
    // A program can fill the socket, but only the trace suffers.
    while socket::send(&fds[0], &[0; 60_000], true).is_ok() {}
    place.b.receive(&Filter::ANY, soon()).unwrap().unwrap();
    place.is_unharmed("a full trace");
    assert!(trace.lost() > 0);
    // Nor can it write to the memory by which others notice a trace.
    let (second, own) = (place.intruder(), Request::Open { version: VERSION, name: "y".into() });
    second.say(&own);
    let Some((Event::Opened { .. }, fds)) = second.hear() else { panic!("not opened") };
    assert!(SharedWords::open(&fds[0], 1).is_err());
    assert!(std::fs::File::from(fds[0].try_clone().unwrap()).write_at(&[7], 0).is_err());
}

#[test]
fn a_channel_without_its_descriptors_is_reported_by_the_next_receive() {
    let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket).unwrap();
    let own = Spid::new(1).unwrap();
    let other = Spid::new(2).unwrap();
    let say = |event: &Event| _ = socket::send(&theirs, &event.encode(), false).unwrap();
    let (_words, memory) = SharedWords::create_for_readers("crossway-test", 1).unwrap();
    let opened = Event::Opened { spid: own }.encode();
    fdpass::send(&theirs, &opened, &[memory.as_fd()]).unwrap();
    let mut endpoint = Endpoint::open_on(ours, "a", &Options::default()).unwrap();
    let channel = Channel {
        number: 1,
        transport: Some(Transport::Uds),
        relay: false,
        first: false,
        capacity: 0,
        pool: 0,
    };
    for _ in 0..3 {
        say(&Event::Channel { spid: other, channel });
        let starved = endpoint.receive(&Filter::ANY, Some(Instant::now()));
        assert!(matches!(starved, Err(crate::Error::Limit(_))), "{starved:?}");
        assert_eq!(endpoint.receive(&Filter::ANY, Some(Instant::now())).unwrap(), None);
    }
}
