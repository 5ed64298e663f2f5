//! Tests of programs on a tipcd whose answers violate this version's protocol: the programs must get a clear error, and
//! never spin or hang.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crossway_ring::bell::Silent;
use crossway_ring::doorbell::RUNG;
use crossway_ring::receiver::Receiver as LaneWords;
use crossway_ring::shared_rx::ReceiverWords;
use crossway_ring::{RingTx, Wait};
use crossway_sys::eventfd::EventFd;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::words::SharedWords;
use crossway_sys::{Errno, fdpass, poll};
use crossway_tipc_client::protocol::control::{
    Granted, LEN_MAX, Opened, Request, SocketReport, Welcome, Writer,
};
use crossway_tipc_client::protocol::lane::{self, LaneMemory};
use crossway_tipc_client::protocol::record::{Header, RecordKind};
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::{VERSION, epoch, slot};
use crossway_tipc_client::{Error, NodeSocket, Patience, SocketAddress, SocketKind};

const WATCHDOG: Duration = Duration::from_secs(30);
const SLOTS: u32 = 4;
const RING_BYTES: usize = 256 << 10;

fn soon() -> Patience {
    Patience::Until(Instant::now() + WATCHDOG)
}

/// Returns a record of an unknown kind, followed by a valid one.
fn records() -> [Vec<u8>; 2] {
    let from = SocketAddress { port: 7, node: 8 };
    let kind = RecordKind::Data;
    let known = Header { kind, error: 0, from, service: None, member: None, gone: false }.encode();
    let mut unknown = known;
    unknown[0] = 99;
    [[&unknown[..], b"what?"].concat(), [&known[..], b"data"].concat()]
}

/// Sends the bell that announces data in the lane.
fn ring(memory: &LaneMemory, data: &OwnedFd) {
    let words = LaneWords::of(&memory.words(), lane::DOWN);
    if words.bell().swap(RUNG, Ordering::SeqCst) != RUNG {
        socket::send(data, &[RUNG as u8], true).unwrap();
    }
}

/// How the strange tipcd switches on a lane that a program requests.
enum Beginning {
    /// Writes only the bell, immediately.
    Prompt,
    /// Writes a record and the first bell into the descriptor, and marks the bell as written only after a signal to
    /// continue.
    Late(Steps),
    /// Writes a record into the descriptor, and switches the lane off again after a signal to continue.
    Withdrawn(Steps),
}

/// Shows the test that the strange tipcd is in the middle of switching on a lane, and carries the test's signal to
/// continue.
struct Steps {
    begun: Arc<AtomicBool>,
    go_on: Receiver<()>,
}

impl Beginning {
    /// Switches the lane on when nothing reads the descriptor. Returns whether the lane stays on.
    fn begin(&self, memory: &LaneMemory, region: &SharedWords, data: &OwnedFd) -> bool {
        let down = region.word(slot::DOWN);
        down.store(1, Ordering::SeqCst);
        // A program that has begun to read would take the bell for a record.
        while region.word(slot::READERS).load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        let steps = match self {
            Self::Prompt => {
                ring(memory, data);
                return true;
            }
            Self::Late(steps) | Self::Withdrawn(steps) => steps,
        };
        let stays = matches!(self, Self::Late(_));
        socket::send(data, &records()[1], true).unwrap();
        if stays {
            socket::send(data, &[RUNG as u8], true).unwrap();
        }
        steps.begun.store(true, Ordering::SeqCst);
        steps.go_on.recv().unwrap();
        if stays {
            let words = LaneWords::of(&memory.words(), lane::DOWN);
            words.bell().store(RUNG, Ordering::SeqCst);
        } else {
            down.store(0, Ordering::SeqCst);
        }
        stays
    }
}

/// Serves one program. A socket that requests a report gets two records (see `records`), through its lane or, if it has
/// none, through its descriptor.
fn serve(door: &OwnedFd, lane_after: u32, beginning: &Beginning) {
    let control = socket::accept(door).unwrap();
    let (region, region_fd) =
        SharedWords::create("strange-slots", SLOTS as usize * slot::WORDS).unwrap();
    let (_epochs, epochs_fd) =
        SharedWords::create_for_readers("strange-epochs", epoch::COUNT).unwrap();
    let (mut data, mut memory, mut lane) = (None, None, None);
    let mut bytes = vec![0; LEN_MAX];
    while let Ok(len) = fdpass::recv(&control, &mut bytes, &mut Vec::new()) {
        let mut fds: Vec<OwnedFd> = Vec::new();
        let answer = match Request::decode(&bytes[..len]) {
            Some(Request::Hello { .. }) => {
                fds.extend([region_fd.try_clone().unwrap(), epochs_fd.try_clone().unwrap()]);
                Welcome { version: VERSION, slots: SLOTS, node: 1, lane_after }.encode()
            }
            Some(Request::Open { .. }) => {
                let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket).unwrap();
                data = Some(ours);
                fds.push(theirs);
                Opened { token: 5, slot: 0 }.encode()
            }
            Some(Request::Lanes { .. }) => {
                let (made, fd) = LaneMemory::create(RING_BYTES).unwrap();
                let granted = Granted { ring_bytes: made.ring_bytes() as u32, sends: false };
                fds.extend([fd, EventFd::new().unwrap().duplicate().unwrap()]);
                memory = Some(made);
                granted.encode()
            }
            Some(Request::LaneDown { .. }) => {
                let memory: &LaneMemory = memory.as_ref().unwrap();
                let is_on = beginning.begin(memory, &region, data.as_ref().unwrap());
                lane = is_on.then(|| RingTx::new(memory.down(), Silent, Wait::Block));
                Writer::answer(if is_on { 0 } else { Errno::AGAIN.raw_os_error() }).finish()
            }
            Some(Request::Report { .. }) => {
                for record in records() {
                    let Some(lane) = &mut lane else {
                        socket::send(data.as_ref().unwrap(), &record, false).unwrap();
                        continue;
                    };
                    let put = |place: &mut [u8]| place.copy_from_slice(&record);
                    lane.try_send_with(record.len(), put).unwrap();
                }
                if lane.is_some() {
                    ring(memory.as_ref().unwrap(), data.as_ref().unwrap());
                }
                let local = SocketAddress { port: 1, node: 1 };
                SocketReport { local, peer: None, queued_messages: 0, queued_bytes: 0 }.encode()
            }
            Some(_) => Writer::answer(0).finish(),
            None => return,
        };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        fdpass::send(&control, &answer, &fds).unwrap();
    }
}

/// Returns a listening socket at a path, and the directory that contains it.
fn door() -> (OwnedFd, tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let fd = socket::unix(SocketType::Seqpacket).unwrap();
    socket::bind(&fd, &socket::path_address(&path).unwrap(), "door").unwrap();
    socket::listen(&fd, 8).unwrap();
    (fd, dir, path)
}

fn look_at_what_nobody_knows(lane_after: u32) {
    let (door, _dir, path) = door();
    // The process keeps its connection, so this continues until the process ends.
    std::thread::spawn(move || serve(&door, lane_after, &Beginning::Prompt));
    let socket = NodeSocket::open(&path, SocketKind::Rdm).unwrap();
    let mut buf = [0; 64];
    let begin = Instant::now();
    while lane_after > 0 && socket.down_lane_bells().is_none() {
        assert_eq!(socket.recv(&mut buf, Patience::Now), Err(Errno::AGAIN));
        assert!(begin.elapsed() < WATCHDOG, "no lane");
    }
    socket.report().unwrap();
    for patience in [soon(), Patience::Forever, Patience::Now] {
        assert_eq!(socket.peek(&mut buf, patience).map(drop), Err(Errno::PROTO));
    }
    assert_eq!(socket.recv(&mut buf, soon()), Ok(4), "receiving skips it");
    assert_eq!(&buf[..4], b"data");
    assert_eq!(socket.peek(&mut buf, Patience::Now).map(drop), Err(Errno::AGAIN));
}

#[test]
fn a_look_at_a_record_of_an_unknown_kind_ends_with_an_error() {
    look_at_what_nobody_knows(0);
}

#[test]
fn so_does_one_by_a_lane() {
    look_at_what_nobody_knows(1);
}

/// Tests an edge-triggered receiver, which gets one edge for the data in the descriptor, possibly while its lane is
/// being switched on. If the receive call then returned EAGAIN, the receiver would never call again.
fn receive_while_a_lane_is_switched_on(beginning: fn(Steps) -> Beginning) {
    let (door, _dir, path) = door();
    let begun = Arc::new(AtomicBool::new(false));
    let (proceed, go_on) = channel();
    let steps = Steps { begun: begun.clone(), go_on };
    std::thread::spawn(move || serve(&door, 1, &beginning(steps)));
    let socket = NodeSocket::open(&path, SocketKind::Rdm).unwrap();
    let (told, outcome) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let is_there = begun.load(Ordering::SeqCst);
                let came = socket.recv(&mut [0; 64], Patience::Now);
                if is_there || came != Err(Errno::AGAIN) {
                    return told.send(came).unwrap();
                }
            }
        });
        let begin = Instant::now();
        while !begun.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < WATCHDOG, "it does not request a lane");
            std::thread::yield_now();
        }
        // A call that does not wait for the tipcd has returned by then.
        let early = outcome.recv_timeout(Duration::from_millis(100));
        proceed.send(()).unwrap();
        let came = early.or_else(|_| outcome.recv_timeout(WATCHDOG));
        assert_eq!(came, Ok(Ok(4)));
    });
    assert_eq!(socket.recv(&mut [0; 64], Patience::Now), Err(Errno::AGAIN), "nothing is left");
    let readable = poll::wait_ready(&socket, poll::Interest::Readable, Some(Instant::now()));
    assert_eq!(readable, Ok(false), "the bell was not received");
}

#[test]
fn what_a_descriptor_held_is_received_while_its_lane_is_switched_on() {
    receive_while_a_lane_is_switched_on(Beginning::Late);
}

#[test]
fn what_a_descriptor_held_is_received_when_its_lane_is_switched_off_again() {
    receive_while_a_lane_is_switched_on(Beginning::Withdrawn);
}

/// Tests that a refused program receives the reason, whether the reason arrives before the program sends its request or
/// just after.
#[test]
fn the_reason_of_a_refusal_is_heard_whenever_it_comes() {
    for hears_the_hello in [false, true] {
        let (door, _dir, path) = door();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let control = socket::accept(&door).unwrap();
                if hears_the_hello {
                    // The answer is available but is never read: the end of the connection is reported as an error.
                    let there = poll::wait_ready(&control, poll::Interest::Readable, None);
                    assert_eq!(there, Ok(true));
                }
                let errno = Refusal::PlacesOfUser.errno().raw_os_error();
                fdpass::send(&control, &Writer::answer(errno).finish(), &[]).unwrap();
            });
            match NodeSocket::open(&path, SocketKind::Rdm) {
                Err(error @ Error::TurnedAway { why: Some(Refusal::PlacesOfUser), .. }) => {
                    let said = error.to_string();
                    assert!(said.contains("--clients-per-user"), "{said}");
                    assert!(said.contains(&path.display().to_string()), "{said}");
                }
                other => panic!("{other:?}"),
            }
        });
    }
}
