//! The first messages on a connection between two nodes. They determine the link that the connection belongs to, and
//! whether that link's session continues.

use std::time::Instant;

use super::super::Node;
use super::{LINKS, Peer};
use crate::registry::LinkId;
use crate::session::Mismatch;
use crate::wire::link::{Frame, Init};

impl Node {
    /// Sends this node's introduction on a connection.
    pub(super) fn introduce(&mut self, index: usize) {
        let Some(peer) = self.links.wires[index].peer.and_then(|p| self.links.peers.get(p)) else {
            return;
        };
        let timeout_ms = self.settings.link_timeout.as_millis() as u32;
        let init = peer.session.init(&self.settings.name, timeout_ms);
        self.links.post(index, &init);
    }

    /// Handles the introduction of the other end of a connection.
    pub(super) fn handle_init(&mut self, index: usize, init: &Init) -> Result<(), String> {
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

    /// Names a link after the node at its other end, if the topology service has reported that node.
    fn name_found(&mut self, at: usize, name: &str) -> Result<(), String> {
        let peer = &self.links.peers[at];
        if !peer.is_found || peer.id.is_some() {
            return Ok(());
        }
        crate::check_name(name).map_err(|error| error.to_string())?;
        if self.links.peers.iter().any(|(index, peer)| index != at && peer.name == name) {
            return Err(format!(
                "another link already has the name of node {name}; give each node a different name (--name)"
            ));
        }
        self.links.peers[at].name = name.to_owned();
        Ok(())
    }

    /// Returns the link that a dialling node refers to (created if necessary), or the reason why the node is refused.
    fn peer_for(&mut self, init: &Init) -> Result<usize, String> {
        if crate::check_name(&init.name).is_err() {
            return Err(format!("'{}' is not a valid name of a node", init.name));
        }
        let same = self.links.peers.iter().find(|(_, peer)| peer.name == init.name);
        if let Some((at, peer)) = same {
            if !peer.addresses.is_empty() {
                return Err(format!("it already dials a link named {} itself", peer.name));
            }
            if peer.session.number() == init.session {
                return Ok(at);
            }
            if peer.wire.is_some() {
                return Err(format!("it already has a link named {}, which is up", peer.name));
            }
            self.take_down(at, "the other node has started a new session");
        }
        if self.links.peers.len() >= LINKS {
            return Err(format!("it has reached its limit of {LINKS} links"));
        }
        Ok(self.links.peers.insert(Peer::new(init.name.clone(), Vec::new(), init.session)))
    }
}
