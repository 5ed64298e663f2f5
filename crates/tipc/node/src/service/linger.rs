//! The end of sockets: at once, or after what their programs sent has gone.

use crossway_sys::epoll::Epoll;
use crossway_sys::socket;
use crossway_tipc_client::protocol::slot::Phase as SharedPhase;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::Service;
use super::local::{AfterLinger, Local, Phase};
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
        let nothing_waits = local.stalled.is_empty();
        self.drop_lanes(epoll, lanes);
        if nothing_waits {
            return self.remove(now, node, epoll, place);
        }
        self.start_linger(now, place, AfterLinger::Close);
    }

    pub(super) fn start_linger(&mut self, now: Nanos, place: Place, then: AfterLinger) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let until = local.lingers.map_or(now + self.limits.linger, |(until, _)| until);
        local.lingers = Some((until, then));
        self.lingers.insert((until, place.index, place.generation));
    }

    /// Ends the connection of a socket in good order, after what was sent before.
    pub(super) fn shut_down(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if !local.stalled.is_empty() {
            return self.start_linger(now, place, AfterLinger::Shutdown);
        }
        let Some(port) = local.port else { return };
        let _ = node.shutdown(now, port);
        local.phase = Phase::Disconnected;
        let Some(local) = self.sockets.get(place) else { return };
        // Who is woken by the end looks here why.
        self.set_state(local, SharedPhase::Disconnected, CONN_SHUTDOWN);
        socket::shutdown_send(&local.fd);
        self.deliver(now, node, epoll, place);
    }

    /// What waited has gone: does the shutdown that was put off.
    pub(super) fn linger_more(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some((until, _)) = local.lingers.take() else { return };
        self.lingers.remove(&(until, place.index, place.generation));
        self.shut_down(now, node, epoll, place);
    }

    /// Gives up on those whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll) {
        while let Some(&(at, index, generation)) = self.lingers.first()
            && at <= now
        {
            self.lingers.pop_first();
            let place = Place { index, generation };
            let Some(local) = self.sockets.get_mut(place) else { continue };
            local.stalled.clear();
            match local.lingers.take() {
                Some((_, AfterLinger::Shutdown)) => self.shut_down(now, node, epoll, place),
                _ => self.remove(now, node, epoll, place),
            }
        }
    }

    /// A socket is no more: its peers and senders are told, its slot is free.
    pub(super) fn remove(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(mut local) = self.sockets.remove(place) else { return };
        if let Some((until, _)) = local.lingers {
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
            give_back(now, node, &mut local);
            let _ = node.close(now, port);
        }
        if let Phase::Offered { request, listener } = &local.phase {
            node.refuse_request(now, request);
            self.offer_landed(local.client);
            self.offer_settled(now, node, epoll, *listener);
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
