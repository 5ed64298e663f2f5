//! The end of sockets: at once, or after what their programs sent has gone.
//!
//! A send succeeds before its message is in TIPC's window: up to a descriptor and a lane of them wait here. So the end of a connection that a program shuts
//! down or closes is put off until the peer has taken them, and which of the two it was is remembered, whatever becomes of the program meanwhile.

use crossway_sys::epoll::Epoll;
use crossway_sys::socket;
use crossway_tipc_client::protocol::slot::Phase as SharedPhase;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::Service;
use super::local::{Local, Phase};
use super::token::Place;
use super::uplane::Extent;

/// TIPC's code for a connection that was shut down.
const CONN_SHUTDOWN: u8 = 5;

impl Service {
    /// The program has closed a socket, or died, or sent nonsense.
    pub(super) fn hang_up(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.readable = false;
        // What it sent by its lane is sent on like the rest.
        self.take_lane(now, node, epoll, place, Extent::Whole);
        let Some(local) = self.sockets.get_mut(place) else { return };
        // Nobody of good will puts more into it. Who was hung up for what his other lane says may still hold the memory, and would fill this one again for each
        // message that cannot be handed to him.
        let lanes = local.lanes.take();
        local.gone = true;
        let nothing_waits = local.stalled.is_empty();
        self.drop_lanes(epoll, lanes);
        if nothing_waits {
            return self.remove(now, node, epoll, place);
        }
        self.start_linger(now, node, epoll, place);
    }

    /// Keeps a socket whose program is gone, or wants the connection shut down, until what was sent before has gone.
    pub(super) fn start_linger(
        &mut self,
        now: Nanos,
        node: &mut Node,
        epoll: &Epoll,
        place: Place,
    ) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if local.lingers.is_some() {
            return;
        }
        let until = now + self.limits.linger;
        local.lingers = Some(until);
        self.lingers.insert((until, place.index, place.generation));
        // What has come already is not told again.
        self.deliver(now, node, epoll, place);
    }

    /// Some of what a socket lingers for has gone: the rest has as long again.
    pub(super) fn linger_on(&mut self, now: Nanos, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(before) = local.lingers.as_mut() else { return };
        self.lingers.remove(&(*before, place.index, place.generation));
        *before = now + self.limits.linger;
        self.lingers.insert((*before, place.index, place.generation));
    }

    /// There is nothing any more that a socket lingers for.
    pub(super) fn stop_linger(&mut self, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if let Some(until) = local.lingers.take() {
            self.lingers.remove(&(until, place.index, place.generation));
        }
    }

    /// Ends the connection of a socket in good order, after what was sent before.
    pub(super) fn shut_down(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(port) = local.port else { return };
        local.shuts = !local.stalled.is_empty();
        if local.shuts {
            self.tell_shut_down(place);
            return self.start_linger(now, node, epoll, place);
        }
        self.stop_linger(place);
        let _ = node.shutdown(now, port);
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.phase = Phase::Disconnected;
        self.tell_shut_down(place);
        self.deliver(now, node, epoll, place);
    }

    /// Has the program's calls say that its end of the connection is shut down.
    fn tell_shut_down(&self, place: Place) {
        let Some(local) = self.sockets.get(place) else { return };
        // Who is woken by the end looks here why.
        self.set_state(local, SharedPhase::Disconnected, CONN_SHUTDOWN);
        socket::shutdown_send(&local.fd);
    }

    /// Gives up on those of whose data none went for too long. Their peers did not get everything, and are told a reset.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll) {
        while let Some(&(at, index, generation)) = self.lingers.first()
            && at <= now
        {
            self.lingers.pop_first();
            let place = Place { index, generation };
            let Some(local) = self.sockets.get_mut(place) else { continue };
            local.lingers = None;
            local.stalled.clear();
            let shuts = std::mem::take(&mut local.shuts);
            if local.gone || local.ended {
                self.remove(now, node, epoll, place);
            } else if shuts && let Some(port) = local.port {
                local.phase = Phase::Disconnected;
                let _ = node.abort(now, port);
            }
        }
    }

    /// A socket is no more: its peers and senders are told, its slot is free.
    pub(super) fn remove(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(mut local) = self.sockets.remove(place) else { return };
        if let Some(until) = local.lingers {
            self.lingers.remove(&(until, place.index, place.generation));
        }
        self.by_token.remove(&local.token);
        local.note_lane_taken();
        let in_lane = local.take_unread_in_lane();
        self.drop_lanes(epoll, local.lanes.take());
        if let Some(port) = local.port {
            self.by_port.remove(&port);
            let consumed = self.clients.get(local.client).map_or(0, |c| c.consumed(local.slot));
            local.note_consumed(consumed);
            local.unread.extend(in_lane);
            // Whoever gets a message back may ask at once whether somebody else is bound there.
            let _ = node.unbind(now, port, None);
            if local.shuts && local.stalled.is_empty() {
                // The peer gets the end before what is returned, or would take that for a reset.
                let _ = node.shutdown(now, port);
            }
            give_back(now, node, &mut local);
            let _ = node.close(now, port);
        }
        if let Phase::Offered { request, listener } = &local.phase {
            node.refuse_request(now, request);
            self.offer_landed(local.client);
            self.offer_settled(now, node, epoll, (*listener, place));
        }
        self.free_slot(local.client, local.slot);
    }

    pub(super) fn free_slot(&mut self, client: Place, slot: u32) {
        if let Some(owner) = self.clients.get_mut(client) {
            owner.free_slot(slot);
            self.forget_client_if_idle(client);
        }
    }
}

/// Returns what the program has not read to those who want it back. Of a connection the first message stands for all.
fn give_back(now: Nanos, node: &mut Node, local: &mut Local) {
    let unread = std::mem::take(&mut local.unread).into_iter().filter_map(|unread| unread.taken);
    let unsent = std::mem::take(&mut local.out).into_iter().map(|outgoing| outgoing.taken);
    let most = if local.kind.is_connected_kind() { 1 } else { usize::MAX };
    for taken in unread.chain(unsent).filter(|t| t.is_returnable()).take(most) {
        node.give_back(now, &taken);
    }
}
