//! Channels between endpoints, and permissions to send in another endpoint's name.

use std::os::fd::OwnedFd;

use crate::limits::POOL;
use crate::node::{Node, channels};
use crate::registry::{EntryKind, LinkId, Refused};
use crate::wire::local::{self, Event, Refusal};
use crate::{Spid, Transport};

impl Node {
    pub(super) fn connect(
        &mut self,
        index: usize,
        own: Spid,
        to: Spid,
        wish: Option<Transport>,
    ) -> Result<(), Refused> {
        match self.registry.get(to).map(|entry| entry.kind) {
            Some(EntryKind::Remote { link, .. }) => {
                self.registry.handle_connect(own, to)?;
                let (_, fds) = self.relay_for(own, link).map_err(|error| {
                    self.registry.handle_connect_failed(own, to);
                    (Refusal::Limit, format!("the node cannot create a channel: {error}"))
                })?;
                self.tell_of_relay(own, link, Some(to), fds);
                return Ok(());
            }
            // Links do not receive signals.
            Some(EntryKind::Link { .. }) => return Err((Refusal::Gone, String::new())),
            Some(EntryKind::Local { .. }) if to == own => {
                return Err((Refusal::Gone, String::new()));
            }
            Some(EntryKind::Local { .. }) | None => {}
        }
        if !self.registry.handle_connect(own, to)? {
            let number = self.clients.all[index].numbers.get(&to).copied().unwrap_or(0);
            let channel = local::Channel {
                number,
                transport: None,
                relay: false,
                first: true,
                capacity: 0,
                pool: 0,
            };
            self.clients.post(index, &Event::Channel { spid: to, channel }, Vec::new());
            return Ok(());
        }
        let transport = wish.unwrap_or(self.settings.transport);
        let bytes = self.settings.channel_bytes;
        // A program can confuse another one by changing a signal that the other one reads. Programs of one user can do
        // worse to each other.
        let shares = transport == Transport::Shm && self.user_of(own) == self.user_of(to);
        let pool = if shares { POOL } else { 0 };
        let (first, second) = channels::make(transport, bytes, pool).map_err(|error| {
            self.registry.handle_connect_failed(own, to);
            (Refusal::Limit, format!("the node cannot create a channel: {error}"))
        })?;
        // The other endpoint first: signals sent over the channel must follow the announcement of the channel.
        for (spid, other, fds, is_first) in [(to, own, second, false), (own, to, first, true)] {
            let channel = local::Channel {
                number: self.clients.number(spid, other),
                transport: Some(transport),
                relay: false,
                first: is_first,
                capacity: bytes as u32,
                pool: pool as u32,
            };
            self.clients.tell(spid, &Event::Channel { spid: other, channel }, fds);
        }
        Ok(())
    }

    fn user_of(&self, spid: Spid) -> Option<u32> {
        match self.registry.get(spid)?.kind {
            EntryKind::Local { user, .. } => Some(user),
            _ => None,
        }
    }

    /// Handles a report that an endpoint had no room for the descriptors of its channel to another endpoint of this
    /// node.
    pub(super) fn no_channel(&mut self, own: Spid, other: Spid) {
        if self.registry.handle_no_channel(own, other) {
            self.clients.forget_number(own, other);
            self.clients.tell(other, &Event::NoChannel { spid: own }, Vec::new());
        }
    }

    /// Announces to `endpoint` its channel for a link. If `endpoint` requested the channel, `asked` is the remote
    /// endpoint that it wants to reach.
    pub(in crate::node) fn tell_of_relay(
        &mut self,
        endpoint: Spid,
        link: LinkId,
        asked: Option<Spid>,
        fds: Option<Vec<OwnedFd>>,
    ) {
        let Some(of_link) = self.registry.link(link).map(|link| link.spid) else { return };
        let known = self
            .clients
            .by_spid
            .get(&endpoint)
            .and_then(|index| self.clients.all.get(*index))
            .and_then(|client| client.numbers.get(&of_link).copied());
        let number = known.unwrap_or_else(|| self.clients.number(endpoint, of_link));
        let channel = local::Channel {
            number,
            transport: fds.as_ref().map(|_| Transport::Uds),
            relay: true,
            first: asked.is_some(),
            capacity: 0,
            pool: if fds.as_ref().is_some_and(|fds| fds.len() > 1) { POOL as u32 } else { 0 },
        };
        let spid = asked.unwrap_or(of_link);
        let fds = fds.unwrap_or_default();
        self.clients.tell(endpoint, &Event::Channel { spid, channel }, fds);
    }

    pub(super) fn vouch(
        &mut self,
        index: usize,
        own: Spid,
        from: Spid,
        to: Spid,
    ) -> Result<(), Refused> {
        self.registry.may_send_as(own, from, to)?;
        // This comes before the answer, so that the receiver knows it when the first such signal arrives.
        self.clients.tell(to, &Event::Vouched { peer: own, from }, Vec::new());
        self.clients.post(index, &Event::End, Vec::new());
        Ok(())
    }
}
