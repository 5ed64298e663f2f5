//! `TUNNEL_PROTOCOL`: keeps messages in order when a second link to a peer comes up or fails.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::{BearerId, NodeAddr};
use alloc::vec::Vec;

/// The kinds of tunnel message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunnelKind {
    /// Sent on a new link. The receiver must deliver nothing from this link until the old link has delivered everything
    /// up to a synchronisation point.
    Synch,
    /// Carries a packet of a failed link over the surviving link.
    Failover,
}

/// A message that one link carries for another link to the same peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunnel<'a> {
    /// Kind of the message.
    pub kind: TunnelKind,
    /// The node at the other end of both links.
    pub dest: NodeAddr,
    /// Number of the other link's bearer at the destination.
    pub bearer: BearerId,
    /// In a SYNCH message without a body, the synchronisation point; with a body, the number of packets from the one in
    /// the body up to that point. In a FAILOVER message, the number of tunnel messages of the failover.
    pub count: u16,
    /// Number of this fragment if the tunnelled packet is fragmented, starting at 1.
    pub fragment: u16,
    /// Number of fragments of the tunnelled packet; 0 if it is not fragmented.
    pub fragments: u16,
    /// The tunnelled packet with its original header and sequence number; may be empty.
    pub body: &'a [u8],
}

impl<'a> Tunnel<'a> {
    /// Decodes the message.
    ///
    /// # Errors
    /// If the header is not 40 bytes long or the type does not exist.
    pub fn decode(view: &View<'a>) -> Result<Self, WireError> {
        view.check_header_len()?;
        let kind = match view.msg_type() {
            0 => TunnelKind::Synch,
            1 => TunnelKind::Failover,
            t => return Err(WireError::Type(t as u8)),
        };
        Ok(Self {
            kind,
            dest: NodeAddr(view.word(7)),
            bearer: BearerId(view.bits(5, 9, 7) as u8),
            count: view.bits(9, 16, 0xffff) as u16,
            fragment: view.bits(4, 16, 0xffff) as u16,
            fragments: view.bits(4, 0, 0xffff) as u16,
            body: view.data(),
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let msg_type = match self.kind {
            TunnelKind::Synch => 0,
            TunnelKind::Failover => 1,
        };
        let mut h = HeaderWords::new(User::Tunnel, msg_type, super::NAMED_HEADER_LEN);
        h.set(4, 16, 0xffff, self.fragment.into()).set(4, 0, 0xffff, self.fragments.into());
        h.set(5, 9, 7, self.bearer.0.into()).set(9, 16, 0xffff, self.count.into());
        h.set_word(6, link.sender.0).set_word(7, self.dest.0);
        link.write(&mut h);
        h.write(&[self.body], out);
    }
}
