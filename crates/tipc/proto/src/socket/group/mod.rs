//! A socket's membership of a communication group: who the others are, how much they take, what is next from each.
//!
//! Every member counts its broadcasts. A broadcast and a multicast take a number; a unicast carries the number of the next broadcast,
//! so that a receiver can put all three in the order of sending although they travel on different links. Flow control is by windows in
//! blocks of 1 KiB that a receiver grants to each sender: small ones to all, large ones to the few that send.

mod member;
mod patience;
mod protocol;
mod receive;
mod send;

use crate::addr::{NodeAddr, Scope, ServiceRange, SocketAddr};
use crate::drops::DropReason;
use crate::limits::{
    GROUP_ACTIVE_MAX, GROUP_ACTIVE_MIN, GROUP_JOINING_MAX, GROUP_MEMBERS_MAX, GROUP_WINDOW_ACTIVE,
    GROUP_WINDOW_IDLE,
};
use crate::seq::Seq;
use crate::socket::Address;
use crate::wire::{GroupProtocolKind, MCAST_HEADER_LEN};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use member::{Member, MemberState};
use patience::HeldUp;

pub(crate) use receive::GroupData;

/// What a socket joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupRequest {
    /// The group: a service type of 64 or more.
    pub group: u32,
    /// The number under which this member is addressed; members may share one.
    pub instance: u32,
    /// How far the group reaches. Groups of different scopes do not meet.
    pub scope: Scope,
    /// The member's own broadcasts come back to it.
    pub loopback: bool,
    /// Members that come and go are told as messages without content.
    pub events: bool,
}

/// A member has come or gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum MembershipEvent {
    /// It can be sent to.
    Joined,
    /// Nothing more comes from it.
    Left,
}

/// What a message received in a group says of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupSource {
    /// The group.
    pub group: u32,
    /// The sending member's instance.
    pub instance: u32,
    /// Set when this is no message but news of the member.
    pub event: Option<MembershipEvent>,
}

/// Something for the socket's queue.
#[derive(Clone, Debug)]
pub(crate) struct GroupItem {
    pub(crate) from: SocketAddr,
    pub(crate) source: GroupSource,
    /// The message; empty for news.
    pub(crate) bytes: Vec<u8>,
}

/// What a step of the group leads to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// To be sent to members.
    pub(crate) send: Vec<(SocketAddr, GroupProtocolKind)>,
    /// To be queued for the application.
    pub(crate) queue: Vec<GroupItem>,
    /// A sender that waited may try again.
    pub(crate) wake: bool,
    /// Messages that were discarded.
    pub(crate) dropped: Vec<DropReason>,
}

/// Blocks that a message of this payload costs between members.
pub(crate) const fn group_blocks(payload_len: usize) -> u32 {
    ((payload_len + MCAST_HEADER_LEN) / 1024 + 1) as u32
}

/// Nobody takes the message now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No such member.
    Nobody,
    /// A member has no room, or owes an acknowledgement.
    Congested,
}

/// One socket's membership.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) request: GroupRequest,
    /// Key of the binding.
    pub(crate) key: u32,
    members: BTreeMap<SocketAddr, Member>,
    /// Number of our next broadcast.
    next: Seq,
    /// Members that have yet to acknowledge the last broadcast.
    ackers: BTreeSet<SocketAddr>,
    /// The next broadcast goes on the links that unicasts and the protocol use, which it must not overtake, and wants acknowledgements:
    /// only then may one go by the broadcast link.
    follows_unicast: bool,
    /// Members with a large window, the one that was silent longest first.
    active: VecDeque<SocketAddr>,
    /// Members that wait for one.
    pending: VecDeque<SocketAddr>,
    active_count: usize,
    /// Names and the protocol travel on different links, and a socket may leave and join again: how many of a socket's bindings have
    /// come and gone while what it said meanwhile is still on the way, or, below 0, the other way round. Both come in order, so
    /// counting tells what belongs together.
    ahead: BTreeMap<SocketAddr, i32>,
    /// The last member that an anycast went to.
    turn: SocketAddr,
    open: bool,
    /// A broadcast found no room, and none has been sent since.
    held_up: Option<HeldUp>,
    /// Somebody who could be sent to cannot be any more, and nobody has been told yet.
    shrank: bool,
}

impl Group {
    /// A membership whose first broadcast has this number: on from where the socket's last one ended, so that what is late of that is
    /// not taken for new.
    pub(crate) fn new(request: GroupRequest, next: Seq) -> Self {
        Self {
            request,
            key: 0,
            members: BTreeMap::new(),
            next,
            ackers: BTreeSet::new(),
            follows_unicast: true,
            active: VecDeque::new(),
            pending: VecDeque::new(),
            active_count: 0,
            ahead: BTreeMap::new(),
            turn: SocketAddr::default(),
            open: false,
            held_up: None,
            shrank: false,
        }
    }

    /// Whether there is somebody to send to.
    pub(crate) fn reaches(&self, dest: Option<Address>) -> bool {
        let mut receivers = self.members.values().filter(|m| m.is_receiver());
        match dest {
            None => receivers.next().is_some(),
            Some(Address::Socket(to)) => receivers.any(|m| m.addr == to),
            Some(Address::Service { instance, .. }) => receivers.any(|m| m.instance == instance),
            Some(Address::Range(range)) => receivers.any(|m| m.instance == range.lower),
        }
    }

    /// Whether somebody was lost since it was last asked.
    pub(crate) const fn take_shrank(&mut self) -> bool {
        core::mem::replace(&mut self.shrank, false)
    }

    /// The binding by which the others find this member.
    pub(crate) const fn binding(&self) -> ServiceRange {
        ServiceRange::single(self.request.group, self.request.instance)
    }

    /// Whether a send would be taken, as far as is known.
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) const fn next(&self) -> Seq {
        self.next
    }

    /// Members that can have a large window at once: an eighth of all, within bounds.
    fn active_max(&self) -> usize {
        ((self.members.len() + 1) / 8).clamp(GROUP_ACTIVE_MIN, GROUP_ACTIVE_MAX)
    }

    /// Octets that the socket's queue holds: what all windows together allow, with room for what a message costs beyond its blocks.
    pub(crate) fn receive_octets(&self) -> usize {
        let idle = (self.members.len() + 1).saturating_sub(self.active_max());
        let blocks = self.active_max() * usize::from(GROUP_WINDOW_ACTIVE)
            + idle * usize::from(GROUP_WINDOW_IDLE);
        blocks * 1024 * 4
    }

    /// Octets that wait for earlier ones.
    pub(crate) fn octets(&self) -> usize {
        self.members.values().map(|m| m.deferred_octets).sum()
    }

    /// The nodes with members.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeAddr> {
        self.members.keys().map(|addr| addr.node).collect()
    }

    /// A member's binding came into the table.
    pub(crate) fn published(
        &mut self,
        addr: SocketAddr,
        instance: u32,
        key: u32,
        out: &mut Outcome,
    ) {
        if self.ahead_of(addr) < 0 {
            // What belongs to this binding is over.
            self.shift(addr, 1);
            return;
        }
        if let Some(m) = self.members.get_mut(&addr) {
            match m.state {
                MemberState::Joining => {
                    (m.instance, m.key, m.state) = (instance, Some(key), MemberState::Joined);
                    let (sync, window) = (self.next, m.grant());
                    out.send.push((addr, GroupProtocolKind::Join { sync, window }));
                    self.taken_in(addr, out);
                }
                MemberState::Leaving => {
                    m.reborn = Some((instance, key));
                    if !m.said_farewell {
                        // Perhaps what we know of it belongs to this binding already, and the earlier membership never knew us. Its
                        // answer comes after any farewell.
                        out.send.push((addr, GroupProtocolKind::Reclaim));
                    }
                }
                // A second binding of the same socket changes nothing.
                _ => {}
            }
            return;
        }
        if self.members.len() >= GROUP_MEMBERS_MAX {
            out.dropped.push(DropReason::TooManyMembers);
            return;
        }
        self.greet(addr, instance, key, out);
    }

    /// Meets a member of which only the binding is known.
    fn greet(&mut self, addr: SocketAddr, instance: u32, key: u32, out: &mut Outcome) {
        let mut m = Member::new(addr, MemberState::Published);
        (m.instance, m.key) = (instance, Some(key));
        self.members.insert(addr, m);
        out.send.push((addr, GroupProtocolKind::Join { sync: self.next, window: 0 }));
    }

    /// A member counts from now on.
    fn taken_in(&mut self, addr: SocketAddr, out: &mut Outcome) {
        out.queue.push(self.news(addr, MembershipEvent::Joined));
        self.reopen(out);
    }

    /// A member's binding left the table; `contact` says whether its node can still be heard.
    pub(crate) fn withdrawn(
        &mut self,
        addr: SocketAddr,
        key: u32,
        contact: bool,
        out: &mut Outcome,
    ) {
        let Some(m) = self.members.get_mut(&addr).filter(|m| m.key == Some(key)) else {
            if let Some(m) = self.members.get_mut(&addr)
                && m.reborn.is_some_and(|(_, k)| k == key)
            {
                m.reborn = None;
                self.shift(addr, 1);
            }
            return;
        };
        let heard = m.is_sender();
        m.key = None;
        self.retire(addr);
        self.reopen(out);
        if contact && !heard {
            self.shift(addr, 1);
        }
        // Without contact neither its farewell nor what it sent before will come.
        if !contact || !heard {
            self.bury(addr, heard, out);
        }
    }

    /// A node was lost: members of it that had no binding yet have none to be withdrawn.
    pub(crate) fn lose_node(&mut self, node: NodeAddr, out: &mut Outcome) {
        let lost: Vec<SocketAddr> =
            self.members.values().filter(|m| m.addr.node == node).map(|m| m.addr).collect();
        self.ahead.retain(|addr, _| addr.node != node);
        for addr in lost {
            let heard = self.members.get(&addr).is_some_and(Member::is_sender);
            if let Some(m) = self.members.get_mut(&addr) {
                (m.key, m.reborn, m.rejoined) = (None, None, None);
            }
            self.retire(addr);
            self.bury(addr, heard, out);
        }
        self.reopen(out);
    }

    /// Takes a member out of service; what it sent before is still delivered.
    fn retire(&mut self, addr: SocketAddr) {
        let Some(m) = self.members.get_mut(&addr) else { return };
        if m.is_active() {
            self.active_count -= 1;
        }
        m.state = MemberState::Leaving;
        self.shrank = true;
        self.active.retain(|a| *a != addr);
        self.pending.retain(|a| *a != addr);
        self.ackers.remove(&addr);
    }

    /// Forgets a member, and tells of it if it was told of before.
    fn bury(&mut self, addr: SocketAddr, heard: bool, out: &mut Outcome) {
        if heard {
            let news = self.news(addr, MembershipEvent::Left);
            out.queue.push(news);
        }
        let Some(m) = self.members.remove(&addr) else { return };
        self.shrank = true;
        self.promote(out);
        // A binding that stays while another is owed its farewell: this was the other's.
        let mut new = m.reborn;
        if let Some(key) = m.key
            && (m.revived || self.ahead_of(addr) > 0)
        {
            if !m.revived {
                self.shift(addr, -1);
            }
            new = Some((m.instance, key));
        }
        if let Some((instance, key)) = new {
            self.greet(addr, instance, key, out);
        }
        if let Some((sync, window)) = m.rejoined {
            self.handle_join(addr, sync, window, out);
        }
    }

    fn ahead_of(&self, addr: SocketAddr) -> i32 {
        self.ahead.get(&addr).copied().unwrap_or(0)
    }

    fn shift(&mut self, addr: SocketAddr, by: i32) {
        let now = self.ahead_of(addr) + by;
        if now == 0 {
            self.ahead.remove(&addr);
        } else if self.ahead.contains_key(&addr) || self.ahead.len() < GROUP_JOINING_MAX {
            self.ahead.insert(addr, now);
        }
    }

    fn news(&self, addr: SocketAddr, event: MembershipEvent) -> GroupItem {
        let instance = self.members.get(&addr).map_or(0, |m| m.instance);
        let source = GroupSource { group: self.request.group, instance, event: Some(event) };
        GroupItem { from: addr, source, bytes: Vec::new() }
    }

    /// The farewells of a socket that leaves.
    pub(crate) fn farewells(&self) -> Vec<(SocketAddr, GroupProtocolKind)> {
        let leave = GroupProtocolKind::Leave { sync: self.next };
        self.members.keys().map(|addr| (*addr, leave)).collect()
    }

    /// The node's address is settled: what it had before was 0.
    pub(crate) fn settle(&mut self, own: NodeAddr) {
        let moved = |addr: SocketAddr| match addr.node {
            NodeAddr(0) => SocketAddr { node: own, ..addr },
            _ => addr,
        };
        let members = core::mem::take(&mut self.members).into_values();
        self.members =
            members.map(|m| (moved(m.addr), Member { addr: moved(m.addr), ..m })).collect();
        self.ackers = core::mem::take(&mut self.ackers).into_iter().map(moved).collect();
        for list in [&mut self.active, &mut self.pending] {
            list.iter_mut().for_each(|addr| *addr = moved(*addr));
        }
    }

    /// Something changed for the better: senders that wait may try again.
    fn reopen(&mut self, out: &mut Outcome) {
        out.wake |= !core::mem::replace(&mut self.open, true);
    }

    fn has_room_for_stranger(&self) -> bool {
        let joining = self.members.values().filter(|m| m.state == MemberState::Joining).count();
        self.members.len() < GROUP_MEMBERS_MAX && joining < GROUP_JOINING_MAX
    }
}

#[cfg(test)]
mod tests;
