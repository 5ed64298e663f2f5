//! Tests that signals in shared memory are passed by reference, and that none of that memory is leaked.

use std::time::{Duration, Instant};

use crossway_ring::pool::Reference;

use crate::limits::POOL;
use crate::signal::USER_BASE;
use crate::{Endpoint, Filter, Node, NodeThread, Options, Settings, Signal, Spid, Transport};

const LARGE: usize = 1 << 20;

fn node(transport: Transport) -> NodeThread {
    Node::spawn_private(Settings { transport, ..Settings::default() }).unwrap()
}

fn open(node: &NodeThread, name: &str) -> Endpoint {
    Endpoint::open_on(node.connection().unwrap(), name, &Options::default()).unwrap()
}

fn any(endpoint: &mut Endpoint) -> Signal {
    // The deadline only catches hangs.
    let until = Some(Instant::now() + Duration::from_secs(60));
    endpoint.receive(&Filter::ANY, until).unwrap().expect("a signal")
}

fn place(signal: &Signal) -> Reference {
    let block = signal.block().expect("a shared signal");
    assert_eq!(signal.as_bytes().as_ptr(), block.as_ptr());
    block.reference()
}

/// Returns the number of bytes that the endpoint can still allocate for signals to another one.
fn free_bytes(endpoint: &Endpoint, to: Spid) -> usize {
    endpoint.ways[&endpoint.routes[&to]].channel.pool().unwrap().free_bytes()
}

#[test]
fn a_shared_signal_stays_in_one_place_on_its_way_there_and_back() {
    let node = node(Transport::Shm);
    let (mut a, mut b) = (open(&node, "a"), open(&node, "b"));
    let (of_a, of_b) = (a.spid(), b.spid());
    for round in 0..100u8 {
        let mut signal = a.alloc_for(USER_BASE, LARGE, of_b).unwrap();
        signal.payload_mut().fill(round);
        let at = place(&signal);
        // The ring has less room than the signal and nobody reads it: only a reference can be sent.
        a.send_until(signal, of_b, Some(Instant::now())).unwrap();
        let mut got = any(&mut b);
        assert_eq!((got.sender(), got.size(), place(&got)), (Some(of_a), LARGE + 4, at));
        assert!(got.payload().iter().all(|byte| *byte == round));
        assert_eq!(free_bytes(&a, of_b), POOL - at.room());
        if round % 2 == 0 {
            got.set_number(USER_BASE + 1).unwrap();
            got.payload_mut()[..2].copy_from_slice(b"ok");
            b.send_until(got, of_a, Some(Instant::now())).unwrap();
            let reply = any(&mut a);
            assert_eq!((reply.number(), &reply.payload()[..2]), (USER_BASE + 1, &b"ok"[..]));
            assert_eq!(place(&reply), at);
        }
    }
    assert_eq!((free_bytes(&a, of_b), free_bytes(&b, of_a)), (POOL, POOL));
}

#[test]
fn shared_signals_keep_the_order_and_the_properties_of_others() {
    let node = node(Transport::Shm);
    let (mut a, mut b, c) = (open(&node, "a"), open(&node, "b"), open(&node, "c"));
    let of_b = b.spid();
    for n in 0..50 {
        match n % 3 {
            0 => a.send_copy(USER_BASE + n, &[n as u8; 5000], of_b, None).unwrap(),
            _ => {
                let mut signal = a.alloc_for(USER_BASE + n, 5000, of_b).unwrap();
                signal.payload_mut().fill(n as u8);
                if n % 3 == 1 {
                    a.send(signal, of_b).unwrap();
                } else {
                    a.send_as(signal, c.spid(), of_b).unwrap();
                }
            }
        }
    }
    let urgent = a.alloc_for(USER_BASE + 99, 0, of_b).unwrap();
    assert!(urgent.is_shared());
    a.send_out_of_band(urgent, of_b).unwrap();
    let mut held = Vec::new();
    for n in 0..50 {
        let signal = b.receive(&Filter::except(&[USER_BASE + 99]), None).unwrap().unwrap();
        assert_eq!(signal.number(), USER_BASE + n);
        assert!(signal.payload() == [n as u8; 5000] && signal.is_shared() == (n % 3 > 0));
        let from = if n % 3 == 2 { c.spid() } else { a.spid() };
        assert_eq!(signal.sender(), Some(from));
        held.push(signal);
    }
    let urgent = any(&mut b);
    assert!(urgent.is_out_of_band() && urgent.is_shared() && urgent.payload().is_empty());
    drop((held, urgent));
    assert_eq!(free_bytes(&a, of_b), POOL);
}

#[test]
fn without_room_for_another_receiver_and_on_other_transports_signals_are_copied() {
    let node = node(Transport::Shm);
    let (mut a, mut b, mut c) = (open(&node, "a"), open(&node, "b"), open(&node, "c"));
    let (of_b, of_c) = (b.spid(), c.spid());
    let mut held = Vec::new();
    while held.last().is_none_or(Signal::is_shared) {
        held.push(a.alloc_for(USER_BASE, LARGE, of_b).unwrap());
    }
    assert_eq!(held.len(), POOL / (LARGE + 512) + 1);
    for (n, mut signal) in held.into_iter().enumerate() {
        // To b by reference, to c as a copy.
        let to = if n % 2 == 0 { of_b } else { of_c };
        let was_shared = signal.is_shared();
        signal.payload_mut().fill(n as u8);
        let sender = std::thread::scope(|scope| {
            let sender = scope.spawn(|| a.send(signal, to));
            let got = any(if to == of_b { &mut b } else { &mut c });
            assert!(got.payload().iter().all(|byte| *byte == n as u8));
            assert_eq!(got.is_shared(), was_shared && to == of_b);
            sender.join().unwrap()
        });
        sender.unwrap();
    }
    assert_eq!(free_bytes(&a, of_b), POOL);
    assert!(a.alloc_for(USER_BASE, LARGE, of_b).unwrap().is_shared());
    // A signal to itself is copied, too.
    let mut own = a.alloc_for(USER_BASE, 3, of_b).unwrap();
    own.payload_mut().copy_from_slice(b"own");
    let of_a = a.spid();
    a.send(own, of_a).unwrap();
    assert_eq!(any(&mut a).payload(), b"own");

    for transport in [Transport::Uds, Transport::Fifo] {
        let node = self::node(transport);
        let (mut a, mut b) = (open(&node, "a"), open(&node, "b"));
        let signal = a.alloc_for(USER_BASE, 7, b.spid()).unwrap();
        assert!(!signal.is_shared());
        a.send(signal, b.spid()).unwrap();
        assert_eq!(any(&mut b).payload(), [0; 7]);
    }
}

#[test]
fn a_shared_signal_can_shrink_and_grow() {
    let node = node(Transport::Shm);
    let (mut a, b) = (open(&node, "a"), open(&node, "b"));
    let mut signal = a.alloc_for(USER_BASE, 100, b.spid()).unwrap();
    signal.payload_mut().fill(7);
    signal.set_size(54).unwrap();
    signal.set_size(104).unwrap();
    assert!(signal.payload()[..50] == [7; 50] && signal.payload()[50..] == [0; 50]);
    assert_eq!(signal.shared_room().unwrap().len(), 512);
    signal.set_size(511).unwrap();
    assert!(signal.is_shared());
    signal.set_size(512).unwrap();
    assert!(!signal.is_shared() && signal.payload()[..50] == [7; 50]);
    assert_eq!(free_bytes(&a, b.spid()), POOL);
}

#[test]
fn a_shared_signal_outlives_its_sender_and_its_receivers_endpoint() {
    let node = node(Transport::Shm);
    let (mut a, mut b) = (open(&node, "a"), open(&node, "b"));
    let mut signal = a.alloc_for(USER_BASE, LARGE, b.spid()).unwrap();
    signal.payload_mut().fill(9);
    a.send(signal, b.spid()).unwrap();
    let kept = a.alloc_for(USER_BASE, LARGE, b.spid()).unwrap();
    drop(a);
    let got = any(&mut b);
    drop((b, node));
    assert!(got.is_shared() && got.payload().iter().all(|byte| *byte == 9));
    assert!(kept.is_shared());
}
