//! How long a group's broadcasts wait for one member.
//!
//! The protocol lets the slowest member hold up everybody's broadcasts for as long as it likes. A member with limited patience
//! takes leave of those that hold it up longer, and goes on with the others.

use super::member::Member;
use super::{Group, Outcome, group_blocks};
use crate::addr::SocketAddr;
use crate::time::Nanos;
use crate::wire::GroupProtocolKind;
use alloc::vec::Vec;
use core::time::Duration;

/// A broadcast that found no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldUp {
    since: Nanos,
    blocks: u32,
}

impl Group {
    /// A broadcast of this length found no room. Returns when to look again, unless that is settled already.
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

    /// Takes leave of the members that have held up broadcasts for too long. Returns when to look again.
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
