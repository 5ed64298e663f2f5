//! Invalid signals and shared memory that a receiving endpoint must withstand.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use crossway_ring::pool::{Pool, Reference, UNIT};
use crossway_sys::fdpass;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::words::SharedWords;

use super::{Intruder, Place, soon};
use crate::channel::frame::{ABANDONED, FIRST, GONE, HEADER, Header};
use crate::channel::{Outgoing, RingChannel, Sent};
use crate::limits::{LARGEST_SIGNAL, POOL};
use crate::signal::USER_BASE;
use crate::wire::local::{Channel, Event};
use crate::{
    Endpoint, Filter, LinkSettings, Node, NodeThread, Options, Settings, Signal, Spid, Transport,
};

/// Returns headers and following bytes that a receiver must reject.
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

/// Writes to a descriptor that is not a socket.
fn write(to: &OwnedFd, bytes: &[u8]) {
    let _ = std::fs::File::from(to.try_clone().unwrap()).write_all(bytes);
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
            place.is_unharmed(&format!("forged signal {n} over {transport}"));
            drop(intruder);
            // ...and the rest after its end.
            place.is_unharmed(&format!(
                "the end of the sender of forged signal {n} over {transport}"
            ));
        }
    }
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
            frame: None,
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
