//! Connections from other hosts. They are accepted here, and passed to their channel when their first frame has
//! identified it.

use std::sync::Arc;
use std::time::Instant;

use super::{Entry, GREETING, INCOMING, REOPEN, Reactor, Source};
use crate::hand_over::Successor;
use crate::link::Link;
use crate::listener::Core;
use crate::message::{Message, PACKET};
use crate::net::endpoint::Acceptor;
use crate::net::{Incoming, Progress, write_now};
use crate::protocol::Role;

impl Reactor {
    /// Accepts connections from other hosts.
    pub(super) fn accept(&mut self, token: u64) {
        let mut waiting =
            self.entries.values().filter(|entry| matches!(entry, Entry::Incoming { .. })).count();
        loop {
            let Some(Entry::Place { core, acceptor, retry, .. }) = self.entries.get_mut(&token)
            else {
                return;
            };
            let stream = match acceptor.as_ref().map(Acceptor::accept) {
                Some(Ok(Some(stream))) => stream,
                Some(Ok(None)) | None => return,
                Some(Err(_)) => {
                    // Its tipcd has ended; the place is opened again as soon as there is one.
                    (*acceptor, *retry) = (None, Instant::now() + REOPEN);
                    return;
                }
            };
            let core = Arc::clone(core);
            if waiting < INCOMING {
                let (incoming, until) =
                    (Box::new(Incoming::new(stream)), Instant::now() + GREETING);
                self.insert(Entry::Incoming { incoming, core, until });
                waiting += 1;
            }
        }
    }

    /// Reads the first frame of a connection from another host, and carries out its request.
    pub(super) fn hear(&mut self, token: u64) {
        let Some(Entry::Incoming { incoming, core, .. }) = self.entries.get_mut(&token) else {
            return;
        };
        let Some(network) = &core.network else { return };
        let question = match incoming.read(network, PACKET) {
            Progress::Waiting => return,
            Progress::Over => None,
            Progress::Asks(frame) => serde_json::from_slice(&frame).ok(),
        };
        let Some(Entry::Incoming { incoming, core, .. }) = self.remove(token) else { return };
        let (mut writer, reader) = incoming.into_ends();
        let unknown = |mut writer| write_now(&mut writer, &Message::Unknown);
        match question {
            Some(Message::Hello(_)) if core.is_closed() => unknown(writer),
            Some(Message::Hello(hello)) => {
                if let Some(link) = core.welcome_from_abroad(*hello, writer, reader) {
                    self.adopt(Source::Link(link));
                }
            }
            Some(Message::Resume { id, secret, moves, received }) => {
                let heard = match self.link_by_id(&core.name, id) {
                    Some(link) => link.resume_wire(secret, moves, received, writer, reader),
                    None => Err(writer),
                };
                heard.unwrap_or_else(unknown);
            }
            Some(Message::Attach { id, secret, epoch, received }) => {
                let heard = match self.link_by_id(&core.name, id) {
                    Some(link) => link.attach(secret, epoch, received, writer, reader),
                    None => Err(writer),
                };
                heard.unwrap_or_else(unknown);
            }
            // An end on this host asks this listener directly, not over the network.
            Some(Message::Rejoin(rejoin)) if rejoin.near.contains(&core.id) => unknown(writer),
            Some(Message::Rejoin(rejoin)) => match self.awaiting(&core, rejoin.id) {
                Some(link) => link.rejoin_far(rejoin, writer, reader),
                None => unknown(writer),
            },
            Some(Message::TakeOver(by)) if by == core.id || core.is_closed() => unknown(writer),
            Some(Message::TakeOver(_)) => {
                write_now(&mut writer, &Message::Heard);
                core.successor(Successor::Far(Box::new((writer, reader))));
            }
            Some(_) => unknown(writer),
            None => {}
        }
    }

    /// Returns the listening end of an open channel; `None` if this process does not have it. If that end has moved
    /// from one listener of this process to another, the old link is over and is skipped.
    fn link_by_id(&self, name: &str, id: u64) -> Option<Arc<Link>> {
        let mut links = self.links(name).filter(|link| link.id == id && link.role == Role::Leader);
        links.find(|link| !link.lock().over).cloned()
    }

    /// Returns the listening end of channel `id` if it was moved to this listener and is waiting for the connecting
    /// end.
    pub(super) fn awaiting(&self, core: &Core, id: u64) -> Option<Arc<Link>> {
        let mut links = self.links(&core.name).filter(|link| link.listener == Some(core.id));
        links.find(|link| link.id == id && link.is_awaiting()).cloned()
    }
}
