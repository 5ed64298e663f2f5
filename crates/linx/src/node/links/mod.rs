//! Links to other nodes: dialling, supervision, and handling of failed connections.

mod cluster;
mod doors;
mod line;
mod wires;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_sys::epoll::Report as When;
use crossway_sys::{OsError, random};
use slab::Slab;

use super::{Node, Token};
use crate::node::intake::Intake;
use crate::registry::{LinkId, Output};
use crate::session::{Mismatch, Session};
use crate::trace::record::Way;
use crate::wire::body::Framed;
use crate::wire::link::{Frame, Init, Message};
use cluster::Cluster;
use doors::Entrance;
use line::Line;
pub use line::LinkAddress;

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

/// How soon a failed connection is retried.
const REDIAL: Duration = Duration::from_millis(100);

/// A connection of a link.
struct Wire {
    line: Line,
    /// The link it belongs to, once that is known.
    peer: Option<usize>,
    dialled: bool,
    /// Whether it is still being established.
    is_connecting: bool,
    /// Whether both ends have introduced themselves.
    is_greeted: bool,
    intake: Intake,
    outbox: VecDeque<Arc<Framed>>,
    /// Number of bytes of the first frame in the outbox that are already written.
    written: usize,
    heard: Instant,
    is_ready: bool,
    /// Whether there is room to write, as far as known.
    is_writable: bool,
    /// The number of messages up to which the peer was asked for an acknowledgement.
    asked_after: u64,
}

/// A link, up or not.
struct Peer {
    name: String,
    /// Whether the cluster's topology service told of it; it gets its name when it introduces itself.
    is_found: bool,
    /// The addresses to dial; empty if the other node dials.
    addresses: Vec<LinkAddress>,
    next: usize,
    session: Session,
    wire: Option<usize>,
    /// Its id while it is up.
    id: Option<LinkId>,
    /// When it will go down for lack of a connection.
    down_at: Option<Instant>,
    dial_at: Option<Instant>,
    /// The last failure that was logged, so that each is logged only once.
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

    /// A node that the topology service told of.
    fn found(address: LinkAddress) -> Result<Peer, OsError> {
        let unnamed = Peer::new(address.to_string(), vec![address], chance()?);
        Ok(Peer { is_found: true, ..unnamed })
    }
}

#[derive(Default)]
pub(super) struct Links {
    cluster: Option<Cluster>,
    doors: Vec<Entrance>,
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
        let opens = self.doors.iter().map(Entrance::next_instant);
        dials.chain(opens).chain([self.tick_at, asks]).flatten().min()
    }

    /// Called when the system reports a change of the subscription to the cluster's nodes.
    pub(super) fn cluster_changed(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.changed();
        }
    }

    /// Called when the system reports a change of a connection.
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

    /// The link that a connection carries.
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
        self.epoll.add(&line, Token::Wire(index).number(), When::Changes)?;
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

    /// Does what is due: dials, pings, and drops connections that do not answer.
    pub(super) fn supervise(&mut self) {
        if let Err(error) = self.reopen_doors() {
            tracing::warn!("a link address cannot be watched: {error}");
        }
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let dial: Vec<usize> =
            self.links.peers.iter().filter(|(_, p)| due(p.dial_at)).map(|(i, _)| i).collect();
        for peer in dial {
            self.dial(peer);
        }
        let down: Vec<usize> =
            self.links.peers.iter().filter(|(_, p)| due(p.down_at)).map(|(i, _)| i).collect();
        for peer in down {
            self.take_down(peer, "no connection was established in time");
        }
        if self.links.wires.is_empty() {
            self.links.tick_at = None;
        } else if self.links.tick_at.is_none_or(|at| at <= now) {
            let timeout = self.settings.link_timeout;
            self.links.tick_at = Some(now + timeout / 4);
            let wires: Vec<usize> = self.links.wires.iter().map(|(index, _)| index).collect();
            for index in wires {
                if now.duration_since(self.links.wires[index].heard) > timeout {
                    self.drop_wire(index, "the other node did not answer in time");
                } else if self.links.wires[index].is_greeted {
                    self.acknowledge(index, true);
                    self.links.post(index, &Frame::Ping);
                }
            }
        }
    }

    fn dial(&mut self, index: usize) {
        let peer = &mut self.links.peers[index];
        peer.dial_at = None;
        if peer.wire.is_some() || peer.addresses.is_empty() {
            return;
        }
        let address = peer.addresses[peer.next % peer.addresses.len()];
        peer.next += 1;
        let dialled = Line::dial(address, &self.settings.tipc);
        match dialled.and_then(|line| self.add_wire(line, Some(index))) {
            Ok(wire) => self.links.peers[index].wire = Some(wire),
            Err(error) => self.dial_later(index, &error.to_string()),
        }
    }

    fn dial_later(&mut self, index: usize, why: &str) {
        let peer = &mut self.links.peers[index];
        if peer.told != why {
            tracing::info!("link {}: {why}; retrying", peer.name);
            peer.told = why.to_owned();
        }
        // Another address may work immediately.
        let tried_all = peer.next.is_multiple_of(peer.addresses.len().max(1));
        let pause = if tried_all { REDIAL } else { Duration::ZERO };
        peer.dial_at = Some(Instant::now() + pause);
    }

    /// Removes a connection that is no longer usable.
    fn drop_wire(&mut self, index: usize, why: &str) {
        let Some(wire) = self.links.wires.try_remove(index) else { return };
        let Some(at) = wire.peer else { return };
        let Some(peer) = self.links.peers.get_mut(at) else { return };
        match peer.wire {
            Some(current) if current != index => return,
            _ => peer.wire = None,
        }
        if peer.id.is_some() {
            tracing::info!("link {}: lost a connection: {why}", peer.name);
            let patience = self.settings.reconnect_within.unwrap_or(self.settings.link_timeout);
            peer.down_at.get_or_insert(Instant::now() + patience);
        }
        if !peer.addresses.is_empty() {
            self.dial_later(at, why);
        } else if peer.id.is_none() {
            self.links.peers.remove(at);
        }
    }

    /// Takes a link down and discards everything that the two nodes knew of each other.
    fn take_down(&mut self, index: usize, why: &str) {
        let Some(peer) = self.links.peers.get_mut(index) else { return };
        peer.down_at = None;
        if let Some(id) = peer.id.take() {
            tracing::info!("link {} is down: {why}", peer.name);
            self.relays.link_down(id);
            self.registry.handle_link_down(id);
        }
        let Some(peer) = self.links.peers.get_mut(index) else { return };
        if let Ok(number) = chance() {
            peer.session = Session::new(number);
        }
        if peer.addresses.is_empty() && peer.wire.is_none() {
            self.links.peers.remove(index);
        }
    }

    /// Reads from and writes to connections, a limited amount each.
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

    fn introduce(&mut self, index: usize) {
        let Some(peer) = self.links.wires[index].peer.and_then(|p| self.links.peers.get(p)) else {
            return;
        };
        let timeout_ms = self.settings.link_timeout.as_millis() as u32;
        let init = peer.session.init(&self.settings.name, timeout_ms);
        self.links.post(index, &init);
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
        Err("it violated the protocol".to_owned())
    }

    /// Handles the introduction of the other end of a connection.
    fn handle_init(&mut self, index: usize, init: &Init) -> Result<(), String> {
        let wire = &self.links.wires[index];
        let at = match (wire.dialled, wire.peer) {
            (true, Some(at)) => {
                self.name_found(at, &init.name)?;
                at
            }
            _ => {
                let at = match self.peer_for(init) {
                    Ok(at) => at,
                    Err(why) => {
                        self.links.post(index, &Frame::Refused { why: why.clone() });
                        let _ = self.write_wire(index);
                        return Err(why);
                    }
                };
                self.links.wires[index].peer = Some(at);
                // This end reports its state of the session before it processes that of the other end.
                self.introduce(index);
                at
            }
        };
        let peer = &mut self.links.peers[at];
        let again = match peer.session.handle_init(init) {
            Ok(again) => again,
            Err(Mismatch::Forgotten) => {
                self.take_down(at, "the other node has started a new session");
                return Err("the other node has started a new session".to_owned());
            }
            Err(Mismatch::Refused(why)) => {
                self.links.post(index, &Frame::Refused { why: why.clone() });
                let _ = self.write_wire(index);
                return Err(why);
            }
        };
        peer.down_at = None;
        peer.dial_at = None;
        peer.told.clear();
        let former = peer.wire.replace(index).filter(|former| *former != index);
        if let Some(former) = former {
            self.links.wires.try_remove(former);
        }
        self.links.wires[index].is_greeted = true;
        for bytes in again {
            self.links.post_bytes(index, bytes);
        }
        let now = Instant::now();
        self.links.tick_at.get_or_insert(now);
        let peer = &mut self.links.peers[at];
        if peer.id.is_none() {
            self.links.last_id += 1;
            let id = LinkId(self.links.last_id);
            peer.id = Some(id);
            let name = peer.name.clone();
            tracing::info!("link {name} is up");
            if let Err((_, why)) = self.registry.handle_link_up(id, &name) {
                return Err(why);
            }
        }
        Ok(())
    }

    /// Names a link after the node at its other end, if the topology service told of that node.
    fn name_found(&mut self, at: usize, name: &str) -> Result<(), String> {
        let peer = &self.links.peers[at];
        if !peer.is_found || peer.id.is_some() {
            return Ok(());
        }
        crate::check_name(name).map_err(|error| error.to_string())?;
        if self.links.peers.iter().any(|(index, peer)| index != at && peer.name == name) {
            return Err(format!(
                "another link has the name of the node {name}; give each node a name of its own (--name)"
            ));
        }
        self.links.peers[at].name = name.to_owned();
        Ok(())
    }

    /// The link that a dialling node refers to.
    fn peer_for(&mut self, init: &Init) -> Result<usize, String> {
        if crate::check_name(&init.name).is_err() {
            return Err(format!("'{}' cannot be the name of a link", init.name));
        }
        let same = self.links.peers.iter().find(|(_, peer)| peer.name == init.name);
        if let Some((at, peer)) = same {
            if !peer.addresses.is_empty() {
                return Err(format!("this node already dials a link named {}", peer.name));
            }
            if peer.session.number() == init.session {
                return Ok(at);
            }
            if peer.wire.is_some() {
                return Err(format!("a link named {} is already up", peer.name));
            }
            self.take_down(at, "the other node has started a new session");
        }
        if self.links.peers.len() >= LINKS {
            return Err(format!("this node has reached its limit of {LINKS} links"));
        }
        Ok(self.links.peers.insert(Peer::new(init.name.clone(), Vec::new(), init.session)))
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

    /// Asks all peers once to acknowledge everything that was sent to them.
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

    /// Whether no more signals should be sent over a link now.
    pub(super) fn is_link_full(&self, id: LinkId) -> bool {
        let peer = self.links.peers.iter().find(|(_, peer)| peer.id == Some(id));
        peer.is_none_or(|(_, peer)| peer.session.is_full())
    }

    /// Sends the registry's messages to other nodes; its other outputs are kept.
    pub(super) fn work_off_links(&mut self) {
        while let Some(output) = self.registry.poll_output() {
            match output {
                Output::Link(id, message) => self.say(id, message),
                other => self.waiting.push_back(other),
            }
        }
    }
}
