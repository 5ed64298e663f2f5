//! Closes sockets: immediately, or after the data that their programs have sent.
//!
//! A send succeeds before its message fits into TIPC's window, so as much as a descriptor and a lane can hold may be
//! waiting here. The shutdown or close of a connection is therefore postponed until the peer has received all data. The
//! service remembers whether it was a shutdown or a close, whatever happens to the program in the meantime.

use crossway_sys::socket;
use crossway_tipc_client::protocol::slot::Phase as SharedPhase;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::local::{Local, Phase};
use super::token::Place;
use super::uplane::Extent;
use super::{Context, Service};

/// TIPC's error code for a connection that was shut down.
const CONN_SHUTDOWN: u8 = 5;

impl Service {
    /// Handles a program that has closed a socket, died, or violated the protocol.
    pub(super) fn hang_up(&mut self, cx: &mut Context<'_>, place: Place) {
        self.end_producer(cx, place);
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.readable = false;
        // Data in its lane is sent like the rest.
        self.take_lane(cx, place, Extent::Whole);
        let Some(local) = self.sockets.get_mut(place) else { return };
        // A well-behaved program adds no more. One that was disconnected because of invalid data in its other lane may still have the memory mapped,
        // and could refill this lane for each message that cannot be delivered to it.
        let lanes = local.lanes.take();
        local.gone = true;
        let nothing_waits = local.stalled.is_empty();
        self.drop_lanes(cx.epoll, lanes);
        if nothing_waits {
            return self.remove(cx, place);
        }
        self.start_linger(cx, place);
    }

    /// Keeps a socket whose program no longer exists, or wants to shut the connection down, until all data has been
    /// sent or the time limit has passed.
    pub(super) fn start_linger(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if local.lingers.is_some() {
            return;
        }
        let until = cx.now + self.limits.linger;
        local.lingers = Some(until);
        self.lingers.insert((until, place.index, place.generation));
        self.stop_producer(place);
        // Messages that have already arrived are not announced again.
        self.deliver(cx, place);
    }

    /// Restarts the time limit of a lingering socket after some of its data has been sent.
    pub(super) fn linger_on(&mut self, now: Nanos, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(before) = local.lingers.as_mut() else { return };
        self.lingers.remove(&(*before, place.index, place.generation));
        *before = now + self.limits.linger;
        self.lingers.insert((*before, place.index, place.generation));
    }

    /// Ends the lingering of a socket that has nothing left to send.
    pub(super) fn stop_linger(&mut self, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if let Some(until) = local.lingers.take() {
            self.lingers.remove(&(until, place.index, place.generation));
        }
    }

    /// Shuts a socket's connection down after all data sent before.
    pub(super) fn shut_down(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(port) = local.port else { return };
        local.shuts = !local.stalled.is_empty();
        if local.shuts {
            self.tell_shut_down(place);
            return self.start_linger(cx, place);
        }
        self.stop_linger(place);
        let _ = cx.node.shutdown(cx.now, port);
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.phase = Phase::Disconnected;
        self.tell_shut_down(place);
        self.deliver(cx, place);
    }

    /// Sets the shared state so that the program's calls report a shutdown.
    fn tell_shut_down(&self, place: Place) {
        let Some(local) = self.sockets.get(place) else { return };
        // A program woken by the end looks here for the reason.
        self.set_state(local, SharedPhase::Disconnected, CONN_SHUTDOWN);
        socket::shutdown_send(&local.fd);
    }

    /// Checks the direct lanes that are due, and gives up on lingering sockets that have not been able to send anything
    /// for too long. Their peers did not receive all data, and get a reset.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.retry_rings(cx);
        while let Some(&(at, index, generation)) = self.lingers.first()
            && at <= cx.now
        {
            self.lingers.pop_first();
            let place = Place { index, generation };
            let Some(local) = self.sockets.get_mut(place) else { continue };
            local.lingers = None;
            local.stalled.clear();
            let shuts = std::mem::take(&mut local.shuts);
            if local.gone || local.ended {
                self.remove(cx, place);
            } else if shuts && let Some(port) = local.port {
                local.phase = Phase::Disconnected;
                let _ = cx.node.abort(cx.now, port);
            }
        }
    }

    /// Removes a socket: its peers and the senders of unread messages are notified, and its slot is freed.
    pub(super) fn remove(&mut self, cx: &mut Context<'_>, place: Place) {
        self.end_producer(cx, place);
        let Some(mut local) = self.sockets.remove(place) else { return };
        Self::end_descriptor(cx.epoll, &local);
        if let Some(until) = local.lingers {
            self.lingers.remove(&(until, place.index, place.generation));
        }
        self.by_token.remove(&local.token);
        self.shares.closed(self.program(local.client), local.bindings);
        local.note_lane_taken();
        let in_lane = local.take_unread_in_lane();
        self.drop_lanes(cx.epoll, local.lanes.take());
        if let Some(port) = local.port {
            self.by_port.remove(&port);
            let consumed = self.clients.get(local.client).map_or(0, |c| c.consumed(local.slot));
            local.note_consumed(consumed);
            local.unread.extend(in_lane);
            self.take_unread_direct(cx.now, cx.node, &mut local);
            // A sender that gets its message back may immediately check whether another socket is bound there.
            let _ = cx.node.unbind(cx.now, port, None);
            if local.shuts && local.stalled.is_empty() {
                // The peer must get the end before returned messages, or would take those for a reset.
                let _ = cx.node.shutdown(cx.now, port);
            }
            give_back(cx.now, cx.node, &mut local);
            let _ = cx.node.close(cx.now, port);
        }
        if let Phase::Offered { request, listener } = &local.phase {
            cx.node.refuse_request(cx.now, request);
            self.offer_landed(local.client);
            self.offer_settled(cx, (*listener, place));
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

/// Returns unread messages to the senders that want them. For a connection, only the first one.
fn give_back(now: Nanos, node: &mut Node, local: &mut Local) {
    let unread = std::mem::take(&mut local.unread).into_iter().filter_map(|unread| unread.taken);
    let unsent = std::mem::take(&mut local.out).into_iter().map(|outgoing| outgoing.taken);
    let most = if local.kind.is_connected_kind() { 1 } else { usize::MAX };
    for taken in unread.chain(unsent).filter(|t| t.is_returnable()).take(most) {
        node.give_back(now, &taken);
    }
}
