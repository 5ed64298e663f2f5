//! Sends a member's own messages: finds the members that can receive them, and counts the window blocks that they use.

use super::member::Member;
use super::{Group, Outcome, Refusal, group_blocks};
use crate::addr::SocketAddr;
use crate::wire::GroupProtocolKind;
use alloc::vec::Vec;

impl Group {
    /// Checks whether a member's window has room for this many blocks. If not, renews the window that this member
    /// grants to that one, so that two members never wait for each other.
    fn admits(&mut self, addr: SocketAddr, blocks: u32, out: &mut Outcome) -> Result<(), Refusal> {
        let Some(m) = self.members.get_mut(&addr).filter(|m| m.is_receiver()) else {
            return Err(Refusal::Nobody);
        };
        if m.window >= blocks {
            return Ok(());
        }
        let more = m.grant();
        if more > 0 {
            out.send.push((addr, GroupProtocolKind::Advertise { window: more }));
        }
        self.open = false;
        Err(Refusal::Congested)
    }

    /// Checks whether a message to this member can be sent now.
    pub(crate) fn unicast(
        &mut self,
        addr: SocketAddr,
        payload_len: usize,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.admits(addr, group_blocks(payload_len), out)
    }

    /// Chooses a member with this instance for a message, in round-robin order. Skips members without room; fails if
    /// none has room.
    pub(crate) fn anycast(
        &mut self,
        instance: u32,
        payload_len: usize,
        out: &mut Outcome,
    ) -> Result<SocketAddr, Refusal> {
        let all = self.of_instance(instance);
        let (before, after): (Vec<_>, Vec<_>) = all.into_iter().partition(|a| *a <= self.turn);
        let mut verdict = Err(Refusal::Nobody);
        for addr in after.into_iter().chain(before) {
            match self.admits(addr, group_blocks(payload_len), out) {
                Ok(()) => {
                    self.turn = addr;
                    // Members tried before that had no room do not close the group.
                    self.open = true;
                    return Ok(addr);
                }
                Err(refusal) => verdict = Err(refusal),
            }
        }
        verdict
    }

    /// The members with this instance that can be addressed.
    pub(crate) fn of_instance(&self, instance: u32) -> Vec<SocketAddr> {
        let receives = |m: &&Member| m.instance == instance && m.is_receiver();
        self.members.values().filter(receives).map(|m| m.addr).collect()
    }

    /// Subtracts a message sent to one member from that member's window.
    pub(crate) fn sent_unicast(&mut self, addr: SocketAddr, payload_len: usize) {
        if let Some(m) = self.members.get_mut(&addr) {
            m.window = m.window.saturating_sub(group_blocks(payload_len));
        }
        self.follows_unicast = true;
    }

    /// Checks whether a message to all members can be sent now. Returns whether it must follow the unicasts sent
    /// earlier and request acknowledgements.
    pub(crate) fn broadcast(
        &mut self,
        payload_len: usize,
        out: &mut Outcome,
    ) -> Result<bool, Refusal> {
        if !self.ackers.is_empty() {
            self.open = false;
            return Err(Refusal::Congested);
        }
        let receivers = self.members.values().filter(|m| m.is_receiver());
        let tightest = receivers.min_by_key(|m| m.window).map(|m| m.addr);
        let tightest = tightest.ok_or(Refusal::Nobody)?;
        self.admits(tightest, group_blocks(payload_len), out)?;
        Ok(self.follows_unicast)
    }

    /// Subtracts a message sent to all members from their windows.
    pub(crate) fn sent_broadcast(&mut self, payload_len: usize, wants_ack: bool) {
        for m in self.members.values_mut().filter(|m| m.is_receiver()) {
            m.window = m.window.saturating_sub(group_blocks(payload_len));
            if wants_ack {
                self.ackers.insert(m.addr);
            }
        }
        self.next = self.next.next();
        self.follows_unicast = false;
        self.held_up = None;
    }
}
