//! Limits how long a group's broadcasts wait for one member.
//!
//! The protocol lets the slowest member block all broadcasts indefinitely. A member with a patience limit sends LEAVE
//! to any member that blocks its broadcasts for longer than this limit, and continues with the other members.

use super::member::Member;
use super::{Group, Outcome, group_blocks};
use crate::addr::SocketAddr;
use crate::time::Nanos;
use crate::wire::GroupProtocolKind;
use alloc::vec::Vec;
use core::time::Duration;

/// A broadcast for which there was no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldUp {
    since: Nanos,
    blocks: u32,
}

impl Group {
    /// Records that there was no room for a broadcast of this length. Returns when to check again, or `None` if a check
    /// is already scheduled.
    pub(crate) fn broadcast_held_up(
        &mut self,
        now: Nanos,
        payload_len: usize,
        patience: Duration,
    ) -> Option<Nanos> {
        let blocks = group_blocks(payload_len);
        let first = self.held_up.is_none();
        self.held_up.get_or_insert(HeldUp { since: now, blocks });
        first.then(|| now + patience)
    }

    /// Sends LEAVE to the members that have blocked broadcasts for too long. Returns when to check again; `None` if no
    /// broadcast is blocked any more.
    pub(crate) fn lose_patience(
        &mut self,
        now: Nanos,
        patience: Duration,
        out: &mut Outcome,
    ) -> Option<Nanos> {
        let HeldUp { since, blocks } = self.held_up?;
        if now.since(since) < patience {
            return Some(since + patience);
        }
        self.held_up = None;
        let to_blame =
            |m: &&Member| m.is_receiver() && m.window < blocks || self.ackers.contains(&m.addr);
        let slow: Vec<SocketAddr> =
            self.members.values().filter(to_blame).map(|m| m.addr).collect();
        for addr in slow {
            let heard = self.members.get(&addr).is_some_and(Member::is_sender);
            out.send.push((addr, GroupProtocolKind::Leave { sync: self.next }));
            if let Some(m) = self.members.get_mut(&addr) {
                m.key = None;
            }
            self.retire(addr);
            self.bury(addr, heard, out);
            self.reopen(out);
        }
        None
    }
}
