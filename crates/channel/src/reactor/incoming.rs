//! Connections from other hosts: accepted here, and handed to the channel that they are for once they say so.

use std::sync::Arc;
use std::time::Instant;

use super::{Entry, GREETING, INCOMING, REOPEN, Reactor, Source};
use crate::link::Link;
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
                    // Its tipcd has ended; it is opened again as soon as there is one.
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

    /// Reads the first frame of a connection from another host, and does what it asks for.
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
            Some(Message::Resume { id, secret, received }) => {
                let heard = match self.link_by_id(&core.name, id) {
                    Some(link) => link.resume_wire(secret, received, writer, reader),
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
            Some(_) => write_now(&mut writer, &Message::Unknown),
            None => {}
        }
    }

    fn link_by_id(&self, name: &str, id: u64) -> Option<Arc<Link>> {
        self.links(name).find(|link| link.id == id && link.role == Role::Leader).cloned()
    }
}
