//! Tests a program that violates the rules for the memory that it shares with its peer. The program only harms its own
//! connection: the peer's calls return, other programs are not disturbed, and nothing is left behind.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossway_sys::{Errno, socket};
use crossway_tipc_client::protocol::control::{Granted, Reader, Request};
use crossway_tipc_client::protocol::lane::{LaneMemory, outlet};
use crossway_tipc_client::{Address, NodeSocket, Patience, SocketKind};

use crate::direct::{KINDS, pair, site};
use crate::hostile::{ask, works};
use crate::lane_attacks::{Ends, Outlaw, Random, descriptors, exchange, scribble};
use crate::lane_pair::{bound, counts, resident_bytes};
use crate::site::{Site, WATCHDOG, soon, until};

/// A program that implements the protocol by hand and has a direct lane in both directions, with its peer.
struct Intruder {
    outlaw: Outlaw,
    /// The program's own lanes.
    own: LaneMemory,
    /// The direct lane through which the program receives.
    inlet: LaneMemory,
    /// The direct lane through which the peer receives.
    outlet: LaneMemory,
    /// The other end of the peer's descriptor, into which bells are sent.
    bells: OwnedFd,
    peer: NodeSocket,
}

fn memory_of(answer: &[u8], fd: &OwnedFd) -> LaneMemory {
    let granted = Granted::decode(&mut Reader::new(&answer[4..])).unwrap();
    LaneMemory::open(fd, granted.ring_bytes as usize).unwrap()
}

impl Intruder {
    fn new(site: &Site, kind: SocketKind) -> Self {
        let (listener, name) = bound(site, kind);
        let outlaw = Outlaw::new(site, kind);
        let (token, address) = (outlaw.token, Address::encode(name));
        let connect = Request::Connect { token, address, pad: 0, payload: &[] };
        assert_eq!(outlaw.asks(&connect), Some(Errno::INPROGRESS.raw_os_error()));
        let peer = listener.accept(soon()).unwrap().0;
        let mut own = None;
        until("the connection", || {
            own = outlaw.lanes();
            own.is_some()
        });
        let (own, _) = own.unwrap();
        let (answer, fds) = ask(&outlaw.control, &Request::LaneDown { token }.encode());
        assert_eq!(answer[..4], [0; 4]);
        let inlet = memory_of(&answer, &fds[0]);
        // The peer asks for its lanes with its first messages, and the outlaw feeds it by its descriptor.
        let message = vec![0; if kind == SocketKind::Stream { 4 } else { 20 }];
        until("the peer's direct lane", || {
            socket::send(&outlaw.data, &message, true).unwrap();
            peer.recv(&mut [0; 8], soon()).unwrap();
            let _ = peer.send(b"warm", None, Patience::Now);
            own.words().word(outlet::READY).load(Ordering::Acquire) != 0
        });
        let (answer, mut fds) = ask(&outlaw.control, &Request::Outlet { token }.encode());
        assert_eq!(answer[..4], [0; 4]);
        let bells = fds.pop().unwrap();
        let outlet = memory_of(&answer, &fds[0]);
        Self { outlaw, own, inlet, outlet, bells, peer }
    }

    /// Writes into the shared memory or the descriptor what no correct program would write there.
    fn disturb(&self, random: &mut Random) {
        match random.below(16) {
            0..6 => scribble(&self.outlet, random),
            6..11 => scribble(&self.inlet, random),
            11 => {
                let word = self.own.words();
                let word =
                    word.word([outlet::BUSY, outlet::TAIL, outlet::SEQUENCE][random.below(3)]);
                word.store(random.next() >> random.below(64), Ordering::Release);
            }
            12..14 => drop(socket::send(&self.bells, &[random.below(8) as u8], true)),
            // It takes what the peer has written for the tipcd.
            14 => drop(socket::recv(&self.bells, &mut [0; 64], true)),
            _ => drop(socket::send(&self.outlaw.data, &[9; 20], true)),
        }
    }
}

#[test]
fn a_program_that_disturbs_its_peer_s_direct_lane_harms_only_their_connection() {
    const ROUNDS: u64 = 40;
    let site = site();
    let (client, server) = pair(&site, SocketKind::Seqpacket);
    works(&site);
    let pid = site.tipcd().pid();
    let (memory_before, lanes_before) = (resident_bytes(pid), counts(&site).len());
    let descriptors_before = descriptors(pid);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| exchange(&client, &server, &stop));
        let ends = Ends(&stop);
        for round in 0..ROUNDS {
            let mut random = Random(0x9e37_79b9_7f4a_7c15_u64 ^ round << 40);
            let intruder = Intruder::new(&site, KINDS[round as usize % 2]);
            let message = vec![3; [8, 100, 3_000][round as usize % 3]];
            for n in 0..2_000 {
                intruder.disturb(&mut random);
                // Whatever these calls return, they do not wait.
                let begin = Instant::now();
                let _ = intruder.peer.send(&message, None, Patience::Now);
                let _ = intruder.peer.recv(&mut [0; 200], Patience::Now);
                assert!(begin.elapsed() < WATCHDOG, "round {round}, call {n}");
            }
            let at = Instant::now() + Duration::from_millis(5);
            let _ = intruder.peer.recv(&mut [0; 200], Patience::Until(at));
            let _ = intruder.peer.send(&message, None, Patience::Until(at));
        }
        drop(ends);
        assert!(others.join().unwrap() > 1_000);
    });
    works(&site);
    until("their lanes' end", || counts(&site).len() <= lanes_before);
    until("their descriptors' end", || descriptors(pid) <= descriptors_before);
    let grown = resident_bytes(pid).saturating_sub(memory_before);
    assert!(grown < 16 << 20, "it grew by {grown} bytes");
}

/// Tests that a program that claims for ever to be using its peer's ring delays only what it sends to that peer.
#[test]
fn a_program_that_never_leaves_the_ring_holds_up_only_its_own_data() {
    let site = site();
    let (client, server) = pair(&site, SocketKind::Seqpacket);
    let intruder = Intruder::new(&site, SocketKind::Seqpacket);
    while intruder.peer.recv(&mut [0; 8], Patience::Now).is_ok() {}
    intruder.own.words().word(outlet::BUSY).store(1, Ordering::SeqCst);
    let mut message = [0; 20];
    message[16..].copy_from_slice(b"late");
    socket::send(&intruder.outlaw.data, &message, true).unwrap();
    let mut raw = [0; 8];
    for _ in 0..100 {
        client.send(b"ping", None, soon()).unwrap();
        assert_eq!(server.recv(&mut raw, soon()), Ok(4));
    }
    works(&site);
    assert_eq!(intruder.peer.recv(&mut raw, Patience::Now), Err(Errno::AGAIN));
    intruder.own.words().word(outlet::BUSY).store(0, Ordering::SeqCst);
    assert_eq!(intruder.peer.recv(&mut raw, soon()), Ok(4));
    assert_eq!(raw[..4], *b"late");
    // A program that has gone is not at the ring.
    intruder.own.words().word(outlet::BUSY).store(1, Ordering::SeqCst);
    socket::send(&intruder.outlaw.data, &message, true).unwrap();
    let Intruder { outlaw, peer, .. } = intruder;
    drop(outlaw);
    assert_eq!(peer.recv(&mut raw, soon()), Ok(4));
    assert_eq!(peer.recv(&mut raw, soon()), Err(Errno::CONNRESET));
}
