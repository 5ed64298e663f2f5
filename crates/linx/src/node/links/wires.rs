//! Reads and writes frames on connections between nodes.

use std::io::IoSlice;
use std::time::Instant;

use crossway_sys::Errno;

use super::Node;
use crate::limits::PIECE;
use crate::node::intake::Head;
use crate::wire::link::Frame;

/// Maximum number of bytes read from one connection before the node turns to other connections.
const AT_A_TIME: usize = 8 * PIECE;

impl Node {
    pub(super) fn write_wire(&mut self, index: usize) -> Result<(), String> {
        loop {
            let Some(wire) = self.links.wires.get_mut(index) else { return Ok(()) };
            if wire.outbox.is_empty() {
                return Ok(());
            }
            let mut skip = wire.written;
            let parts: Vec<IoSlice<'_>> = wire
                .outbox
                .iter()
                .take(32)
                .flat_map(|frame| frame.parts())
                .filter_map(|part| {
                    let skipped = skip.min(part.len());
                    skip -= skipped;
                    let rest = &part[skipped..];
                    (!rest.is_empty()).then(|| IoSlice::new(rest))
                })
                .collect();
            match wire.line.send(&parts) {
                Ok(mut sent) => {
                    while let Some(first) = wire.outbox.front() {
                        let left = first.len() - wire.written;
                        if sent < left {
                            wire.written += sent;
                            break;
                        }
                        sent -= left;
                        wire.written = 0;
                        wire.outbox.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(std::io::Error::from(errno).to_string()),
            }
        }
    }

    pub(super) fn read_wire(&mut self, index: usize) -> Result<(), String> {
        let mut most = AT_A_TIME;
        loop {
            let Some(wire) = self.links.wires.get_mut(index) else { return Ok(()) };
            match wire.intake.fill(|space| wire.line.receive(space)) {
                Ok(0) => return Err("the other node closed the connection".to_owned()),
                Ok(n) => {
                    wire.heard = Instant::now();
                    most = most.saturating_sub(n);
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(std::io::Error::from(errno).to_string()),
            }
            self.handle_frames(index)?;
            if most == 0 {
                self.links.changed(index, false);
                break;
            }
        }
        self.acknowledge(index, false);
        Ok(())
    }

    fn handle_frames(&mut self, index: usize) -> Result<(), String> {
        let violated = |_| "the other node violated the protocol".to_owned();
        loop {
            let id = self.links.link_of(index);
            let Some(wire) = self.links.wires.get_mut(index) else { return Ok(()) };
            let land = |head: &Head, len| self.relays.land(&self.registry, id?, head.bytes(), len);
            let next = wire.intake.next(Frame::measure, land).map_err(violated)?;
            let Some((head, body)) = next else { return Ok(()) };
            let len = head.bytes().len() + body.len();
            let frame = Frame::decode(head.bytes(), body).map_err(violated)?;
            self.handle_frame(index, frame, len)?;
            self.work_off_links();
        }
    }

    fn handle_frame(&mut self, index: usize, frame: Frame, len: usize) -> Result<(), String> {
        let Some(wire) = self.links.wires.get(index) else { return Ok(()) };
        let (greeted, at) = (wire.is_greeted, wire.peer);
        match frame {
            Frame::Init(init) if !greeted => return self.handle_init(index, &init),
            Frame::Refused { why } => {
                return Err(format!("the other node refused the link: {why}"));
            }
            _ if !greeted => return Err("the other node did not introduce itself".to_owned()),
            Frame::Ping => {
                self.acknowledge(index, true);
                self.links.post(index, &Frame::Pong);
            }
            Frame::Pong => {}
            Frame::Ack { received } => {
                let peer = at.and_then(|at| self.links.peers.get_mut(at));
                let id = peer.map_or(Ok(None), |peer| {
                    let fits = peer.session.handle_ack(received);
                    if fits {
                        Ok(peer.id)
                    } else {
                        Err("the other node acknowledged messages that were not sent")
                    }
                })?;
                if let Some(id) = id {
                    self.link_has_room(id);
                }
            }
            Frame::Message(message) => {
                let Some(peer) = at.and_then(|at| self.links.peers.get_mut(at)) else {
                    return Ok(());
                };
                peer.session.handle_message(len);
                let Some(id) = peer.id else { return Ok(()) };
                return self.handle_link_message(id, message);
            }
            Frame::Init(_) => return Err("the other node introduced itself twice".to_owned()),
        }
        Ok(())
    }
}
