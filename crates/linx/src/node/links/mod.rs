//! Links to other nodes: their connections, and the messages that travel over them.

mod cluster;
mod handshake;
mod line;
mod listeners;
mod supervision;
mod wires;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crossway_sys::epoll::Trigger;
use crossway_sys::{OsError, random};
use slab::Slab;

use super::{Node, Token};
use crate::node::intake::Intake;
use crate::registry::{LinkId, Output};
use crate::session::Session;
use crate::trace::record::Way;
use crate::wire::body::Framed;
use crate::wire::link::{Frame, Message};
use cluster::Cluster;
use line::Line;
pub use line::LinkAddress;
use listeners::ListenAddress;

/// The configuration of a link that this node dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// The name of the link at this node, with the same rules as names of endpoints.
    pub name: String,
    /// The addresses at which the other node listens. The first is used; if it fails, the next one replaces it
    /// without loss.
    pub addresses: Vec<LinkAddress>,
}

/// Maximum number of links of a node; more are refused.
const LINKS: usize = 1024;

/// A connection of a link.
struct Wire {
    line: Line,
    /// The link that the connection belongs to; `None` until that is known.
    peer: Option<usize>,
    dialled: bool,
    /// Whether the connection is still being established.
    is_connecting: bool,
    /// Whether both ends have introduced themselves.
    is_greeted: bool,
    intake: Intake,
    outbox: VecDeque<Arc<Framed>>,
    /// Number of bytes of the first frame in the outbox that are already written.
    written: usize,
    heard: Instant,
    is_ready: bool,
    /// Whether there is room to write, as far as the node knows.
    is_writable: bool,
    /// Number of messages sent when the peer was last asked to acknowledge everything.
    asked_after: u64,
}

/// A link, up or not.
struct Peer {
    name: String,
    /// Whether the cluster's topology service has reported the link's other node. In that case, the link gets its name
    /// when that node introduces itself.
    is_found: bool,
    /// The addresses to dial; empty if the other node dials.
    addresses: Vec<LinkAddress>,
    next: usize,
    session: Session,
    wire: Option<usize>,
    /// The link's id while it is up.
    id: Option<LinkId>,
    /// When the link will go down because it has no connection; `None` while it has one or is down.
    down_at: Option<Instant>,
    dial_at: Option<Instant>,
    /// The last failure that was logged, so that the same failure is not logged twice in a row.
    told: String,
}

impl Peer {
    fn new(name: String, addresses: Vec<LinkAddress>, session: u64) -> Peer {
        let dials = !addresses.is_empty();
        Peer {
            name,
            is_found: false,
            addresses,
            next: 0,
            session: Session::new(session),
            wire: None,
            id: None,
            down_at: None,
            dial_at: dials.then(Instant::now),
            told: String::new(),
        }
    }

    /// Creates the link to a node that the topology service has reported.
    fn found(address: LinkAddress) -> Result<Peer, OsError> {
        let unnamed = Peer::new(address.to_string(), vec![address], chance()?);
        Ok(Peer { is_found: true, ..unnamed })
    }
}

#[derive(Default)]
pub(super) struct Links {
    cluster: Option<Cluster>,
    listeners: Vec<ListenAddress>,
    wires: Slab<Wire>,
    peers: Slab<Peer>,
    ready: VecDeque<usize>,
    last_id: u64,
    tick_at: Option<Instant>,
}

fn chance() -> Result<u64, OsError> {
    random::unguessable()
}

impl Links {
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.cluster.as_ref().is_some_and(Cluster::has_work)
    }

    pub(super) fn next_instant(&self) -> Option<Instant> {
        let dials = self.peers.iter().flat_map(|(_, peer)| [peer.dial_at, peer.down_at]);
        let asks = self.cluster.as_ref().and_then(Cluster::next_instant);
        let opens = self.listeners.iter().map(ListenAddress::next_instant);
        dials.chain(opens).chain([self.tick_at, asks]).flatten().min()
    }

    /// Notes that the system reported a change of the subscription to the cluster's nodes.
    pub(super) fn cluster_changed(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.changed();
        }
    }

    /// Notes that the system reported a connection as ready: for reading, and with `writable` also for writing.
    pub(super) fn changed(&mut self, index: usize, writable: bool) {
        if let Some(wire) = self.wires.get_mut(index) {
            wire.is_writable |= writable;
            if !std::mem::replace(&mut wire.is_ready, true) {
                self.ready.push_back(index);
            }
        }
    }

    fn by_id(&mut self, id: LinkId) -> Option<&mut Peer> {
        self.peers.iter_mut().map(|(_, peer)| peer).find(|peer| peer.id == Some(id))
    }

    /// Returns the link that a connection carries; `None` if it is not known yet or not up.
    fn link_of(&self, wire: usize) -> Option<LinkId> {
        self.peers.get(self.wires.get(wire)?.peer?)?.id
    }

    fn post(&mut self, wire: usize, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.post_bytes(wire, Arc::new(bytes.into()));
    }

    fn post_bytes(&mut self, wire: usize, bytes: Arc<Framed>) {
        if let Some(to) = self.wires.get_mut(wire) {
            to.outbox.push_back(bytes);
            self.changed(wire, false);
        }
    }
}

impl Node {
    fn add_wire(&mut self, line: Line, peer: Option<usize>) -> Result<usize, OsError> {
        line.prepare()?;
        let entry = self.links.wires.vacant_entry();
        let index = entry.key();
        self.epoll.add(&line, Token::Wire(index).number(), Trigger::Changes)?;
        entry.insert(Wire {
            line,
            peer,
            dialled: peer.is_some(),
            is_connecting: peer.is_some(),
            is_greeted: false,
            intake: Intake::default(),
            outbox: VecDeque::new(),
            written: 0,
            heard: Instant::now(),
            is_ready: false,
            is_writable: false,
            asked_after: 0,
        });
        self.links.changed(index, false);
        Ok(index)
    }

    /// Reads from and writes to connections, a limited amount for each connection.
    pub(super) fn serve_wires(&mut self) {
        for _ in 0..self.links.ready.len() {
            let Some(index) = self.links.ready.pop_front() else { break };
            let Some(wire) = self.links.wires.get_mut(index) else { continue };
            wire.is_ready = false;
            if wire.is_connecting {
                match wire.line.take_error() {
                    Ok(None) if wire.is_writable => {
                        wire.is_connecting = false;
                        self.introduce(index);
                    }
                    Ok(None) => continue,
                    Ok(Some(errno)) | Err(errno) => {
                        let error = std::io::Error::from(errno).to_string();
                        self.drop_wire(index, &error);
                        continue;
                    }
                }
            }
            if let Err(why) = self.read_wire(index).and_then(|()| self.write_wire(index)) {
                self.drop_wire(index, &why);
            }
            self.work_off();
        }
    }

    fn handle_link_message(&mut self, id: LinkId, message: Message) -> Result<(), String> {
        self.trace_link(Way::Received, id, &message);
        let correct = match message {
            Message::Data { .. } => self.handle_data(id, message),
            Message::Credit { to, bytes } => {
                self.handle_credit(id, to, bytes);
                true
            }
            message => {
                if let Message::Unpublish { spid } = message {
                    if let Some(own) = self.registry.remote(id, spid) {
                        self.relays.abandon(own);
                    }
                    self.forget_receiver(id, spid);
                }
                self.registry.handle_message(id, message)
            }
        };
        if correct {
            return Ok(());
        }
        // The two nodes disagree about their common state; only a new session resolves that.
        if let Some((index, _)) = self.links.peers.iter().find(|(_, peer)| peer.id == Some(id)) {
            self.take_down(index, "the other node violated the protocol");
        }
        Err("the other node violated the protocol".to_owned())
    }

    fn acknowledge(&mut self, index: usize, now: bool) {
        let greeted = |wire: &&Wire| wire.is_greeted;
        let Some(wire) = self.links.wires.get(index).filter(greeted) else { return };
        let peer = wire.peer.and_then(|at| self.links.peers.get_mut(at));
        if let Some(ack) = peer.and_then(|peer| peer.session.poll_ack(now)) {
            self.links.post(index, &ack);
        }
    }

    /// Sends a message over a link.
    pub(super) fn say(&mut self, id: LinkId, message: Message) {
        self.trace_link(Way::Sent, id, &message);
        let Some(peer) = self.links.by_id(id) else { return };
        let bytes = peer.session.send(message);
        // Messages from before both ends have introduced themselves are sent together with those that must be
        // sent again.
        if let Some(wire) = peer.wire
            && self.links.wires.get(wire).is_some_and(|wire| wire.is_greeted)
        {
            self.links.post_bytes(wire, bytes);
        }
    }

    /// Asks each peer to acknowledge everything that was sent to it, unless it has been asked since the last message to
    /// it.
    pub(super) fn ask_for_acks(&mut self) {
        let mut behind = Vec::new();
        for (index, wire) in &mut self.links.wires {
            let peer = wire.peer.and_then(|at| self.links.peers.get(at));
            let sent = peer.map_or(0, |peer| peer.session.sent());
            if wire.is_greeted && wire.asked_after < sent {
                wire.asked_after = sent;
                behind.push(index);
            }
        }
        for index in behind {
            self.links.post(index, &Frame::Ping);
        }
    }

    /// Whether all reachable peers have received everything sent to them.
    pub(super) fn all_is_acknowledged(&self) -> bool {
        let waits = |wire: &Wire| {
            let peer = wire.peer.and_then(|at| self.links.peers.get(at));
            wire.is_greeted && peer.is_some_and(|peer| !peer.session.is_settled())
        };
        !self.links.wires.iter().any(|(_, wire)| waits(wire))
    }

    /// Whether no more signals should be sent over a link at the moment; true if the link is not up.
    pub(super) fn is_link_full(&self, id: LinkId) -> bool {
        let peer = self.links.peers.iter().find(|(_, peer)| peer.id == Some(id));
        peer.is_none_or(|(_, peer)| peer.session.is_full())
    }

    /// Sends the registry's messages to other nodes; its other outputs stay in the queue.
    pub(super) fn work_off_links(&mut self) {
        while let Some(output) = self.registry.poll_output() {
            match output {
                Output::Link(id, message) => self.say(id, message),
                other => self.waiting.push_back(other),
            }
        }
    }
}
