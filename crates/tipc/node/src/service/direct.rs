//! Direct lanes: if both ends of a connection belong to programs of this tipcd, the sender's program writes directly
//! into the ring from which the receiver's program reads. See docs/decisions/0048 for the reasons.
//!
//! The service remains a second producer of that ring, for everything that is sent through the descriptor or through
//! the lane to tipcd. The two producers exclude each other ([`handover`]). Whatever a program writes to the memory that
//! it shares with its peer only harms their connection.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossway_ring::bell::Silent;
use crossway_ring::handover::{self, Words};
use crossway_ring::receiver::Receiver;
use crossway_ring::region::SharedRing;
use crossway_ring::sync::Ordering;
use crossway_ring::{RingMemory, RingTx, SharedRx};
use crossway_sys::{Errno, futex, socket};
use crossway_tipc_client::protocol::control::{Granted, SocketKind};
use crossway_tipc_client::protocol::lane::{self, LaneMemory, OutletWords, outlet};
use crossway_tipc_client::protocol::record::{HEADER_LEN, Header, RecordKind};
use crossway_tipc_client::protocol::slot;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::client::Client;
use super::local::{Local, Phase, Unread, local_range, local_socket};
use super::request::Answer;
use super::token::{Place, Table};
use super::{Context, Service};

/// Interval between the first two checks whether a program has left a ring; it doubles with each further check.
const RETRY: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(64);

/// A ring from which a program receives. Both the program at the other end of the connection and the service may fill
/// it.
#[derive(Debug)]
pub(super) struct Direct {
    memory: LaneMemory,
    /// The descriptor of the memory, kept to answer further requests.
    fd: OwnedFd,
    /// The socket at the other end of the connection.
    sender: Place,
    producer: Producer,
}

/// The program that fills the ring.
#[derive(Debug)]
enum Producer {
    /// No program has requested the sending end.
    None,
    /// This program has the sending end. `words` are in the memory of the sending socket's lanes.
    Program { client: Place, words: OutletWords },
    /// No program has or can get the sending end any more: the sending socket was closed, or its program died.
    Ended,
}

/// Rings into which the service wants to put something while a program is writing to them.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    receivers: Vec<Place>,
    at: Option<Nanos>,
    pause: Duration,
}

impl Blocked {
    /// The time at which these rings must be checked; `None` if there are no such rings.
    pub(super) const fn poll_timeout(&self) -> Option<Nanos> {
        self.at
    }
}

impl Direct {
    pub(super) fn new(ring_bytes: usize, sender: Place) -> Result<Self, Errno> {
        let (memory, fd) = LaneMemory::create(ring_bytes).map_err(|_| Errno::NFILE)?;
        Ok(Self { memory, fd, sender, producer: Producer::None })
    }

    pub(super) const fn memory(&self) -> &LaneMemory {
        &self.memory
    }

    /// Gives the sending end to a program. `peer` is the service's end of the receiver's descriptor pair; `words` are
    /// in the memory of the sending socket's lanes.
    pub(super) fn grant(
        &mut self,
        tx: &RingTx<SharedRing, Silent>,
        peer: &OwnedFd,
        client: Place,
        words: OutletWords,
        header: &[u8; HEADER_LEN],
    ) -> Result<Answer, Errno> {
        if !matches!(self.producer, Producer::None) {
            return Err(Errno::OPNOTSUPP);
        }
        let fd = self.fd.try_clone().map_err(|_| Errno::NFILE)?;
        let peer = peer.try_clone().map_err(|_| Errno::NFILE)?;
        self.producer = Producer::Program { client, words };
        self.leave(tx);
        Ok(Answer { bytes: [&self.granted().encode()[..], header].concat(), fds: vec![fd, peer] })
    }

    /// Ends the sending program's use of the ring. Returns false if that use had already ended.
    pub(super) fn end_producer(&mut self) -> bool {
        !matches!(std::mem::replace(&mut self.producer, Producer::Ended), Producer::Ended)
    }

    fn words(&self) -> Option<&OutletWords> {
        match &self.producer {
            Producer::Program { words, .. } => Some(words),
            _ => None,
        }
    }

    fn granted(&self) -> Granted {
        Granted { ring_bytes: self.memory.ring_bytes() as u32, sends: true }
    }

    /// The answer to a request to receive through the ring.
    pub(super) fn answer(&self) -> Result<Answer, Errno> {
        let fd = self.fd.try_clone().map_err(|_| Errno::NFILE)?;
        Ok(Answer { bytes: self.granted().encode(), fds: vec![fd] })
    }

    /// Makes `tx`, the service's end of the ring, continue at the position that the program has left in the shared
    /// words.
    pub(super) fn resume(&self, tx: &mut RingTx<SharedRing, Silent>) {
        if let Some(words) = self.words() {
            handover::take_over(words, tx);
        }
    }

    /// Stores the service's position in the shared words, so that the program continues there.
    pub(super) fn leave(&self, tx: &RingTx<SharedRing, Silent>) {
        if let Some(words) = self.words() {
            handover::leave(words, tx);
        }
    }

    /// Makes the receiver signal its eventfd when it has made room in the ring.
    pub(super) fn want_room(&self) {
        self.memory.words().word(lane::ROOM_WANTED).store(1, Ordering::Release);
    }

    /// Whether no program is writing to the ring.
    fn is_free(&self, clients: &Table<Client>) -> bool {
        let Producer::Program { client, words } = &self.producer else { return true };
        handover::is_free(words) || has_ended(clients, *client)
    }

    fn rx(&self) -> SharedRx<SharedRing, Receiver> {
        SharedRx::new(self.memory.down(), Receiver::of(&self.memory.words(), lane::DOWN))
    }

    /// Returns the number of records that the receiver has not taken, and the length of their payload in bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let rx = self.rx();
        let turn = rx.turn(());
        let (mut count, mut bytes) = (0, 0);
        let mut next = turn.front().ok().flatten();
        // The ring holds no more, whatever it contains.
        while let Some(front) = next.filter(|_| count <= self.memory.ring_bytes() / HEADER_LEN) {
            count += 1;
            bytes += front.left().saturating_sub(HEADER_LEN);
            next = turn.after(&front).ok().flatten();
        }
        (count, bytes)
    }

    /// Returns the payload of the first record that the receiver has not taken, if that is a message.
    fn first_unread(&self) -> Option<Vec<u8>> {
        let rx = self.rx();
        let turn = rx.turn(());
        let front = turn.front().ok().flatten()?;
        turn.with(&front, |record| {
            let (header, payload) = record.split_first_chunk()?;
            let is_data = Header::decode(header).is_some_and(|h| h.kind == RecordKind::Data);
            is_data.then(|| payload.to_vec())
        })
    }

    /// Wakes the sending program if it waits for room.
    fn wake_producer(&self) {
        let _ = futex::wake(self.memory.down().producer_state());
    }
}

fn has_ended(clients: &Table<Client>, client: Place) -> bool {
    clients.get(client).is_none_or(|client| client.control.is_none())
}

impl Local {
    /// Whether the service may put something into the lane now.
    pub(super) fn is_lane_free(&self, clients: &Table<Client>) -> bool {
        self.direct().is_none_or(|direct| direct.is_free(clients))
    }
}

impl Service {
    /// Returns the connection's other end if it is a socket of this service and direct lanes are enabled.
    fn peer_of(&self, place: Place) -> Option<(Place, &Local)> {
        let local = self.sockets.get(place).filter(|l| matches!(l.phase, Phase::Connected))?;
        let peer = local.peer?;
        Some((peer, self.sockets.get(peer)?))
    }

    /// If direct lanes are enabled and both ends of a new connection are sockets of this service, records this at both.
    pub(super) fn note_local(&mut self, node: &Node, place: Place) {
        let port = self.sockets.get(place).and_then(|local| local.port);
        let report = port.and_then(|port| node.socket_report(port).ok());
        let Some((own, peer)) = report.and_then(|r| Some((r.local, r.peer?))) else { return };
        let offers = self.limits.direct && self.limits.lane_after != 0;
        let Some(other) = self.by_port.get(&peer.port).copied() else { return };
        if !offers || own.node != peer.node {
            return;
        }
        for (end, peer) in [(place, other), (other, place)] {
            let Some(local) = self.sockets.get_mut(end) else { continue };
            local.peer = Some(peer);
            if let Some(client) = self.clients.get(local.client) {
                client.store(local.slot, slot::LOCAL, 1);
            }
        }
    }

    /// Creates the ring of a direct lane for a socket whose program wants to receive through a lane. Returns `None` if
    /// the other end of the connection is not a socket of this service, or direct lanes are disabled.
    pub(super) fn make_direct(&self, place: Place) -> Result<Option<Direct>, Errno> {
        let Some((sender, _)) = self.peer_of(place) else { return Ok(None) };
        let write_len = self.sockets.get(sender).map_or(0, |local| local.write_len);
        let direct = Direct::new(self.limits.direct_bytes(write_len), sender)?;
        if self.is_scarce(&direct.fd) { Err(Errno::NFILE) } else { Ok(Some(direct)) }
    }

    /// Notifies a sending program that it can request the sending end of its peer's ring.
    pub(super) fn offer_outlet(&self, sender: Place) {
        let direct = self.peer_of(sender).and_then(|(_, receiving)| receiving.direct());
        let lanes = self.sockets.get(sender).and_then(|local| local.lanes.as_ref());
        if let (Some(Direct { producer: Producer::None, .. }), Some(lanes)) = (direct, lanes) {
            lanes.memory.words().word(outlet::READY).store(1, Ordering::Release);
        }
    }

    /// Gives the sending end of the peer's ring to a program.
    pub(super) fn grant_outlet(
        &mut self,
        node: &Node,
        sender: Place,
        client: Place,
    ) -> Result<Answer, Errno> {
        let (receiver, receiving) = self.peer_of(sender).ok_or(Errno::OPNOTSUPP)?;
        let port = receiving.port.ok_or(Errno::OPNOTSUPP)?;
        let report = node.socket_report(port).map_err(|_| Errno::OPNOTSUPP)?;
        let header = Header {
            kind: RecordKind::Data,
            error: 0,
            from: local_socket(report.peer.ok_or(Errno::OPNOTSUPP)?),
            service: report.service.map(local_range),
            member: None,
            gone: false,
        };
        let lanes = self.sockets.get(sender).and_then(|local| local.lanes.as_ref());
        let words = OutletWords::of(lanes.ok_or(Errno::OPNOTSUPP)?.memory.words());
        let receiving = self.sockets.get_mut(receiver).ok_or(Errno::OPNOTSUPP)?;
        let down = receiving.down.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let answer = down.grant(&receiving.fd, client, words, &header.encode())?;
        self.note_passed(node, receiver);
        Ok(answer)
    }

    /// Allows the sending program to use the ring, if everything that the program has sent in other ways is already in
    /// the ring.
    pub(super) fn note_passed(&self, node: &Node, receiver: Place) {
        let Some(receiving) = self.sockets.get(receiver) else { return };
        let Some(direct) = receiving.direct() else { return };
        let Some(words) = direct.words() else { return };
        let Some(sending) = self.sockets.get(direct.sender) else { return };
        let Some(lanes) = &sending.lanes else { return };
        let waits = |port| node.readiness(port).is_ok_and(|ready| ready.readable);
        if sending.stalled.is_empty()
            && receiving.out.is_empty()
            && !receiving.port.is_some_and(waits)
        {
            let passed = sending.taken.wrapping_add(lanes.taken);
            words.passed().store(passed, Ordering::SeqCst);
        }
    }

    /// Makes the sending program use its descriptor instead of the ring, because its peer no longer receives: the
    /// service discards what arrives by the descriptor.
    pub(super) fn stop_producer(&self, receiver: Place) {
        let Some(direct) = self.sockets.get(receiver).and_then(Local::direct) else { return };
        if let Some(words) = direct.words() {
            words.lanes().word(lane::STOPPED).store(1, Ordering::SeqCst);
            direct.wake_producer();
        }
    }

    /// Handles the end of a sending socket: from now on, the service is the only producer of its peer's ring.
    pub(super) fn end_producer(&mut self, cx: &mut Context<'_>, sender: Place) {
        let Some(peer) = self.sockets.get(sender).and_then(|local| local.peer) else { return };
        if self.take_over_ring(peer) {
            self.deliver(cx, peer);
        }
    }

    /// Ends the use of a receiver's ring by the program at the other end of the connection. Returns false if that use
    /// had already ended.
    fn take_over_ring(&mut self, receiver: Place) -> bool {
        let down = self.sockets.get_mut(receiver).and_then(|local| local.down.as_mut());
        down.is_some_and(|down| down.take_over())
    }

    /// Schedules another check of a receiver's ring.
    pub(super) fn await_ring(&mut self, now: Nanos, receiver: Place) {
        self.blocked.receivers.push(receiver);
        if self.blocked.at.is_none() {
            self.blocked.pause = (2 * self.blocked.pause).clamp(RETRY, RETRY_MAX);
            self.blocked.at = Some(now + self.blocked.pause);
        }
    }

    /// Handles the end of a program's control connection: schedules an immediate check of the rings that the program
    /// filled, and may have left in an incomplete state.
    pub(super) fn note_dead_producer(&mut self, client: Place) {
        let dead = self.sockets.places().filter(|(_, local)| {
            local.direct().is_some_and(|direct| {
                matches!(&direct.producer, Producer::Program { client: of, .. } if *of == client)
            })
        });
        self.blocked.receivers.extend(dead.map(|(place, _)| place));
        if !self.blocked.receivers.is_empty() {
            self.blocked.at = Some(Nanos(0));
        }
    }

    /// Checks the rings whose check is due.
    pub(super) fn retry_rings(&mut self, cx: &mut Context<'_>) {
        if self.blocked.at.is_none_or(|at| at > cx.now) {
            return;
        }
        self.blocked.at = None;
        for receiver in std::mem::take(&mut self.blocked.receivers) {
            let Some(direct) = self.sockets.get(receiver).and_then(Local::direct) else { continue };
            if matches!(direct.producer, Producer::Program { client, .. } if has_ended(&self.clients, client))
            {
                self.take_over_ring(receiver);
            }
            if let Some(local) = self.sockets.get_mut(receiver) {
                local.writable = true;
            }
            self.deliver(cx, receiver);
        }
        if self.blocked.at.is_none() {
            self.blocked.pause = Duration::ZERO;
        }
    }

    /// Prepares to return a message to its sender: passes the first message that a program has not received from its
    /// ring to the node, as if the message had just been sent.
    pub(super) fn take_unread_direct(&self, now: Nanos, node: &mut Node, local: &mut Local) {
        let Some(direct) = local.direct().filter(|_| local.kind == SocketKind::Seqpacket) else {
            return;
        };
        let sender = self.sockets.get(direct.sender).and_then(|sender| sender.port);
        let (Some(from), Some(to)) = (sender, local.port) else { return };
        let Some(payload) = direct.first_unread() else { return };
        if node.send(now, from, None, &payload).is_ok()
            && let Ok(taken) = node.take(now, to)
        {
            local.unread.push_front(Unread { bytes: payload.len(), taken: Some(taken) });
        }
    }

    /// Shuts down the service's end of a socket's descriptor pair if the peer's program holds a duplicate of it,
    /// because closing it would then not be enough.
    pub(super) fn end_descriptor(epoll: &crossway_sys::epoll::Epoll, local: &Local) {
        if local.direct().is_some_and(|direct| !matches!(direct.producer, Producer::None)) {
            let _ = epoll.remove(local.fd.as_fd());
            socket::shutdown_send(&local.fd);
            socket::shutdown_recv(&local.fd);
        }
    }
}
