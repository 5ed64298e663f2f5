//! Handles protocol messages between members: those about membership and those about windows.

use super::member::{Member, MemberState, Waiting};
use super::{Group, MembershipEvent, Outcome};
use crate::addr::SocketAddr;
use crate::drops::DropReason;
use crate::limits::{GROUP_WINDOW_ACTIVE, GROUP_WINDOW_IDLE};
use crate::seq::Seq;
use crate::wire::GroupProtocolKind;

impl Group {
    /// Handles a group protocol message. `own` is the address of this member.
    pub(crate) fn handle_protocol(
        &mut self,
        own: SocketAddr,
        from: SocketAddr,
        kind: GroupProtocolKind,
        out: &mut Outcome,
    ) {
        if from == own && !self.request.loopback {
            out.dropped.push(DropReason::NotMember);
            return;
        }
        if let GroupProtocolKind::Join { sync, window } = kind {
            self.handle_join(from, sync, window, out);
            return;
        }
        let Some(m) = self.members.get_mut(&from) else {
            out.dropped.push(DropReason::NotMember);
            return;
        };
        match kind {
            GroupProtocolKind::Join { .. } => {}
            GroupProtocolKind::Leave { sync } => self.handle_leave(from, sync, out),
            GroupProtocolKind::Advertise { window } => {
                // Well-behaved members never grant more than a large window.
                let most = u32::from(GROUP_WINDOW_ACTIVE);
                m.window = (m.window + u32::from(window)).min(most);
                self.reopen(out);
            }
            GroupProtocolKind::Ack { next } => {
                // Duplicate or premature acknowledgements have no effect.
                let settles = !next.before(self.next);
                if settles && self.ackers.remove(&from) && self.ackers.is_empty() {
                    self.reopen(out);
                }
            }
            GroupProtocolKind::Reclaim => {
                let window = m.window.min(u32::from(u16::MAX)) as u16;
                m.window = u32::from(GROUP_WINDOW_IDLE);
                out.send.push((from, GroupProtocolKind::Remit { window }));
                self.reopen(out);
            }
            GroupProtocolKind::Remit { window } => self.handle_remit(from, window.into(), out),
        }
    }

    pub(super) fn handle_join(
        &mut self,
        from: SocketAddr,
        sync: Seq,
        window: u16,
        out: &mut Outcome,
    ) {
        let has_room = self.has_room_for_stranger();
        // Endless JOINs add up to no more than a large window.
        let granted = |m: u32| (m + u32::from(window)).min(u32::from(GROUP_WINDOW_ACTIVE));
        match self.members.get_mut(&from) {
            None if has_room => {
                let mut m = Member::new(from, MemberState::Joining);
                (m.next, m.window) = (sync, granted(0));
                self.members.insert(from, m);
            }
            None => out.dropped.push(DropReason::TooManyMembers),
            Some(m) if m.state == MemberState::Published => {
                (m.next, m.state) = (sync, MemberState::Joined);
                m.window = granted(m.window);
                let more = m.grant();
                out.send.push((from, GroupProtocolKind::Advertise { window: more }));
                self.taken_in(from, out);
            }
            // A new membership; first, everything from the old one must be delivered.
            Some(m) if m.said_farewell => {
                let before = m.rejoined.map_or(0, |(_, window)| window);
                m.rejoined = Some((sync, window.saturating_add(before)));
            }
            Some(m) if m.state == MemberState::Joining => {
                m.next = sync;
                m.window = granted(m.window);
            }
            // The answer to a JOIN that crossed the peer's own: only the window that it grants is new.
            Some(m) => {
                m.window = granted(m.window);
                self.reopen(out);
            }
        }
    }

    fn handle_leave(&mut self, from: SocketAddr, sync: Seq, out: &mut Outcome) {
        let Some(m) = self.members.get_mut(&from) else { return };
        if m.said_farewell {
            // The end of a later membership, while the end of an earlier one still waits for messages sent before it.
            m.rejoined = None;
            if self.ahead_of(from) > 0 || !self.forget_rebirth(from) {
                self.shift(from, -1);
            }
            return;
        }
        match m.state {
            MemberState::Joining => {
                self.members.remove(&from);
                self.shift(from, -1);
                return;
            }
            MemberState::Published => {
                // A LEAVE before any other message may belong to this binding or to an earlier one.
                if self.ahead_of(from) > 0 {
                    self.shift(from, -1);
                } else {
                    self.members.remove(&from);
                    self.shrank = true;
                }
                return;
            }
            _ => {}
        }
        let Some(m) = self.members.get_mut(&from) else { return };
        // Processed after everything that it sent before.
        m.said_farewell = true;
        m.defer(sync, Waiting::Left);
        self.retire(from);
        self.reopen(out);
        self.advance(from, out);
    }

    /// Handles an answer from a socket whose former binding was withdrawn, but whose LEAVE has not arrived. Since the
    /// socket still answers, what is known about it belongs to its new binding. `left` is the part of the window that
    /// it returns, in blocks.
    fn revive(&mut self, from: SocketAddr, left: u32, out: &mut Outcome) {
        let Some(m) = self.members.get_mut(&from) else { return };
        let Some((instance, key)) = m.reborn.take() else {
            out.dropped.push(DropReason::NotMember);
            return;
        };
        out.queue.push(self.news(from, MembershipEvent::Left));
        if let Some(m) = self.members.get_mut(&from) {
            (m.instance, m.key, m.state) = (instance, Some(key), MemberState::Joined);
            m.revived = true;
            m.advertised = u32::from(GROUP_WINDOW_IDLE) + m.advertised.saturating_sub(left);
        }
        self.taken_in(from, out);
    }

    /// Forgets the binding of a later membership of the same socket. Returns whether one was known.
    fn forget_rebirth(&mut self, from: SocketAddr) -> bool {
        self.members.get_mut(&from).and_then(|m| m.reborn.take()).is_some()
    }

    fn handle_remit(&mut self, from: SocketAddr, left: u32, out: &mut Outcome) {
        let Some(m) = self.members.get_mut(&from) else { return };
        if m.state == MemberState::Leaving && !m.said_farewell {
            self.revive(from, left, out);
            return;
        }
        if m.state != MemberState::Reclaiming {
            out.dropped.push(DropReason::NotMember);
            return;
        }
        // Messages sent before that may still be in flight or unread; no more than was granted can be left.
        let in_flight = m.advertised.saturating_sub(left);
        m.advertised = u32::from(GROUP_WINDOW_IDLE) + in_flight;
        m.state = MemberState::Remitted;
        if in_flight == 0 {
            self.calm(from, out);
        }
    }

    /// Handles the end of a member's large window: the member has returned it, and the application has read everything
    /// sent earlier.
    pub(super) fn calm(&mut self, addr: SocketAddr, out: &mut Outcome) {
        let Some(m) = self.members.get_mut(&addr) else { return };
        m.state = MemberState::Joined;
        self.active_count -= 1;
        let more = m.grant();
        if more > 0 {
            out.send.push((addr, GroupProtocolKind::Advertise { window: more }));
        }
        self.promote(out);
    }

    /// If another member may have a large window, grants it to the member that has waited longest.
    pub(super) fn promote(&mut self, out: &mut Outcome) {
        if self.active_count > self.active_max() {
            return;
        }
        let Some(addr) = self.pending.pop_front() else { return };
        let Some(m) = self.members.get_mut(&addr) else { return };
        m.state = MemberState::Active;
        self.active_count += 1;
        self.active.push_back(addr);
        let more = m.grant();
        if more > 0 {
            out.send.push((addr, GroupProtocolKind::Advertise { window: more }));
        }
    }
}
