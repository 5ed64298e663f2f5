//! Flow control between nodes: limits the bytes in flight to each endpoint of the next node, and holds signals back
//! until there is room.

use crate::Spid;
use crate::limits::WINDOW;
use crate::node::Node;
use crate::registry::{LinkId, Route};
use crate::wire::body::Body;
use crate::wire::link::Message;

impl Node {
    pub(super) fn has_window(&self, link: LinkId, there: Spid) -> bool {
        let in_flight = self.relays.in_flight.get(&(link, there)).copied().unwrap_or(0);
        in_flight < WINDOW && !self.is_link_full(link)
    }

    pub(super) fn send_piece(
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

    /// Handles credit from a link's peer, which has delivered bytes to one of its endpoints.
    pub(in crate::node) fn handle_credit(&mut self, link: LinkId, to: Spid, bytes: u32) {
        if let Some(in_flight) = self.relays.in_flight.get_mut(&(link, to)) {
            *in_flight = in_flight.saturating_sub(bytes as usize);
        }
        self.relays.retry(link);
        self.move_transit(link, to);
    }

    /// Continues sending after the session with a link's peer has room again.
    pub(in crate::node) fn link_has_room(&mut self, link: LinkId) {
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
    pub(super) fn move_transit(&mut self, over: LinkId, there: Spid) {
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
    pub(in crate::node) fn forget_receiver(&mut self, link: LinkId, there: Spid) {
        self.relays.in_flight.remove(&(link, there));
        self.relays.transit.remove(&(link, there));
        self.relays.retry(link);
    }

    /// Adds to the credit that a link's peer is owed for an endpoint, and sends it once it is a quarter of the window.
    pub(super) fn owe(&mut self, link: LinkId, to: Spid, bytes: u32) {
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
}
