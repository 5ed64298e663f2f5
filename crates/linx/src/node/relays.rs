//! Relays signals between an endpoint of this node and a link, or from one link to another.
//!
//! An endpoint has one channel to its node for each link that it sends to or receives from. Limits: a node has at most
//! [`WINDOW`] bytes (and a piece) in flight to any endpoint of the next node until that node has delivered them. The channel
//! of an endpoint that sends more is not read.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use crossway_sys::epoll::Report as When;
use crossway_sys::{Errno, OsError, socket};
use slab::Slab;

use super::intake::Intake;
use super::{Node, Token, channels};
use crate::Spid;
use crate::channel::frame::{ABANDONED, BY_REFERENCE, FIRST, GONE, HEADER, Header, OUT_OF_BAND};
use crate::limits::{LARGEST_SIGNAL, LEAST_SIGNAL, PIECE, WINDOW};
use crate::registry::{Kind, LinkId, Route};
use crate::wire::body::Body;
use crate::wire::body::Framed;
use crate::wire::link::{self, Message};

/// Number of bytes read from an endpoint before others have their turn.
const AT_A_TIME: usize = 4 * PIECE;

/// Something for an endpoint, in its encoded form.
struct Letter {
    bytes: Framed,
    at: usize,
    /// Number of bytes of a signal in it.
    payload: u32,
}

/// The channel of an endpoint for a link.
struct Relay {
    endpoint: Spid,
    link: LinkId,
    fd: OwnedFd,
    intake: Intake,
    outbox: VecDeque<Letter>,
    /// The senders of signals that were partially written or are about to be, and the number of missing bytes.
    open: HashMap<Spid, u32>,
    /// A piece that waits until the peer has delivered others.
    held: Option<(Header, Body)>,
    is_ready: bool,
    /// The link is down: only the rest of the outbox is still sent.
    is_orphan: bool,
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

    /// Called when the system reports a change of a channel.
    pub(super) fn changed(&mut self, index: usize) {
        if let Some(relay) = self.all.get_mut(index)
            && !std::mem::replace(&mut relay.is_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    fn post(&mut self, index: usize, header: Header, piece: Body) {
        let payload = piece.len() as u32;
        let bytes = piece.behind(&header.encode());
        self.all[index].outbox.push_back(Letter { bytes, at: 0, payload });
        self.changed(index);
    }

    /// Handles the end of an endpoint beyond a link: incomplete signals from it will not be completed.
    pub(super) fn abandon(&mut self, from: Spid) {
        let of: Vec<usize> =
            self.all.iter().filter(|(_, r)| r.open.contains_key(&from)).map(|(i, _)| i).collect();
        for index in of {
            self.all[index].open.remove(&from);
            let header = Header { piece: 0, size: 0, from, to: 0, flags: ABANDONED };
            self.post(index, header, Body::with_capacity(0));
        }
    }

    /// Retries everything that waits for a link's peer.
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
    /// The channel of an endpoint for a link, created if there is none; the returned descriptor is the endpoint's.
    pub(super) fn relay_for(
        &mut self,
        endpoint: Spid,
        link: LinkId,
    ) -> Result<(usize, Option<OwnedFd>), OsError> {
        if let Some(index) = self.relays.by_key.get(&(endpoint, link)) {
            return Ok((*index, None));
        }
        let (ours, theirs) = channels::stream_pair(Some(self.settings.channel_bytes))?;
        socket::set_nonblocking(&ours)?;
        let entry = self.relays.all.vacant_entry();
        let index = entry.key();
        self.epoll.add(&ours, Token::Relay(index).number(), When::Changes)?;
        entry.insert(Relay {
            endpoint,
            link,
            fd: ours,
            intake: Intake::default(),
            outbox: VecDeque::new(),
            open: HashMap::new(),
            held: None,
            is_ready: false,
            is_orphan: false,
        });
        self.relays.by_key.insert((endpoint, link), index);
        Ok((index, Some(theirs)))
    }

    /// Moves signals from and to endpoints, some of each.
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

    /// Relays what an endpoint has sent. `bounded`: only as much as its receivers can take.
    fn read_relay(&mut self, index: usize, mut most: usize, bounded: bool) {
        loop {
            let Some(relay) = self.relays.all.get_mut(index) else { return };
            if let Some((header, piece)) = relay.held.take()
                && !self.pass_on(index, header, piece, bounded)
            {
                return;
            }
            let Some(relay) = self.relays.all.get_mut(index) else { return };
            match relay.intake.next(measure) {
                Ok(Some((head, piece))) => {
                    most = most.saturating_sub(HEADER + piece.len());
                    let header = head.bytes().first_chunk().and_then(Header::decode);
                    relay.held = header.map(|header| (header, piece));
                    continue;
                }
                Ok(None) => {}
                Err(why) => return self.expel(index, why),
            }
            if most == 0 {
                return self.relays.changed(index);
            }
            match relay.intake.fill(|to, most| socket::recv_behind(&relay.fd, to, most, true)) {
                // The endpoint's other connection reports that it is closed.
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Sends a piece over the link of its receiver; returns false if it has to wait.
    fn pass_on(&mut self, index: usize, header: Header, mut piece: Body, bounded: bool) -> bool {
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
        if bounded && !self.has_window(over, there) {
            if let Some(relay) = self.relays.all.get_mut(index) {
                relay.held = Some((header, piece));
            }
            return false;
        }
        if header.flags & FIRST != 0 {
            swap_number(piece.bytes_mut(), u32::from_ne_bytes, u32::to_be_bytes);
        }
        let oob = header.flags & OUT_OF_BAND != 0;
        let flags = if header.flags & FIRST != 0 { link::FIRST } else { 0 }
            | if oob { link::OUT_OF_BAND } else { 0 };
        self.send_piece(over, header.from, there, header.size, flags, piece);
        true
    }

    fn has_window(&self, link: LinkId, there: Spid) -> bool {
        let in_flight = self.relays.in_flight.get(&(link, there)).copied().unwrap_or(0);
        in_flight < WINDOW && !self.is_link_full(link)
    }

    fn send_piece(
        &mut self,
        link: LinkId,
        from: Spid,
        there: Spid,
        size: u32,
        flags: u8,
        piece: Body,
    ) {
        // The peer must know the sender first.
        self.work_off_links();
        *self.relays.in_flight.entry((link, there)).or_default() += piece.len();
        self.say(link, Message::Data { from, to: there, size, flags, piece });
    }

    /// Handles a piece that has arrived over a link; returns false if no correct peer would send it.
    pub(super) fn handle_data(&mut self, link: LinkId, message: Message) -> bool {
        let Message::Data { from, to, size, flags, piece } = message else { return false };
        let first = flags & link::FIRST != 0;
        let fits = (LEAST_SIGNAL..=LARGEST_SIGNAL).contains(&(size as usize))
            && (1..=PIECE.min(size as usize)).contains(&piece.len())
            && (!first || piece.len() >= LEAST_SIGNAL);
        let Some(sender) = self.registry.remote(link, from).filter(|_| fits) else { return false };
        match self.registry.get(to).map(|entry| entry.kind) {
            Some(Kind::Local { .. }) => self.deliver(link, sender, to, size, flags, piece),
            Some(Kind::Remote { link: over, spid: there }) => {
                let queue = self.relays.transit.entry((over, there)).or_default();
                let onward = Message::Data { from: sender, to, size, flags, piece };
                queue.push_back((link, onward));
                self.move_transit(over, there);
                true
            }
            // The receiver has ended, and the peer is being informed.
            _ => self.registry.standing(to) == crate::spid::Standing::Dead,
        }
    }

    fn deliver(
        &mut self,
        link: LinkId,
        sender: Spid,
        to: Spid,
        size: u32,
        flags: u8,
        mut piece: Body,
    ) -> bool {
        let index = match self.relay_for(to, link) {
            Ok((index, fd)) => {
                if let Some(fd) = fd {
                    self.tell_of_relay(to, link, None, Some(fd));
                }
                index
            }
            Err(error) => {
                tracing::warn!("a signal for {to} is lost: cannot create a channel: {error}");
                return true;
            }
        };
        let first = flags & link::FIRST != 0;
        let open = &mut self.relays.all[index].open;
        let left = if first { size } else { open.get(&sender).copied().unwrap_or(0) };
        if piece.len() as u32 > left || (first && open.contains_key(&sender)) {
            return false;
        }
        match left - piece.len() as u32 {
            0 => open.remove(&sender),
            left => open.insert(sender, left),
        };
        if first {
            swap_number(piece.bytes_mut(), u32::from_be_bytes, u32::to_ne_bytes);
            if piece[..LEAST_SIGNAL] == [0; LEAST_SIGNAL] {
                return false;
            }
        }
        let oob = if flags & link::OUT_OF_BAND != 0 { OUT_OF_BAND } else { 0 };
        let header = Header {
            piece: piece.len() as u32,
            size,
            from: sender,
            to: to.get(),
            flags: oob | if first { FIRST } else { 0 },
        };
        self.relays.post(index, header, piece);
        self.write_relay(index);
        true
    }

    /// Writes what an endpoint has room for, and gives its senders credit for that.
    fn write_relay(&mut self, index: usize) {
        let Some(relay) = self.relays.all.get_mut(index) else { return };
        let (endpoint, link) = (relay.endpoint, relay.link);
        let mut taken = 0;
        while let Some(letter) = relay.outbox.front_mut() {
            match socket::send(&relay.fd, &letter.bytes[letter.at..], true) {
                Ok(n) => letter.at += n,
                Err(Errno::AGAIN) => break,
                // Its endpoint is closed, and this channel will be, too.
                Err(_) => {
                    relay.outbox.clear();
                    break;
                }
            }
            if letter.at == letter.bytes.len() {
                taken += letter.payload;
                relay.outbox.pop_front();
            }
        }
        self.owe(link, endpoint, taken);
    }

    /// Gives a link's peer credit to send more bytes to an endpoint.
    fn owe(&mut self, link: LinkId, to: Spid, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let owed = self.relays.owed.entry((link, to)).or_default();
        *owed += bytes;
        if *owed as usize >= WINDOW / 4 {
            let bytes = std::mem::take(owed);
            self.say(link, Message::Credit { to, bytes });
        }
    }

    /// Handles credit from a link's peer, which has delivered bytes to one of its endpoints.
    pub(super) fn handle_credit(&mut self, link: LinkId, to: Spid, bytes: u32) {
        if let Some(in_flight) = self.relays.in_flight.get_mut(&(link, to)) {
            *in_flight = in_flight.saturating_sub(bytes as usize);
        }
        self.relays.retry(link);
        self.move_transit(link, to);
    }

    /// Called when the session with a link's peer has room again.
    pub(super) fn link_has_room(&mut self, link: LinkId) {
        self.relays.retry(link);
        let to: Vec<Spid> = self
            .relays
            .transit
            .keys()
            .filter(|(over, _)| *over == link)
            .map(|(_, to)| *to)
            .collect();
        for to in to {
            self.move_transit(link, to);
        }
    }

    /// Relays pieces from one link to another.
    fn move_transit(&mut self, over: LinkId, there: Spid) {
        while self.has_window(over, there) {
            let Some(queue) = self.relays.transit.get_mut(&(over, there)) else { return };
            let Some((came_by, message)) = queue.pop_front() else {
                self.relays.transit.remove(&(over, there));
                return;
            };
            let Message::Data { from, to, size, flags, piece } = message else { continue };
            let bytes = piece.len() as u32;
            if self.registry.route(from, to) == Route::Link(over, there) {
                self.send_piece(over, from, there, size, flags, piece);
            }
            self.owe(came_by, to, bytes);
        }
    }

    /// Handles the end of an endpoint beyond a link: nothing more is sent to it.
    pub(super) fn forget_receiver(&mut self, link: LinkId, there: Spid) {
        self.relays.in_flight.remove(&(link, there));
        self.relays.transit.remove(&(link, there));
        self.relays.retry(link);
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

    /// Queues the notice that a remote endpoint has ended after its remaining signals. Returns false if none remain.
    pub(super) fn tell_behind(&mut self, who: Spid, id: u32, spid: Spid) -> bool {
        let index = self.relays.all.iter().find(|(_, relay)| {
            relay.endpoint == who && relay.outbox.iter().any(|letter| is_from(letter, spid))
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
        tracing::warn!("the endpoint {endpoint} is closed: {why}");
        if let Some(relay) = self.relays.all.get_mut(index) {
            relay.intake = Intake::default();
        }
        self.expelled.push(endpoint);
    }
}

fn is_from(letter: &Letter, spid: Spid) -> bool {
    let header = letter.bytes.first_chunk::<HEADER>().and_then(Header::decode);
    header.is_some_and(|header| header.from == spid)
}

/// The lengths of the header and the piece at the beginning of what an endpoint has sent.
fn measure(bytes: &[u8]) -> Result<Option<(usize, usize)>, &'static str> {
    let Some(head) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let fits = |header: &Header| {
        header.piece as usize <= PIECE && header.flags & (GONE | ABANDONED | BY_REFERENCE) == 0
    };
    match Header::decode(head).filter(fits) {
        Some(header) => Ok(Some((HEADER, header.piece as usize))),
        None => Err("its channel contains an invalid header"),
    }
}

/// Converts a signal's number from one byte order to the other; the payload is left to the programs.
fn swap_number(piece: &mut [u8], from: fn([u8; 4]) -> u32, to: fn(u32) -> [u8; 4]) {
    if let Some(number) = piece.first_chunk_mut::<LEAST_SIGNAL>() {
        *number = to(from(*number));
    }
}
