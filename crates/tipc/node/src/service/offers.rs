//! Connection requests: passed ("offered") to the listening program, which accepts or refuses them.

use crossway_sys::epoll::Epoll;
use crossway_sys::{Errno, fdpass, socket};
use crossway_tipc_client::protocol::control::Opened;
use crossway_tipc_client::protocol::record::{Header, RecordKind};
use crossway_tipc_client::protocol::slot::{self, Phase as SharedPhase, State};
use crossway_tipc_proto::node::ConnectionRequest;

use super::limits::OFFERS_MAX;
use super::local::{Phase, local_range, local_socket, proto_kind};
use super::token::Place;
use super::{Context, Service};

impl Service {
    /// Passes requests of a listening socket to its program, a few at a time.
    pub(super) fn offer(&mut self, cx: &mut Context<'_>, place: Place) {
        while let Some(local) = self.sockets.get(place)
            && let Some(port) = local.port
        {
            let program = self.clients.get(local.client).and_then(|client| client.credentials);
            // A program that leaves requests in one socket's queue must still have room for another socket's.
            let most = if self.shares.is_crowded(program) { 1 } else { OFFERS_MAX };
            if local.offers.len() >= most {
                return;
            }
            if !self.shares.may_be_offered(program) {
                self.starved.insert(place);
                return;
            }
            let Ok(request) = cx.node.take_request(port) else { return };
            if !self.offer_one(cx.epoll, place, &request) {
                cx.node.refuse_request(cx.now, &request);
            }
        }
    }

    /// Creates the new connection's socket and passes its descriptor to the program. Returns false if that is
    /// impossible.
    fn offer_one(&mut self, epoll: &Epoll, listener: Place, request: &ConnectionRequest) -> bool {
        let Some(local) = self.sockets.get(listener) else { return false };
        let (kind, client) = (local.kind, local.client);
        if self.refuses_socket(client).is_some() {
            return false;
        }
        let Some(slot) = self.clients.get_mut(client).and_then(|c| c.take_slot()) else {
            return false;
        };
        let phase = Phase::Offered { request: request.clone(), listener };
        let Ok((theirs, place, token)) = self.make_pair(epoll, kind, (client, slot), phase) else {
            self.free_slot(client, slot);
            return false;
        };
        let peer = local_socket(request.peer);
        if let Some(client) = self.clients.get(client) {
            client.store(slot, slot::PEER, u64::from(peer.port) << 32 | u64::from(peer.node));
            client.set_state(slot, State { phase: SharedPhase::Connected, end: 0 });
        }
        let header = Header {
            kind: RecordKind::Offer,
            error: 0,
            from: peer,
            service: request.service.map(local_range),
            member: None,
            gone: false,
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&Opened { token, slot }.offer());
        let Some(local) = self.sockets.get_mut(listener) else { return false };
        let fds = [std::os::fd::AsFd::as_fd(&theirs)];
        if fdpass::try_send(&local.fd, &bytes, &fds) == Ok(bytes.len()) {
            local.offers.push_back(place);
            let program = self.clients.get(client).and_then(|client| client.credentials);
            self.shares.sent(program, 1);
            return true;
        }
        self.by_token.remove(&token);
        self.sockets.remove(place);
        self.shares.closed(self.program(client), 0);
        self.free_slot(client, slot);
        false
    }

    /// Reads a program's answer to an offer. A byte accepts the request; closing the descriptor refuses it.
    pub(super) fn read_answer(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if !matches!(local.phase, Phase::Offered { .. }) {
            return;
        }
        match socket::recv(&local.fd, &mut [0], true) {
            Err(Errno::AGAIN) => {
                local.readable = false;
                return;
            }
            Ok(1) => {}
            Ok(_) | Err(_) => return self.remove(cx, place),
        }
        // The edge reported for the answer may have been the only one for data after it.
        local.readable = true;
        // A program accepts requests in the order in which they were offered, whichever answer is seen first: of several requests from one port,
        // the first to be accepted gets the connection.
        if let Phase::Offered { listener, .. } = local.phase {
            let offers = self.sockets.get(listener).map(|listener| listener.offers.iter());
            let older: Vec<_> =
                offers.into_iter().flatten().take_while(|o| **o != place).copied().collect();
            for older in older {
                self.read_answer(cx, older);
            }
        }
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Phase::Offered { request, listener } =
            std::mem::replace(&mut local.phase, Phase::Connected)
        else {
            return;
        };
        let client = local.client;
        self.offer_landed(client);
        let Some(local) = self.sockets.get_mut(place) else { return };
        match cx.node.accept_request(cx.now, proto_kind(local.kind), request) {
            Ok(port) => {
                local.port = Some(port);
                self.by_port.insert(port, place);
                self.bound_queue(cx.node, port);
                self.note_local(cx.node, place);
                self.list(place);
                // A request with data: the data is already waiting, and nothing else will announce it.
                self.deliver(cx, place);
            }
            Err(_) => self.remove(cx, place),
        }
        self.offer_settled(cx, (listener, place));
    }

    /// Records that the program has received an offer, so that its descriptor is no longer in flight.
    pub(super) fn offer_landed(&mut self, client: Place) {
        let program = self.clients.get(client).and_then(|client| client.credentials);
        self.shares.released(program, 1);
        self.landed = true;
    }

    /// Offers requests that were held back because too many descriptors were in flight.
    pub(super) fn offer_to_starved(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.landed) {
            return;
        }
        for place in std::mem::take(&mut self.starved) {
            self.offer(cx, place);
        }
    }

    /// Handles the acceptance or refusal of an offer, after which the listening socket may get the next one.
    pub(super) fn offer_settled(
        &mut self,
        cx: &mut Context<'_>,
        (listener, offered): (Place, Place),
    ) {
        if let Some(local) = self.sockets.get_mut(listener) {
            local.offers.retain(|offer| *offer != offered);
            self.offer(cx, listener);
        }
    }
}
