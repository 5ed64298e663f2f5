//! `shm-pipe`: passes the payload in shared memory and its location through a pipe (shmem_pipe in ipc-bench).
//!
//! The sender allocates space in a ring-shaped heap, writes the payload there, and writes its position and length to a
//! pipe. The receiver blocks in reading that pipe, as with any pipe. A word in shared memory announces freed space, and
//! a sender that waits for space blocks in reading a second pipe. The pipes themselves report the peer's death.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use crossway_sys::pipe::{PipeEnd, ignore_sigpipe, pipe};
use crossway_sys::poll::{Interest, is_hung_up, wait_ready};
use crossway_sys::{Errno, OsError};

use crate::building_blocks::complete::Complete;
use crate::building_blocks::in_place::{Put, Take};
use crate::building_blocks::waiting::{Attempt, Patience, Stop, wait_for};
use crate::contract::facts_of;
use crate::ring::channel::{Shared, probe, ring_caps};
use crate::{
    Caps, Carrier, Facts, Family, Mechanism, Offer, OpenError, Probe, RecvError, SendError, Spec,
    Transport, Wait,
};
use crossway_ring::RingMemory;
use crossway_ring::heap::{DamagedHead, HeapReader, HeapWriter};
use crossway_ring::region::{Direction, SharedRing};

/// The mechanism `shm-pipe`: a heap in shared memory, and a pipe(2) for the locations of messages ("tickets"). Each
/// message costs one write(2) and one read(2) of 16 bytes.
pub struct ShmPipe;

/// Length of a ticket in bytes. A ticket consists of two numbers in native byte order: the number of bytes allocated in
/// the heap before the message, which gives the message's position, and the message's length.
const TICKET: usize = 16;

/// The sending half: writes payloads into the heap and their tickets into the pipe.
pub struct ShmPipeTx {
    heap: HeapWriter,
    tickets: PipeEnd,
    room: PipeEnd,
    wait: Wait,
}

/// A wait until the receiver has freed the heap up to the position `wanted`.
struct ForRoom<'a> {
    tx: &'a mut ShmPipeTx,
    wanted: u64,
}

impl Attempt for ForRoom<'_> {
    type Out = ();

    fn attempt(&mut self, nonblocking: bool) -> Result<(), Errno> {
        loop {
            if self.tx.heap.head_reaches(self.wanted).map_err(damaged)?
                || self.tx.heap.announce_sleep(self.wanted).map_err(damaged)?
            {
                return Ok(());
            }
            if nonblocking {
                return Err(if is_hung_up(&self.tx.tickets)? { Errno::PIPE } else { Errno::AGAIN });
            }
            if self.tx.room.read(&mut [0; 64], false)? == 0 {
                return Err(Errno::PIPE);
            }
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        if wait_ready(&self.tx.room, Interest::Readable, Some(until))? {
            match self.tx.room.read(&mut [0; 64], true) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// A write of a ticket; on a pipe it is atomic.
struct Ticket<'a> {
    pipe: &'a mut PipeEnd,
    bytes: [u8; TICKET],
}

impl Attempt for Ticket<'_> {
    type Out = ();

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<(), Errno> {
        self.pipe.write(&self.bytes, nonblocking).map(drop)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(&*self.pipe, Interest::Writable, Some(until)).map(drop)
    }
}

impl Put for ShmPipeTx {
    #[inline]
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let max = self.heap.ring().max_message();
        if len > max {
            return Err(SendError::TooLarge { len, max });
        }
        let (wait, wanted) = (self.wait, self.heap.head_for(len));
        let room = self.heap.head_reaches(wanted).map_err(damaged).map_err(Stop::Errno);
        if !room.map_err(send_error)? {
            wait_for(&mut ForRoom { tx: self, wanted }, wait, patience).map_err(send_error)?;
        }
        self.heap.write(len, fill);
        let mut bytes = [0; TICKET];
        bytes[..8].copy_from_slice(&self.heap.position().to_ne_bytes());
        bytes[8..].copy_from_slice(&(len as u64).to_ne_bytes());
        wait_for(&mut Ticket { pipe: &mut self.tickets, bytes }, wait, patience)
            .map_err(send_error)?;
        self.heap.advance(len);
        Ok(())
    }

    fn sizes(&self) -> Facts {
        facts(self.heap.ring(), &self.tickets)
    }
}

fn damaged(_: DamagedHead) -> Errno {
    Errno::BADMSG
}

fn send_error(stop: Stop) -> SendError {
    match stop {
        Stop::WouldBlock => SendError::Full,
        Stop::TimedOut => SendError::TimedOut,
        Stop::Errno(Errno::PIPE) => SendError::PeerClosed,
        Stop::Errno(errno) => SendError::Os(OsError::new("send", "shm-pipe", errno)),
    }
}

/// The receiving half: reads tickets from the pipe and payloads from the heap.
pub struct ShmPipeRx {
    heap: HeapReader,
    tickets: PipeEnd,
    room: PipeEnd,
    wait: Wait,
    /// The length of a message whose ticket was read and which did not fit into the caller's buffer.
    waiting: Option<usize>,
}

/// A read of a ticket.
struct NextTicket<'a>(&'a mut PipeEnd);

impl Attempt for NextTicket<'_> {
    type Out = (usize, [u8; TICKET]);

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<Self::Out, Errno> {
        let mut bytes = [0; TICKET];
        self.0.read(&mut bytes, nonblocking).map(|n| (n, bytes))
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(&*self.0, Interest::Readable, Some(until)).map(drop)
    }
}

impl ShmPipeRx {
    /// Returns the length of the next message, which starts at the head of the heap.
    #[inline]
    fn next_len(&mut self, patience: Patience) -> Result<usize, RecvError> {
        if let Some(len) = self.waiting {
            return Ok(len);
        }
        let (read, bytes) = wait_for(&mut NextTicket(&mut self.tickets), self.wait, patience)
            .map_err(|stop| match stop {
                Stop::WouldBlock => RecvError::Empty,
                Stop::TimedOut => RecvError::TimedOut,
                Stop::Errno(errno) => RecvError::Os(OsError::new("read", "shm-pipe", errno)),
            })?;
        if read == 0 {
            return Err(RecvError::PeerClosed);
        }
        let (position, len) = bytes.split_at(8);
        let position = u64::from_ne_bytes(position.try_into().expect("8 bytes"));
        let len = u64::from_ne_bytes(len.try_into().expect("8 bytes"));
        if read != TICKET
            || position != self.heap.position()
            || len > self.heap.ring().max_message() as u64
        {
            return Err(RecvError::Damaged(format!(
                "the peer announced {len} bytes at position {position} (in an announcement of {read} bytes); \
                 expected at most {1} bytes at position {0}",
                self.heap.position(),
                self.heap.ring().max_message()
            )));
        }
        Ok(len as usize)
    }
}

impl Take for ShmPipeRx {
    #[inline]
    fn take<R>(
        &mut self,
        room: usize,
        patience: Patience,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let len = self.next_len(patience)?;
        if len > room {
            self.waiting = Some(len);
            return Err(RecvError::TooSmall { need: len, have: room });
        }
        self.waiting = None;
        let (result, wake) = self.heap.read(len, read);
        if wake {
            // A sender that has ended needs no wake-up, and a full pipe wakes it as well.
            let _ = self.room.write(&[1], true);
        }
        Ok(result)
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tickets.as_fd())
    }

    fn sizes(&self) -> Facts {
        facts(self.heap.ring(), &self.tickets)
    }
}

fn facts(heap: &SharedRing, tickets: &PipeEnd) -> Facts {
    let mut facts = crate::building_blocks::pipe_halves::pipe_facts(tickets);
    facts.extend(facts_of([
        ("ring_bytes", heap.capacity()),
        ("max_message_bytes", heap.max_message()),
    ]));
    facts
}

impl Mechanism for ShmPipe {
    const ID: &'static str = "shm-pipe";
    const ABOUT: &'static str =
        "payload in shared memory, its position sent through a pipe (ipc-bench's shmem_pipe)";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Pipe);
    type Tx = ShmPipeTx;
    type Rx = ShmPipeRx;
    type Listener = Complete<ShmPipeTx, ShmPipeRx>;

    fn caps() -> Caps {
        Caps { waitable_fd: true, ..ring_caps() }
    }

    fn probe() -> Probe {
        probe::<Self>(Wait::Block)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (shared, mut offer) = Shared::listen(Self::ID, spec)?;
        let out = || -> Result<_, OsError> {
            let ((ticket_read, ticket_write), (room_read, room_write)) = (pipe()?, pipe()?);
            Ok((ticket_read, ticket_write, room_read, room_write))
        };
        let (their_tickets, our_tickets, our_room, their_room) = out()?;
        let (in_tickets, their_out, their_in_room, our_freed) = out()?;
        offer = offer
            .with_fd("receive", their_tickets)
            .with_fd("freed", their_room)
            .with_fd("send", their_out)
            .with_fd("room", their_in_room);
        let tx = tx(&shared, Direction::FromListener, spec, our_tickets, our_room)?;
        let rx = rx(&shared, Direction::FromConnector, spec, in_tickets, our_freed)?;
        Ok((Complete::new(Self::ID, (tx, rx)), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let shared = Shared::connect(Self::ID, spec, offer)?;
        let mut take = |name| offer.take_fd(Self::ID, name);
        let (send, room, receive, freed) =
            (take("send")?, take("room")?, take("receive")?, take("freed")?);
        Ok((
            tx(&shared, Direction::FromConnector, spec, send, room)?,
            rx(&shared, Direction::FromListener, spec, receive, freed)?,
        ))
    }
}

fn tx(
    shared: &Shared,
    direction: Direction,
    spec: &Spec,
    tickets: OwnedFd,
    room: OwnedFd,
) -> Result<ShmPipeTx, OsError> {
    ignore_sigpipe();
    Ok(ShmPipeTx {
        heap: HeapWriter::new(shared.ring(direction)),
        tickets: PipeEnd::new(tickets)?,
        room: PipeEnd::new(room)?,
        wait: spec.wait,
    })
}

fn rx(
    shared: &Shared,
    direction: Direction,
    spec: &Spec,
    tickets: OwnedFd,
    room: OwnedFd,
) -> Result<ShmPipeRx, OsError> {
    ignore_sigpipe();
    Ok(ShmPipeRx {
        heap: HeapReader::new(shared.ring(direction)),
        tickets: PipeEnd::new(tickets)?,
        room: PipeEnd::new(room)?,
        wait: spec.wait,
        waiting: None,
    })
}
