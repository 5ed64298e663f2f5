//! Signals that arrive over a link: delivered to an endpoint of this node, or relayed to another link.
//!
//! The pieces of a large signal are collected in a block of the pool that the node shares with the endpoint; they are
//! read from the connection directly into that block. Other pieces are sent over the endpoint's channel.

use std::sync::{Arc, Mutex, PoisonError};

use crossway_ring::pool::Block;
use crossway_sys::{Errno, socket};

use super::{Letter, Relay, Relays, swap_number};
use crate::Spid;
use crate::channel::frame::{FIRST, Header, OUT_OF_BAND};
use crate::limits::{LARGEST_SIGNAL, LEAST_SIGNAL, PIECE, SHARED_FROM};
use crate::node::Node;
use crate::registry::{EntryKind, LinkId, Registry};
use crate::wire::body::{Body, Landing, Slot};
use crate::wire::link::{self, Frame, Message};

/// A signal for an endpoint while the signal's pieces are collected in a block.
pub(super) struct Gathering {
    slot: Slot,
    size: usize,
    /// Number of bytes that have arrived.
    have: usize,
}

impl Relay {
    /// Starts to collect the pieces of a signal in a block, if it is large and there is room.
    fn gather(&mut self, sender: Spid, size: usize) {
        if size >= SHARED_FROM
            && let Some(pool) = &self.pool
            && let Some(block) = pool.alloc(size + 1)
        {
            let slot = Arc::new(Mutex::new(Some(block)));
            self.gathered.insert(sender, Gathering { slot, size, have: 0 });
        }
    }
}

impl Relays {
    pub(super) fn post(&mut self, index: usize, header: Header, piece: Body) {
        let payload = piece.len() as u32;
        let bytes = piece.behind(&header.encode());
        debug_assert!(bytes.parts()[1].is_empty());
        self.all[index].outbox.push_back(Letter { bytes, at: 0, payload });
        self.changed(index);
    }

    fn post_reference(&mut self, index: usize, header: Header, block: Block) {
        let bytes = Body::of(&block.reference().encode()).behind(&header.encode());
        block.lend();
        self.all[index].outbox.push_back(Letter { bytes, at: 0, payload: 0 });
        self.changed(index);
    }

    /// Returns the place into which a piece must be read from a link: in the block of the piece's signal. `None` for
    /// the first piece, or if the signal has no block or the piece does not fit. The rest is checked when the piece is
    /// complete.
    pub(in crate::node) fn land(
        &self,
        registry: &Registry,
        link: LinkId,
        head: &[u8],
        len: usize,
    ) -> Option<Landing> {
        let (from, to, size, flags) = Frame::data_head(head)?;
        // The node reads the number of a signal in the first piece, where no program can change it meanwhile.
        if flags & link::FIRST != 0 {
            return None;
        }
        let relay = self.all.get(*self.by_key.get(&(to, link))?)?;
        let gathering = relay.gathered.get(&registry.remote(link, from)?)?;
        let fits = gathering.have + len <= gathering.size && size as usize == gathering.size;
        fits.then(|| Landing::begin(&gathering.slot, gathering.have, len))?
    }
}

impl Node {
    /// Handles a piece that has arrived over a link; returns false if no correct peer would send it.
    pub(in crate::node) fn handle_data(&mut self, link: LinkId, message: Message) -> bool {
        let Message::Data { from, to, size, flags, piece } = message else { return false };
        let first = flags & link::FIRST != 0;
        let fits = (LEAST_SIGNAL..=LARGEST_SIGNAL).contains(&(size as usize))
            && (1..=PIECE.min(size as usize)).contains(&piece.len())
            && (!first || piece.len() >= LEAST_SIGNAL);
        let Some(sender) = self.registry.remote(link, from).filter(|_| fits) else { return false };
        match self.registry.get(to).map(|entry| entry.kind) {
            Some(EntryKind::Local { .. }) => self.deliver(link, sender, to, size, flags, piece),
            Some(EntryKind::Remote { link: over, spid: there }) => {
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
            Ok((index, fds)) => {
                if fds.is_some() {
                    self.tell_of_relay(to, link, None, fds);
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
        let relay = &mut self.relays.all[index];
        if first {
            relay.gather(sender, size as usize);
        }
        if relay.gathered.contains_key(&sender) {
            return self.collect(index, sender, piece, oob != 0);
        }
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

    /// Adds a piece to its signal's block, and passes the block to the endpoint when the signal is complete. The peer
    /// gets credit for the piece immediately, whether or not the endpoint receives: the piece occupies only the
    /// endpoint's pool. Returns false if no correct peer would send the piece.
    fn collect(&mut self, index: usize, sender: Spid, piece: Body, out_of_band: bool) -> bool {
        let relay = &mut self.relays.all[index];
        let Some(gathering) = relay.gathered.get_mut(&sender) else { return false };
        let (len, size) = (piece.len(), gathering.size);
        if !piece.has_landed() {
            let mut place = gathering.slot.lock().unwrap_or_else(PoisonError::into_inner);
            let room = place.as_mut().and_then(|block| block.get_mut(gathering.have..));
            let Some(room) = room.and_then(|room| room.get_mut(..len)) else { return false };
            room.copy_from_slice(&piece);
        }
        // The block is back in its slot.
        drop(piece);
        gathering.have += len;
        let (link, endpoint) = (relay.link, relay.endpoint);
        if gathering.have == size
            && let Some(gathering) = relay.gathered.remove(&sender)
        {
            let block = gathering.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(block) = block else { return false };
            let header = Header::of_reference(size, sender, endpoint, out_of_band);
            self.relays.post_reference(index, header, block);
            self.write_relay(index);
        }
        self.owe(link, endpoint, len as u32);
        true
    }

    /// Writes as much as an endpoint has room for, and gives the link's peer credit for the signals written.
    pub(super) fn write_relay(&mut self, index: usize) {
        let Some(relay) = self.relays.all.get_mut(index) else { return };
        let (endpoint, link) = (relay.endpoint, relay.link);
        let mut taken = 0;
        while let Some(letter) = relay.outbox.front_mut() {
            // What is sent to an endpoint is in one buffer.
            let [bytes, _] = letter.bytes.parts();
            match socket::send(&relay.fd, &bytes[letter.at..], true) {
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
}
