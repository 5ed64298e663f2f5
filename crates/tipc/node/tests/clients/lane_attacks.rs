//! Tests programs that violate the rules for the memory that they share with their tipcd, or die while they use it.
//! Other programs are not affected, and nothing of these programs is left behind.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossway_ring::bell::Silent;
use crossway_ring::region::SharedRing;
use crossway_ring::{RingMemory, RingTx, SendError, Wait};
use crossway_sys::Errno;
use crossway_sys::eventfd::EventFd;
use crossway_tipc_client::address::Binding;
use crossway_tipc_client::protocol::VERSION;
use crossway_tipc_client::protocol::control::{Granted, Opened, Reader, Request};
use crossway_tipc_client::protocol::lane::LaneMemory;
use crossway_tipc_client::protocol::record::SEND_HEADER_LEN;
use crossway_tipc_client::{Address, NodeSocket, Patience, Scope, ServiceRange, SocketKind};

use crate::hostile::{ask, ask_showing, raw, works};
use crate::lane_pair::{counts, node_socket, pair_with_lane, resident_bytes, site};
use crate::site::{Site, soon, until};

/// Returns the number of open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A program that implements the protocol by hand.
pub(crate) struct Outlaw {
    pub(crate) control: OwnedFd,
    pub(crate) data: OwnedFd,
    pub(crate) token: u64,
}

impl Outlaw {
    pub(crate) fn new(site: &Site, kind: SocketKind) -> Self {
        let control = raw(site);
        ask(&control, &Request::Hello { version: VERSION }.encode());
        let (answer, mut fds) = ask(&control, &Request::Open { kind }.encode());
        let token = Opened::decode(&mut Reader::new(&answer[4..])).unwrap().token;
        Self { control, data: fds.pop().unwrap(), token }
    }

    /// Sends a request and returns the errno of the answer; `None` if the tipcd closed the connection.
    pub(crate) fn asks(&self, request: &Request<'_>) -> Option<i32> {
        let (answer, _) = ask(&self.control, &request.encode());
        answer.first_chunk().map(|errno| i32::from_ne_bytes(*errno))
    }

    pub(crate) fn lanes(&self) -> Option<(LaneMemory, EventFd)> {
        let (answer, mut fds) = ask(&self.control, &Request::Lanes { token: self.token }.encode());
        if answer[..4] != [0; 4] {
            return None;
        }
        let granted = Granted::decode(&mut Reader::new(&answer[4..])).unwrap();
        let bell = EventFd::from_fd(fds.pop().unwrap());
        let memory = LaneMemory::open(fds.pop().unwrap(), granted.ring_bytes as usize).unwrap();
        Some((memory, bell))
    }
}

/// Sends numbers and checks that they arrive in order, until `stop` is set. Returns how many were sent.
pub(crate) fn exchange(client: &NodeSocket, server: &NodeSocket, stop: &AtomicBool) -> u64 {
    let mut raw = [0; 64];
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for ahead in 0..16 {
            client.send(&(n + ahead).to_ne_bytes(), None, soon()).unwrap();
        }
        for _ in 0..16 {
            assert_eq!(server.recv(&mut raw, soon()), Ok(8));
            assert_eq!(raw[..8], n.to_ne_bytes());
            n += 1;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    n
}

/// Sets the flag that stops other threads when it is dropped, so that they stop even if the test fails.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Writes a word that a correct program would not write there, or not at this time.
pub(crate) fn scribble(memory: &LaneMemory, random: &mut Random) {
    let (up, down) = (memory.up(), memory.down());
    let ring: &SharedRing = if random.below(4) == 0 { &up } else { &down };
    let any = random.next();
    match random.below(64) {
        0 => ring.head().store(any, Ordering::Release),
        1..8 => {
            // Plausible values, slightly forwards or backwards.
            let head = ring.head().load(Ordering::Relaxed);
            let step = any % 96 * 8;
            let head =
                if any >> 60 == 0 { head.wrapping_sub(step) } else { head.wrapping_add(step) };
            ring.head().store(head, Ordering::Release);
        }
        8..12 => ring.head_wanted().store(any >> random.below(64), Ordering::Release),
        12..20 => ring.producer_state().store(any as u32 % 3, Ordering::Release),
        20..22 => ring.consumer_state().store(any as u32 % 64 % 3, Ordering::Release),
        // The word of the bell, that of the lock, and all others in the page.
        22..40 => {
            let words = memory.words();
            let value = if any >> 63 == 0 { any % 5 } else { any };
            words.word(random.below(words.count())).store(value, Ordering::Release);
        }
        40..50 => {
            let words = memory.words();
            let bell = crossway_tipc_client::protocol::lane::DOWN;
            words.word(bell).store(any % 5, Ordering::Release);
        }
        _ => ring.header(random.below(memory.ring_bytes() / 8) * 8).store(any, Ordering::Release),
    }
}

#[test]
fn scribbling_over_the_lane_that_it_receives_by_harms_only_the_program_itself() {
    const ROUNDS: u32 = 60;
    let site = site();
    let (client, server) = pair_with_lane(&site, SocketKind::Seqpacket);
    until("the other lane", || {
        client.send(b"x", None, soon()).unwrap();
        server.recv(&mut [0; 8], soon()).unwrap();
        server.down_lane_bells().is_some()
    });
    let sender = node_socket(&site, SocketKind::Rdm);
    works(&site);
    let pid = site.tipcd().pid();
    let (memory_before, lanes_before) = (resident_bytes(pid), counts(&site).len());
    let descriptors_before = descriptors(pid);
    let stop = AtomicBool::new(false);
    let mut put = 0_u32;
    std::thread::scope(|scope| {
        let others = scope.spawn(|| exchange(&client, &server, &stop));
        let ends = Ends(&stop);
        for round in 0..ROUNDS {
            let mut random = Random(0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(round) << 40);
            let outlaw = Outlaw::new(&site, SocketKind::Rdm);
            let range = ServiceRange::single(6000, round);
            let address = Binding { range, scope: Scope::Cluster, withdraw: false }.encode();
            assert_eq!(outlaw.asks(&Request::Bind { token: outlaw.token, address }), Some(0));
            let (memory, bell) = outlaw.lanes().unwrap();
            assert_eq!(outlaw.asks(&Request::LaneDown { token: outlaw.token }), Some(0));
            let message = vec![3; [8, 100, 3_000][round as usize % 3]];
            for n in 0..3_000 {
                scribble(&memory, &mut random);
                if n % 4 == 0 {
                    let to = Some(Address::service(6000, round));
                    // Once the program has lost its socket, there is no receiver.
                    put += u32::from(sender.send(&message, to, Patience::Now).is_ok());
                }
                if n % 16 == 0 {
                    bell.signal().unwrap();
                }
                if n % 500 == 0 {
                    // More descriptors for a program that makes many requests, and a lane that is switched on once.
                    outlaw.lanes();
                    outlaw.asks(&Request::LaneDown { token: outlaw.token });
                }
            }
        }
        drop(ends);
        assert!(others.join().unwrap() > 1_000);
    });
    assert!(put > ROUNDS, "too few messages were sent to the programs with invalid lanes: {put}");
    // Messages returned to the sender do not matter.
    drop(sender);
    works(&site);
    until("their lanes' end", || counts(&site).len() <= lanes_before);
    until("their descriptors' end", || descriptors(pid) <= descriptors_before);
    let grown = resident_bytes(pid).saturating_sub(memory_before);
    assert!(grown < 16 << 20, "it grew by {grown} bytes");
}

/// Tests that a program whose receiving lane contains invalid data loses its socket, but only after the data that it
/// had sent has been sent on. It used to be able to send more in the meantime, all of which the tipcd kept.
#[test]
fn after_a_hang_up_the_lane_carries_nothing() {
    let site = site();
    let listener = node_socket(&site, SocketKind::Seqpacket);
    listener.bind(ServiceRange::single(6001, 1), Scope::Cluster).unwrap();
    listener.listen().unwrap();
    let outlaw = Outlaw::new(&site, SocketKind::Seqpacket);
    let address = Address::service(6001, 1).encode();
    let connect = Request::Connect { token: outlaw.token, address, pad: 0, payload: &[] };
    assert_eq!(outlaw.asks(&connect), Some(Errno::INPROGRESS.raw_os_error()));
    let peer = listener.accept(soon()).unwrap().0;
    let mut lanes = None;
    until("the connection", || {
        lanes = outlaw.lanes();
        lanes.is_some()
    });
    let (memory, bell) = lanes.unwrap();
    assert_eq!(outlaw.asks(&Request::LaneDown { token: outlaw.token }), Some(0));
    let mut tx = RingTx::new(memory.up(), Silent, Wait::Block);
    let mut message = [0; SEND_HEADER_LEN + 1_000];
    message[SEND_HEADER_LEN..].fill(9);
    // The peer does not read, and finally nothing more is taken from the lane: a request is answered after that.
    let mut fill = |refused: &mut bool| loop {
        match tx.try_send_with(message.len(), |place| place.copy_from_slice(&message)) {
            Ok(()) => {}
            Err(SendError::Full) => break,
            Err(_) => {
                *refused = true;
                break;
            }
        }
    };
    let mut refused = false;
    for _ in 0..100 {
        fill(&mut refused);
        bell.signal().unwrap();
        outlaw.asks(&Request::Report { token: outlaw.token });
    }
    assert!(!refused);
    let pid = site.tipcd().pid();
    let before = resident_bytes(pid);
    // A value that no program ever writes for a ring that it reads.
    memory.down().consumer_state().store(crossway_ring::layout::CLOSED, Ordering::Release);
    peer.send(b"into the invalid lane", None, soon()).unwrap();
    for _ in 0..400 {
        fill(&mut refused);
        bell.signal().unwrap();
        // A tipcd answers this when it has handled the bell.
        outlaw.asks(&Request::Report { token: outlaw.token });
        assert!(outlaw.lanes().is_none() || !refused, "a disconnected program got new lanes");
    }
    let grown = resident_bytes(pid).saturating_sub(before);
    assert!(grown < 4 << 20, "it grew by {grown} bytes");
    assert!(refused, "its lane was not removed");
    works(&site);
    drop((peer, outlaw));
    until("the lanes' end", || counts(&site).is_empty());
}

/// Tests that a process that gets a socket's descriptor may use the socket, unless the socket has lanes, which that
/// process does not have.
#[test]
fn a_socket_is_adopted_or_has_lanes() {
    let site = site();
    let adopts = |fd: &OwnedFd, greeted: bool| {
        let control = raw(&site);
        if greeted {
            ask(&control, &Request::Hello { version: VERSION }.encode());
        }
        let (answer, _) = ask_showing(&control, &Request::Adopt.encode(), &[fd.as_fd()]);
        answer.first_chunk().map(|errno| i32::from_ne_bytes(*errno))
    };
    let refused = Some(Errno::OPNOTSUPP.raw_os_error());
    let with_lanes = Outlaw::new(&site, SocketKind::Rdm);
    with_lanes.lanes().unwrap();
    assert_eq!(adopts(&with_lanes.data, true), refused);
    let adopted = Outlaw::new(&site, SocketKind::Rdm);
    assert_eq!(adopts(&adopted.data, false), None, "before a hello");
    assert_eq!(adopts(&adopted.data, true), Some(0));
    assert_eq!(adopted.asks(&Request::Lanes { token: adopted.token }), refused);
    assert_eq!(adopts(&raw(&site), true), Some(Errno::BADF.raw_os_error()), "not a TIPC socket");
}

#[test]
fn many_sockets_with_lanes_come_and_go_and_leave_nothing() {
    let site = Site::with(&["--lane-after", "1", "--lanes", "64"]);
    works(&site);
    let pid = site.tipcd().pid();
    let descriptors_before = descriptors(pid);
    for round in 0..3 {
        let sockets: Vec<_> = (0..80)
            .map(|number| {
                let socket = node_socket(&site, SocketKind::Rdm);
                let range = ServiceRange::single(6100 + round, number);
                socket.bind(range, Scope::Cluster).unwrap();
                (socket, Address::service(6100 + round, number))
            })
            .collect();
        let exchange = |n: u8| {
            for (socket, itself) in &sockets {
                socket.send(&[n], Some(*itself), soon()).unwrap();
                let mut byte = [0];
                assert_eq!(socket.recv(&mut byte, soon()), Ok(1));
                assert_eq!(byte, [n]);
            }
        };
        (0..24).for_each(exchange);
        until("the maximum number of lanes", || counts(&site).len() >= 64);
        assert_eq!(counts(&site).len(), 64);
        // A program starts to use a granted lane when it next sends or receives.
        until("a lane for receiving", || {
            exchange(24);
            sockets.iter().any(|(socket, _)| socket.down_lane_bells().is_some())
        });
        // Some are closed with messages in their lanes.
        for (socket, itself) in &sockets {
            socket.send(b"unread", Some(*itself), soon()).unwrap();
        }
        drop(sockets);
        until("the lanes' end", || counts(&site).is_empty());
        until("the descriptors' end", || descriptors(pid) <= descriptors_before + 1);
    }
    works(&site);
}
