//! Relays signals between an endpoint of this node and a link, or from one link to another.
//!
//! An endpoint has one channel to its node for each link that it sends to or receives from. A node has at most
//! [`WINDOW`](crate::limits::WINDOW) bytes (and a piece) in flight to any endpoint of a linked node. Bytes are in
//! flight until the linked node has delivered them or placed them in the pool that it shares with the endpoint. While
//! signals of a local endpoint wait because of that limit, the endpoint's channel is not read.
//!
//! The bytes of large signals are not sent over these channels. They are in the pool, and only references to them are
//! sent.

mod arrivals;
mod credit;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossway_ring::pool::{self, Block, Pool, Reference};
use crossway_sys::epoll::Trigger;
use crossway_sys::{Errno, OsError, socket};
use slab::Slab;

use self::arrivals::Gathering;
use super::intake::Intake;
use super::{Node, Token, channels};
use crate::Spid;
use crate::channel::frame::{ABANDONED, BY_REFERENCE, FIRST, GONE, HEADER, Header, OUT_OF_BAND};
use crate::limits::{LEAST_SIGNAL, PIECE, POOL};
use crate::registry::{LinkId, Route};
use crate::wire::body::{Body, Framed, Space};
use crate::wire::link::{self, Message};

/// Maximum number of bytes read from one endpoint before the node turns to other endpoints.
const AT_A_TIME: usize = 4 * PIECE;

/// Data for an endpoint, in encoded form.
struct Letter {
    bytes: Framed,
    at: usize,
    /// Number of bytes in the letter that belong to a signal.
    payload: u32,
}

/// A signal that an endpoint has sent, and that waits until the peer has delivered earlier ones.
struct Held {
    header: Header,
    rest: Rest,
}

/// The part of a held signal that has not been sent.
enum Rest {
    Piece(Body),
    /// The bytes of a block from an index on.
    Block(Arc<Block>, usize),
}

/// The channel between an endpoint and the node for one link.
struct Relay {
    endpoint: Spid,
    link: LinkId,
    fd: OwnedFd,
    /// The pool that the node shares with the endpoint; `None` if the system provided no memory for one. Large signals
    /// are then sent like small ones.
    pool: Option<Pool>,
    intake: Intake,
    outbox: VecDeque<Letter>,
    /// For each sender whose signal has arrived only in part, the number of bytes that are missing.
    open: HashMap<Spid, u32>,
    /// The signals in `open` that are being collected in a block, by sender.
    gathered: HashMap<Spid, Gathering>,
    held: Option<Held>,
    is_ready: bool,
    /// Whether the link is down, so that only the rest of the outbox is still sent.
    is_orphan: bool,
}

impl Relay {
    /// Holds a signal or piece that the endpoint has sent until it can be passed on; fails for an invalid reference.
    fn hold(&mut self, header: Header, piece: Body) -> Result<(), &'static str> {
        let rest = if header.flags & BY_REFERENCE == 0 {
            Rest::Piece(piece)
        } else {
            let place = piece.first_chunk().map(|bytes| Reference::decode(*bytes));
            let place = place.filter(|place| header.size as usize <= place.room());
            let block = place.and_then(|place| self.pool.as_ref()?.accept(place));
            Rest::Block(Arc::new(block.ok_or("it passes an invalid reference")?), 0)
        };
        self.held = Some(Held { header, rest });
        Ok(())
    }
}

/// A piece, and the link from which it came.
type InTransit = (LinkId, Message);

#[derive(Default)]
pub(super) struct Relays {
    all: Slab<Relay>,
    by_key: HashMap<(Spid, LinkId), usize>,
    ready: VecDeque<usize>,
    /// Number of bytes in flight to an endpoint of a link's peer.
    in_flight: HashMap<(LinkId, Spid), usize>,
    /// Pieces to be relayed from one link to another.
    transit: HashMap<(LinkId, Spid), VecDeque<InTransit>>,
    /// Number of bytes for which a link's peer has not received credit yet.
    owed: HashMap<(LinkId, Spid), u32>,
}

impl Relays {
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes that the system reported a channel as ready for reading or writing.
    pub(super) fn changed(&mut self, index: usize) {
        if let Some(relay) = self.all.get_mut(index)
            && !std::mem::replace(&mut relay.is_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    /// Handles the end of an endpoint beyond a link: incomplete signals from it will not be completed.
    pub(super) fn abandon(&mut self, from: Spid) {
        let of: Vec<usize> =
            self.all.iter().filter(|(_, r)| r.open.contains_key(&from)).map(|(i, _)| i).collect();
        for index in of {
            self.all[index].open.remove(&from);
            self.all[index].gathered.remove(&from);
            let header = Header { piece: 0, size: 0, from, to: 0, flags: ABANDONED };
            self.post(index, header, Body::with_capacity(0));
        }
    }

    /// Retries sending all signals that wait for a link's peer.
    pub(super) fn retry(&mut self, link: LinkId) {
        let waiting: Vec<usize> = self
            .all
            .iter()
            .filter(|(_, relay)| relay.link == link && relay.held.is_some())
            .map(|(index, _)| index)
            .collect();
        for index in waiting {
            self.changed(index);
        }
    }

    /// Handles the loss of a link.
    pub(super) fn link_down(&mut self, link: LinkId) {
        self.in_flight.retain(|(of, _), _| *of != link);
        self.transit.retain(|(to, _), _| *to != link);
        self.owed.retain(|(of, _), _| *of != link);
        let of: Vec<usize> =
            self.all.iter().filter(|(_, r)| r.link == link).map(|(i, _)| i).collect();
        for index in of {
            let relay = &mut self.all[index];
            relay.is_orphan = true;
            relay.held = None;
            let endpoint = relay.endpoint;
            self.by_key.remove(&(endpoint, link));
            self.changed(index);
        }
    }
}

impl Node {
    /// Returns the channel of an endpoint for a link. If the channel had to be created, also returns the endpoint's
    /// descriptors.
    pub(super) fn relay_for(
        &mut self,
        endpoint: Spid,
        link: LinkId,
    ) -> Result<(usize, Option<Vec<OwnedFd>>), OsError> {
        if let Some(index) = self.relays.by_key.get(&(endpoint, link)) {
            return Ok((*index, None));
        }
        let (ours, theirs) = channels::stream_pair(Some(self.settings.channel_bytes))?;
        socket::set_nonblocking(&ours)?;
        let memory = pool::create("crossway-linx-link", POOL).ok();
        let pool = memory.as_ref().and_then(|memory| Pool::map(memory, POOL, true).ok());
        let memory = memory.filter(|_| pool.is_some());
        let entry = self.relays.all.vacant_entry();
        let index = entry.key();
        self.epoll.add(&ours, Token::Relay(index).number(), Trigger::Changes)?;
        entry.insert(Relay {
            endpoint,
            link,
            fd: ours,
            pool,
            intake: Intake::default(),
            outbox: VecDeque::new(),
            open: HashMap::new(),
            gathered: HashMap::new(),
            held: None,
            is_ready: false,
            is_orphan: false,
        });
        self.relays.by_key.insert((endpoint, link), index);
        Ok((index, Some([theirs].into_iter().chain(memory).collect())))
    }

    /// Moves signals from and to endpoints, a limited amount for each.
    pub(super) fn serve_relays(&mut self) {
        for _ in 0..self.relays.ready.len() {
            let Some(index) = self.relays.ready.pop_front() else { break };
            let Some(relay) = self.relays.all.get_mut(index) else { continue };
            relay.is_ready = false;
            self.write_relay(index);
            let Some(relay) = self.relays.all.get(index) else { continue };
            if relay.is_orphan {
                if relay.outbox.is_empty() {
                    self.relays.all.remove(index);
                }
                continue;
            }
            self.read_relay(index, AT_A_TIME, true);
        }
    }

    /// Relays signals that an endpoint has sent, up to about `most` bytes; with `bounded`, only as much as their
    /// receivers can take.
    fn read_relay(&mut self, index: usize, mut most: usize, bounded: bool) {
        loop {
            let Some(relay) = self.relays.all.get_mut(index) else { return };
            if let Some(held) = relay.held.take()
                && !self.pass_on(index, held, bounded)
            {
                return;
            }
            let Some(relay) = self.relays.all.get_mut(index) else { return };
            match relay.intake.next(measure, |_, _| None) {
                Ok(Some((head, piece))) => {
                    most = most.saturating_sub(HEADER + piece.len());
                    let header = head.bytes().first_chunk().and_then(Header::decode);
                    match header.map(|header| relay.hold(header, piece)) {
                        Some(Err(why)) => return self.expel(index, why),
                        Some(Ok(())) | None => continue,
                    }
                }
                Ok(None) => {}
                Err(why) => return self.expel(index, why),
            }
            if most == 0 {
                return self.relays.changed(index);
            }
            match relay.intake.fill(|space| receive(&relay.fd, space)) {
                // The endpoint's other connection reports that it is closed.
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Sends a signal or a piece over the link that leads to its receiver; returns false if some of it has to wait, or
    /// if the endpoint will be closed because of it.
    fn pass_on(&mut self, index: usize, held: Held, bounded: bool) -> bool {
        let Held { header, mut rest } = held;
        let Some(relay) = self.relays.all.get(index) else { return false };
        let (endpoint, link) = (relay.endpoint, relay.link);
        let Some(to) = Spid::new(header.to) else {
            self.expel(index, "it sends to an endpoint that never existed");
            return false;
        };
        if header.from != endpoint
            && self.registry.may_send_as(endpoint, header.from, to).is_err()
            && self.registry.get(header.from).is_some()
        {
            self.expel(index, "it sends in the name of another endpoint");
            return false;
        }
        let Route::Link(over, there) = self.registry.route(header.from, to) else { return true };
        if over != link {
            return true;
        }
        let oob = if header.flags & OUT_OF_BAND != 0 { link::OUT_OF_BAND } else { 0 };
        loop {
            if bounded && !self.has_window(over, there) {
                if let Some(relay) = self.relays.all.get_mut(index) {
                    relay.held = Some(Held { header, rest });
                }
                return false;
            }
            let (piece, is_first, after) = match rest {
                Rest::Piece(mut piece) => {
                    let is_first = header.flags & FIRST != 0;
                    if is_first {
                        swap_number(piece.bytes_mut(), u32::from_ne_bytes, u32::to_be_bytes);
                    }
                    (piece, is_first, None)
                }
                Rest::Block(block, at) => {
                    let to = (at + PIECE).min(header.size as usize);
                    let piece = if at == 0 {
                        // A copy, which its program cannot change any more.
                        let mut piece = Body::of(&block[..to]);
                        swap_number(piece.bytes_mut(), u32::from_ne_bytes, u32::to_be_bytes);
                        piece
                    } else {
                        Body::part(&block, at, to)
                    };
                    (piece, at == 0, (to < header.size as usize).then_some((block, to)))
                }
            };
            if is_first && piece[..LEAST_SIGNAL] == [0; LEAST_SIGNAL] {
                self.expel(index, "it sends a signal with the number 0");
                return false;
            }
            let first = if is_first { link::FIRST } else { 0 };
            self.send_piece(over, header.from, there, header.size, oob | first, piece);
            match after {
                Some((block, at)) => rest = Rest::Block(block, at),
                None => return true,
            }
        }
    }

    /// Handles the close of a local endpoint: its signals are sent before the notice of its end.
    pub(super) fn close_relays(&mut self, endpoint: Spid) {
        let of: Vec<usize> = self
            .relays
            .all
            .iter()
            .filter(|(_, relay)| relay.endpoint == endpoint)
            .map(|(index, _)| index)
            .collect();
        for index in of {
            // This is limited by the channel's capacity.
            self.read_relay(index, usize::MAX, false);
            if let Some(relay) = self.relays.all.try_remove(index) {
                self.relays.by_key.remove(&(endpoint, relay.link));
                self.relays.owed.remove(&(relay.link, endpoint));
            }
        }
    }

    /// Queues the notice that the remote endpoint `spid` has ended, behind that endpoint's remaining signals to
    /// `endpoint`. Returns false, and queues nothing, if no such signals remain.
    pub(super) fn tell_behind(&mut self, endpoint: Spid, id: u32, spid: Spid) -> bool {
        let index = self.relays.all.iter().find(|(_, relay)| {
            relay.endpoint == endpoint && relay.outbox.iter().any(|letter| is_from(letter, spid))
        });
        let Some((index, _)) = index else { return false };
        let header = Header { piece: 0, size: 0, from: spid, to: id, flags: GONE };
        self.relays.post(index, header, Body::with_capacity(0));
        true
    }

    /// Closes the endpoint of a misbehaving program.
    fn expel(&mut self, index: usize, why: &str) {
        let Some(relay) = self.relays.all.get(index) else { return };
        let endpoint = relay.endpoint;
        tracing::warn!("closing endpoint {endpoint}: {why}");
        if let Some(relay) = self.relays.all.get_mut(index) {
            relay.intake = Intake::default();
        }
        self.expelled.push(endpoint);
    }
}

fn is_from(letter: &Letter, spid: Spid) -> bool {
    let [bytes, _] = letter.bytes.parts();
    let header = bytes.first_chunk::<HEADER>().and_then(Header::decode);
    header.is_some_and(|header| header.from == spid)
}

/// Returns the lengths of the header and the piece at the beginning of the bytes that an endpoint has sent; `None` if
/// the header is incomplete.
fn measure(bytes: &[u8]) -> Result<Option<(usize, usize)>, &'static str> {
    let Some(head) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let fits =
        |header: &Header| header.piece as usize <= PIECE && header.flags & (GONE | ABANDONED) == 0;
    match Header::decode(head).filter(fits) {
        Some(header) => Ok(Some((HEADER, header.piece as usize))),
        None => Err("its channel contains an invalid header"),
    }
}

/// Receives as many bytes from an endpoint as the space allows.
fn receive(fd: &OwnedFd, space: Space<'_>) -> Result<usize, Errno> {
    match space {
        Space::Behind(to, most) => socket::recv_behind(fd, to, most, true),
        Space::In(place) => socket::recv(fd, place, true),
    }
}

/// Converts a signal's number from one byte order to the other; the payload's byte order is the programs' concern.
fn swap_number(piece: &mut [u8], from: fn([u8; 4]) -> u32, to: fn(u32) -> [u8; 4]) {
    if let Some(number) = piece.first_chunk_mut::<LEAST_SIGNAL>() {
        *number = to(from(*number));
    }
}
