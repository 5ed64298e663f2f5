//! Answers the requests that programs send on their control connections.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::epoll::Epoll;
use crossway_sys::{Errno, fdpass, socket};
use crossway_tipc_client::protocol::VERSION;
use crossway_tipc_client::protocol::control::{
    Adopted, LEN_MAX, Opened, Request, SocketKind, VERSION_MISMATCH, Welcome, Writer,
};
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::slot::{Phase as SharedPhase, State};
use crossway_tipc_proto::addr::Port;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::socket::SocketError;
use crossway_tipc_proto::time::Nanos;

use super::client::Client;
use super::inquiry::{identity, link_name, report};
use super::local::{Phase, proto_address, proto_kind};
use super::shares::limited_user;
use super::token::Place;
use super::uplane::Extent;
use super::{Context, Service};

/// An answer: data, and the descriptors passed with it.
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

impl Answer {
    /// Sends the answer.
    pub(super) fn send(&self, control: &OwnedFd) -> Result<(), Errno> {
        let fds: Vec<_> = self.fds.iter().map(AsFd::as_fd).collect();
        fdpass::try_send(control, &self.bytes, &fds).map(drop)
    }

    pub(super) fn error(errno: Errno) -> Self {
        Self { bytes: Writer::answer(errno.raw_os_error()).finish(), fds: Vec::new() }
    }

    pub(super) fn done() -> Self {
        Self { bytes: Writer::answer(0).finish(), fds: Vec::new() }
    }

    fn of(outcome: Result<(), Errno>) -> Self {
        match outcome {
            Ok(()) => Self::done(),
            Err(errno) => Self::error(errno),
        }
    }
}

pub(super) fn errno(error: SocketError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

impl Service {
    /// Reads one request of a program and answers it, or closes the connection.
    pub(super) fn serve_client(&mut self, cx: &mut Context<'_>, place: Place) {
        if !self.may_ask(cx.epoll, place) {
            return;
        }
        let Some(control) = self.clients.get(place).and_then(|c| c.control.as_ref()) else {
            return;
        };
        let mut bytes = vec![0; LEN_MAX];
        // They are only meaningful in an adopt request; they are closed in any case.
        let mut fds = Vec::new();
        let len = match fdpass::receive(control, &mut bytes, &mut fds, true) {
            Ok(len) => len,
            Err(Errno::AGAIN) => return,
            Err(_) => 0,
        };
        let Some(request) = Request::decode(&bytes[..len]) else {
            return self.leave(cx.epoll, place);
        };
        let answer = match self.refusal(place, &request) {
            Some(refusal) => Some(Answer::error(refusal.errno())),
            None => match request {
                Request::Administer { order } => return self.take_order(cx.epoll, place, order),
                Request::Adopt => self.adopt(place, &fds),
                Request::Settle => return self.await_settling(cx.epoll, place),
                request => self.answer(cx, place, &request),
            },
        };
        match answer {
            Some(answer) => self.hand_over(cx.epoll, place, &answer),
            None => self.leave(cx.epoll, place),
        }
    }

    /// Answers a request. Returns `None` if it violates the protocol.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        client: Place,
        request: &Request<'_>,
    ) -> Option<Answer> {
        if let Request::Hello { version } = *request {
            return self.greet(cx.node, client, version);
        }
        if !self.clients.get(client)?.is_greeted() {
            return None;
        }
        let token = match *request {
            Request::Hello { .. }
            | Request::Administer { .. }
            | Request::Adopt
            | Request::Settle => return None,
            Request::Traffic => return Some(self.share_traffic()),
            Request::Identity { node: address } => return Some(identity(cx.node, address)),
            Request::LinkName { node: address, bearer } => {
                return Some(link_name(cx.node, address, bearer));
            }
            Request::Open { kind } => {
                return Some(self.open_socket(cx.node, cx.epoll, client, kind));
            }
            Request::Bind { token, .. }
            | Request::UnbindAll { token }
            | Request::Listen { token, .. }
            | Request::Connect { token, .. }
            | Request::Shutdown { token }
            | Request::Report { token }
            | Request::SetOption { token, .. }
            | Request::GetOption { token, .. }
            | Request::Resolve { token, .. }
            | Request::Join { token, .. }
            | Request::Leave { token }
            | Request::Lanes { token }
            | Request::LaneDown { token }
            | Request::Outlet { token } => token,
        };
        let Some(place) = self.by_token.get(&token).copied() else {
            return Some(Answer::error(Errno::BADF));
        };
        // Data that the program sent before the request is processed first, whether or not it has been reported yet.
        if let Some(local) = self.sockets.get_mut(place) {
            local.readable = true;
        }
        self.read_present(cx, place);
        let ends = matches!(request, Request::Shutdown { .. })
            && self.sockets.get(place).is_some_and(|local| !local.shuts);
        let extent = if ends { Extent::Whole } else { Extent::Present };
        self.take_lane(cx, place, extent);
        let Some(port) = self.sockets.get(place).and_then(|local| local.port) else {
            return Some(Answer::error(Errno::BADF));
        };
        let answer = match *request {
            Request::Bind { address, .. } => Answer::of(self.bind(cx, place, &address)),
            Request::UnbindAll { .. } => {
                Answer::of(cx.node.unbind(cx.now, port, None).map_err(errno))
            }
            Request::Listen { pad, .. } => {
                let outcome = cx.node.listen(port).map_err(errno);
                self.settle(cx, place, pad, outcome, Phase::Listening);
                Answer::of(outcome)
            }
            Request::Connect { address, pad, payload, .. } => {
                let outcome = match proto_address(&address) {
                    None => Err(Errno::INVAL),
                    dest => match cx.node.connect(cx.now, port, dest, payload) {
                        Err(SocketError::InProgress) => Ok(()),
                        other => other.map_err(errno),
                    },
                };
                self.settle(cx, place, pad, outcome, Phase::Connecting);
                Answer::error(outcome.err().unwrap_or(Errno::INPROGRESS))
            }
            Request::Shutdown { .. } => {
                self.shut_down(cx, place);
                Answer::done()
            }
            Request::Report { .. } => report(cx.node, port),
            Request::SetOption { name, value, .. } => {
                Answer::of(self.set_option(cx.node, place, port, name, value))
            }
            Request::GetOption { name, .. } => match self.get_option(cx.node, place, port, name) {
                Ok(value) => {
                    Answer { bytes: Writer::answer(0).u32(value).finish(), fds: Vec::new() }
                }
                Err(errno) => Answer::error(errno),
            },
            Request::Resolve { address, .. } => {
                let dest = proto_address(&address);
                Answer::of(cx.node.check_destination_for(port, dest).map_err(errno))
            }
            Request::Join { group, .. } => Answer::of(self.join(cx, place, group)),
            Request::Leave { .. } => Answer::of(cx.node.leave(cx.now, port).map_err(errno)),
            Request::LaneDown { .. } => {
                let begun = self.begin_down_lane(place);
                // Messages for which there was no room in the descriptor may fit into the lane.
                self.deliver(cx, place);
                begun.unwrap_or_else(Answer::error)
            }
            Request::Outlet { .. } => {
                self.grant_outlet(cx.node, place, client).unwrap_or_else(Answer::error)
            }
            Request::Lanes { .. } => {
                self.grant_lanes(cx.epoll, place).unwrap_or_else(Answer::error)
            }
            Request::Hello { .. }
            | Request::Open { .. }
            | Request::Adopt
            | Request::Identity { .. }
            | Request::LinkName { .. }
            | Request::Traffic
            | Request::Settle
            | Request::Administer { .. } => return None,
        };
        self.count_bindings(cx.node, place);
        // The program must see the effects of its own request when it next checks an epoch.
        self.handle_events(cx);
        Some(answer)
    }

    fn greet(&mut self, node: &Node, place: Place, version: u16) -> Option<Answer> {
        let slots = u32::try_from(self.limits.sockets_per_client).unwrap_or(u32::MAX);
        let client = self.clients.get_mut(place)?;
        if version != VERSION {
            let bytes = Writer::answer(VERSION_MISMATCH).u32(VERSION.into()).finish();
            return Some(Answer { bytes, fds: Vec::new() });
        }
        if client.is_greeted() {
            return None;
        }
        let region = client.greet(slots);
        let (Ok(region), Ok(epochs)) = (region, self.epochs_fd.try_clone()) else {
            return Some(Answer::error(Refusal::Descriptors.errno()));
        };
        let node = node.addr().unwrap_or_default().0;
        let bytes = Welcome { version, slots, node, lane_after: self.limits.lane_after }.encode();
        Some(Answer { bytes, fds: vec![region, epochs] })
    }

    /// Answers a program that has got a socket from another program and sends the socket's descriptor to learn the
    /// socket's token. Returns `None` if the program has not sent a hello.
    fn adopt(&mut self, client: Place, fds: &[OwnedFd]) -> Option<Answer> {
        if !self.clients.get(client)?.is_greeted() {
            return None;
        }
        let cookie = fds.first().and_then(|fd| socket::cookie(fd).ok());
        let found = self.sockets.iter_mut().find(|local| Some(local.cookie) == cookie);
        let Some(local) = found else { return Some(Answer::error(Errno::BADF)) };
        let Some((region, slots)) = self.clients.get(local.client).and_then(Client::share_region)
        else {
            return Some(Answer::error(Errno::BADF));
        };
        if local.lanes.is_some() {
            // Not all its data passes through the descriptor.
            return Some(Answer::error(Errno::OPNOTSUPP));
        }
        local.adopted = true;
        let opened = Opened { token: local.token, slot: local.slot };
        let bytes = Adopted { opened, kind: local.kind, slots }.encode();
        Some(Answer { bytes, fds: vec![region] })
    }

    fn open_socket(
        &mut self,
        node: &mut Node,
        epoll: &Epoll,
        client: Place,
        kind: SocketKind,
    ) -> Answer {
        if let Some(why) = self.refuses_socket(client) {
            return Answer::error(why.errno());
        }
        let Some(slot) = self.clients.get_mut(client).and_then(|c| c.take_slot()) else {
            return Answer::error(Errno::MFILE);
        };
        let port = match node.open(proto_kind(kind)) {
            Ok(port) => port,
            Err(error) => {
                self.free_slot(client, slot);
                return Answer::error(errno(error));
            }
        };
        // A socket that was just opened is there.
        let _ = node.set_user(port, limited_user(self.program(client)));
        match self.make_pair(epoll, kind, (client, slot), Phase::Open) {
            Ok((theirs, place, token)) => {
                if let Some(local) = self.sockets.get_mut(place) {
                    local.port = Some(port);
                    // Before it is connected, a program can only send padding.
                    local.holds = kind.is_connected_kind();
                }
                self.by_port.insert(port, place);
                self.bound_queue(node, port);
                Answer { bytes: Opened { token, slot }.encode(), fds: vec![theirs] }
            }
            Err(_) => {
                let _ = node.close(Nanos(0), port);
                self.free_slot(client, slot);
                Answer::error(Errno::NFILE)
            }
        }
    }

    /// Limits a new socket's receive queue to the service's limit.
    pub(super) fn bound_queue(&self, node: &mut Node, port: Port) {
        if let Ok(mut report) = node.socket_report(port) {
            report.options.receive_bytes = self.limits.receive_bytes;
            let _ = node.set_options(port, report.options);
        }
    }

    /// Handles the result of a listen or connect request, before which the program made its descriptor unwritable with
    /// padding. If the request succeeded, the padding stays, otherwise it is removed.
    #[allow(clippy::too_many_arguments)] // three are the machinery that every step takes
    fn settle(
        &mut self,
        cx: &mut Context<'_>,
        place: Place,
        pad: u32,
        outcome: Result<(), Errno>,
        phase: Phase,
    ) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if local.kind == SocketKind::Stream {
            local.pad_owed += pad as usize;
        }
        if outcome.is_ok() {
            let shared = match phase {
                Phase::Listening => SharedPhase::Listening,
                _ => SharedPhase::Connecting,
            };
            (local.phase, local.holds) = (phase, true);
            if let Some(client) = self.clients.get(local.client) {
                client.set_state(local.slot, State { phase: shared, end: 0 });
            }
        } else if pad > 0 {
            (local.holds, local.readable) = (false, true);
            self.read_present(cx, place);
            if let Some(local) = self.sockets.get_mut(place) {
                local.holds = matches!(local.phase, Phase::Open | Phase::Listening);
            }
        }
    }
}
