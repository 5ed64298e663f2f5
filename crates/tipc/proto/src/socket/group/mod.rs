//! A socket's membership in a communication group: stores the other members and their windows, and keeps their messages
//! in order.
//!
//! Every member numbers its broadcasts and multicasts. A unicast carries the number of the next broadcast, so that a
//! receiver can restore the sending order of all three although they travel on different links. For flow control, a
//! receiver grants each sender a window, counted in blocks of 1 KiB: a large window to the few members that are
//! sending, a small one to all others.

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
use crate::wire::{GroupProtocolKind, MCAST_HEADER_LEN, Packet};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use member::{Member, MemberState};
use patience::HeldUp;

pub(crate) use receive::GroupData;

/// Parameters for joining a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupRequest {
    /// The group: a service type of 64 or more.
    pub group: u32,
    /// The instance by which this member is addressed. Several members may share an instance.
    pub instance: u32,
    /// Visibility of the group. Groups of different scopes are separate.
    pub scope: Scope,
    /// Whether the member receives its own broadcasts.
    pub loopback: bool,
    /// Whether members that join and leave are reported, as empty messages.
    pub events: bool,
}

/// What happened to a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum MembershipEvent {
    /// The member can now be addressed.
    Joined,
    /// Nothing more will arrive from the member.
    Left,
}

/// Origin of a message received in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupSource {
    /// The group's service type.
    pub group: u32,
    /// Instance of the sending member or, for an event, of the member concerned.
    pub instance: u32,
    /// Set if this is a membership event instead of a message.
    pub event: Option<MembershipEvent>,
}

/// An item for the socket's receive queue.
#[derive(Clone, Debug)]
pub(crate) struct GroupItem {
    pub(crate) from: SocketAddr,
    pub(crate) source: GroupSource,
    /// The message; `None` for a membership event.
    pub(crate) message: Option<Packet>,
}

/// Actions that result from handling an input.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Protocol messages to send to members.
    pub(crate) send: Vec<(SocketAddr, GroupProtocolKind)>,
    /// Items to queue for the application.
    pub(crate) queue: Vec<GroupItem>,
    /// Whether a waiting sender may try again.
    pub(crate) wake: bool,
    /// Why messages were dropped.
    pub(crate) dropped: Vec<DropReason>,
}

/// Number of 1 KiB blocks of a group window that a message with this payload uses.
pub(crate) const fn group_blocks(payload_len: usize) -> u32 {
    ((payload_len + MCAST_HEADER_LEN) / 1024 + 1) as u32
}

/// Why a message cannot be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is no such member.
    Nobody,
    /// A member's window has no room, or an acknowledgement is outstanding.
    Congested,
}

/// A socket's membership in a group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) request: GroupRequest,
    /// Key of this member's binding.
    pub(crate) key: u32,
    members: BTreeMap<SocketAddr, Member>,
    /// Number of this member's next broadcast.
    next: Seq,
    /// Members that have not acknowledged the last broadcast yet.
    ackers: BTreeSet<SocketAddr>,
    /// Whether the next broadcast must not overtake unicasts or protocol messages sent earlier. Such a broadcast uses
    /// the same links as they do and requests acknowledgements. Only after all acknowledgements have arrived may a
    /// broadcast use the broadcast link again.
    follows_unicast: bool,
    /// Members with a large window that they were not asked to return, starting with the one that has been idle
    /// longest.
    active: VecDeque<SocketAddr>,
    /// Members waiting for a large window.
    pending: VecDeque<SocketAddr>,
    active_count: usize,
    /// Bindings and protocol messages travel on different links, and a socket may leave and join again, so its bindings
    /// may be ahead of its protocol messages or behind them. For each socket, this is the number of bindings published
    /// and withdrawn whose protocol messages have not arrived yet; a negative number counts memberships whose protocol
    /// messages have arrived, but not their bindings. Each link delivers in order, so this number shows which binding
    /// belongs to which message.
    ahead: BTreeMap<SocketAddr, i32>,
    /// The member to which the last anycast was sent.
    turn: SocketAddr,
    open: bool,
    /// The first broadcast for which there was no room since the last one was sent; `None` if there is none.
    held_up: Option<HeldUp>,
    /// Whether the loss of a member still has to be reported.
    shrank: bool,
}

impl Group {
    /// Creates a membership whose first broadcast has the number `next`. It continues the numbering of the socket's
    /// last membership, so that late messages from that membership are not mistaken for new ones.
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

    /// Whether there is a member to which a message with this destination can be sent; `None` means all members.
    pub(crate) fn reaches(&self, dest: Option<Address>) -> bool {
        let mut receivers = self.members.values().filter(|m| m.is_receiver());
        match dest {
            None => receivers.next().is_some(),
            Some(Address::Socket(to)) => receivers.any(|m| m.addr == to),
            Some(Address::Service { instance, .. }) => receivers.any(|m| m.instance == instance),
            Some(Address::Range(range)) => receivers.any(|m| m.instance == range.lower),
        }
    }

    /// Returns whether a member was lost since the last call.
    pub(crate) const fn take_shrank(&mut self) -> bool {
        core::mem::replace(&mut self.shrank, false)
    }

    /// The binding by which other members find this one.
    pub(crate) const fn binding(&self) -> ServiceRange {
        ServiceRange::single(self.request.group, self.request.instance)
    }

    /// Whether a send would be accepted, as far as this member knows.
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) const fn next(&self) -> Seq {
        self.next
    }

    /// Number of members that may already have a large window when another one gets it: an eighth of all, within
    /// bounds.
    fn active_max(&self) -> usize {
        ((self.members.len() + 1) / 8).clamp(GROUP_ACTIVE_MIN, GROUP_ACTIVE_MAX)
    }

    /// Limit of the socket's receive queue in bytes: four times the sum of all windows, to allow for the overhead of
    /// each message.
    pub(crate) fn receive_bytes(&self) -> usize {
        let idle = (self.members.len() + 1).saturating_sub(self.active_max());
        let blocks = self.active_max() * usize::from(GROUP_WINDOW_ACTIVE)
            + idle * usize::from(GROUP_WINDOW_IDLE);
        blocks * 1024 * 4
    }

    /// Total length in bytes of the messages that wait for earlier ones.
    pub(crate) fn held_bytes(&self) -> usize {
        self.members.values().map(|m| m.deferred_bytes).sum()
    }

    /// The nodes that have members.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeAddr> {
        self.members.keys().map(|addr| addr.node).collect()
    }

    /// Handles the publication of a member's binding.
    pub(crate) fn published(
        &mut self,
        addr: SocketAddr,
        instance: u32,
        key: u32,
        out: &mut Outcome,
    ) {
        if self.ahead_of(addr) < 0 {
            // Everything that belongs to this binding has already ended.
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
                        // Its known state may already belong to this binding, if the earlier membership never saw ours. Its answer
                        // arrives after any LEAVE.
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

    /// Sends JOIN to a member of which only the binding is known.
    fn greet(&mut self, addr: SocketAddr, instance: u32, key: u32, out: &mut Outcome) {
        let mut m = Member::new(addr, MemberState::Published);
        (m.instance, m.key) = (instance, Some(key));
        self.members.insert(addr, m);
        out.send.push((addr, GroupProtocolKind::Join { sync: self.next, window: 0 }));
    }

    /// Reports that a member has joined, and lets waiting senders try again.
    fn taken_in(&mut self, addr: SocketAddr, out: &mut Outcome) {
        out.queue.push(self.news(addr, MembershipEvent::Joined));
        self.reopen(out);
    }

    /// Handles the withdrawal of a member's binding. `contact` says whether there is still contact with the member's
    /// node.
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
        // Without contact, neither its LEAVE nor earlier messages will arrive.
        if !contact || !heard {
            self.bury(addr, heard, out);
        }
    }

    /// Handles the loss of a node: removes its remaining members, including those whose binding was not known and can
    /// therefore not be withdrawn.
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

    /// Records that a member is leaving: nothing more is sent to it, and it no longer counts as having a large window.
    /// Messages that it sent earlier are still delivered.
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

    /// Removes a member. `heard` says that its joining was reported; if so, its leaving is reported, too.
    fn bury(&mut self, addr: SocketAddr, heard: bool, out: &mut Outcome) {
        if heard {
            let news = self.news(addr, MembershipEvent::Left);
            out.queue.push(news);
        }
        let Some(m) = self.members.remove(&addr) else { return };
        self.shrank = true;
        self.promote(out);
        // If one binding still exists while the LEAVE of another is outstanding, this was the other's.
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
        GroupItem { from: addr, source, message: None }
    }

    /// Returns the LEAVE messages to send when the socket leaves the group.
    pub(crate) fn farewells(&self) -> Vec<(SocketAddr, GroupProtocolKind)> {
        let leave = GroupProtocolKind::Leave { sync: self.next };
        self.members.keys().map(|addr| (*addr, leave)).collect()
    }

    /// Sets the node's own address after the address trial; it was 0 before.
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

    /// Records that a send may succeed again, and wakes waiting senders.
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
