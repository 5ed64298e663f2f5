//! Creates and releases the lanes of busy sockets: rings in memory that a program shares with the service, used in
//! addition to the socket's descriptor. See docs/decisions/0042 for the reasons.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossway_ring::region::SharedRing;
use crossway_ring::sync::{AtomicU32, Ordering, fence};
use crossway_ring::{Bell, RingRx, Wait};
use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::eventfd::EventFd;
use crossway_sys::{Errno, OsError, futex};
use crossway_tipc_client::protocol::control::Granted;
use crossway_tipc_client::protocol::lane::LaneMemory;
use crossway_tipc_client::protocol::slot;

use super::Service;
use super::local::Phase;
use super::request::Answer;
use super::token::{Place, Token};

/// The lanes of one socket.
pub(super) struct Lanes {
    pub(super) memory: LaneMemory,
    /// The descriptor of the memory, kept to answer further requests.
    memory_fd: OwnedFd,
    /// The eventfd by which the program wakes this service. It is never read: epoll reports each signal as an edge.
    pub(super) bell: EventFd,
    /// The lane from the program.
    pub(super) up: RingRx<SharedRing, RoomBell>,
    /// Whether the socket is in the list of lanes that are checked in each turn. Its program then need not signal
    /// `bell`.
    pub(super) hot: bool,
    /// Number of records received.
    pub(super) taken: u64,
    /// Number of times the program woke the service.
    pub(super) bells: u64,
}

/// Statistics of a socket's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneCounts {
    /// Number of messages that the program has sent through its lane; for a stream, number of records.
    pub(crate) sent: u64,
    /// Number of messages put into the peer's direct lane, by the program itself or on its behalf by the service.
    pub(crate) direct: u64,
    /// Number of times the program had to wake the service.
    pub(crate) woken: u64,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// Wakes a program that waits for room in its lane. The service itself sleeps in epoll.
#[derive(Debug)]
pub(super) struct RoomBell;

impl Bell for RoomBell {
    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn sleep(&self, _: &AtomicU32, _: Option<Duration>) -> Result<(), OsError> {
        Ok(())
    }

    fn ring(&self, other_state: &AtomicU32) -> Result<(), OsError> {
        futex::wake(other_state).map(drop)
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        // The data descriptor shows whether it has.
        Ok(false)
    }
}

impl Lanes {
    fn new(ring_bytes: usize) -> Result<Self, OsError> {
        let (memory, memory_fd) = LaneMemory::create(ring_bytes)?;
        let up = RingRx::new(memory.up(), RoomBell, Wait::Block);
        let bell = EventFd::new()?;
        Ok(Self { memory, memory_fd, bell, up, hot: false, taken: 0, bells: 0 })
    }

    fn answer(&self, sends: bool) -> Result<Answer, Errno> {
        let granted = Granted { ring_bytes: self.memory.ring_bytes() as u32, sends };
        let memory = self.memory_fd.try_clone().map_err(|_| Errno::NFILE)?;
        let bell = self.bell.duplicate().map_err(|_| Errno::NFILE)?;
        Ok(Answer { bytes: granted.encode(), fds: vec![memory, bell] })
    }
}

impl Service {
    /// Creates the lanes of a socket, or passes the existing ones to another process.
    pub(super) fn grant_lanes(&mut self, epoll: &Epoll, place: Place) -> Result<Answer, Errno> {
        let local = self.sockets.get_mut(place).ok_or(Errno::BADF)?;
        if let Some(lanes) = &local.lanes {
            return lanes.answer(false);
        }
        let full = self.lanes >= self.limits.lanes || self.limits.lane_after == 0;
        if full || local.adopted || local.lingers.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        match local.phase {
            Phase::Connected => {}
            Phase::Open if !local.kind.is_connected_kind() => {}
            Phase::Disconnected => return Err(Errno::OPNOTSUPP),
            _ => return Err(Errno::AGAIN),
        }
        let client = self.clients.get(local.client).ok_or(Errno::BADF)?;
        if client.load(local.slot, slot::SENT) < local.taken {
            // Some process writes to the descriptor without counting: the lane could overtake its data.
            return Err(Errno::OPNOTSUPP);
        }
        let lanes = Lanes::new(self.limits.lane_bytes).map_err(|_| Errno::NFILE)?;
        if self.is_scarce(&lanes.memory_fd) {
            return Err(Errno::NFILE);
        }
        let local = self.sockets.get_mut(place).ok_or(Errno::BADF)?;
        let answer = lanes.answer(true)?;
        epoll
            .add(lanes.bell.as_fd(), Token::Lane(place).encode(), Trigger::Changes)
            .map_err(|_| Errno::NFILE)?;
        local.lanes = Some(Box::new(lanes));
        self.lanes += 1;
        self.warm(place);
        self.offer_outlet(place);
        Ok(answer)
    }

    /// Releases the lanes of a socket that is being removed.
    pub(super) fn drop_lanes(&mut self, epoll: &Epoll, lanes: Option<Box<Lanes>>) {
        let Some(lanes) = lanes else { return };
        // Otherwise the program's copy would keep it registered.
        let _ = epoll.remove(lanes.bell.as_fd());
        self.lanes -= 1;
    }

    /// Adds a socket to those whose lanes are checked in each turn until the service sleeps.
    pub(super) fn warm(&mut self, place: Place) {
        if let Some(lanes) = self.sockets.get_mut(place).and_then(|l| l.lanes.as_mut())
            && !std::mem::replace(&mut lanes.hot, true)
        {
            self.hot.push(place);
        }
    }
}
