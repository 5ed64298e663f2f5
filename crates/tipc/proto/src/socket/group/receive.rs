//! Handles messages from members: puts them in order, passes them on and renews windows.

use super::member::{MemberState, Waiting};
use super::{Group, GroupItem, GroupSource, Outcome, group_blocks};
use crate::addr::SocketAddr;
use crate::drops::DropReason;
use crate::limits::{GROUP_WINDOW_ACTIVE, GROUP_WINDOW_IDLE};
use crate::seq::Seq;
use crate::wire::{GroupCast, GroupProtocolKind, Packet};

/// The parts of a group data message that matter for ordering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupData<'a> {
    pub(crate) cast: GroupCast,
    pub(crate) instance: u32,
    pub(crate) number: Seq,
    pub(crate) wants_ack: bool,
    pub(crate) message: &'a Packet,
}

impl Group {
    /// Handles a message from a member.
    pub(crate) fn accept(&mut self, from: SocketAddr, data: &GroupData<'_>, out: &mut Outcome) {
        let Some(m) = self.members.get_mut(&from).filter(|m| m.is_sender()) else {
            out.dropped.push(DropReason::NotMember);
            return;
        };
        if data.number.before(m.next) {
            out.dropped.push(DropReason::Duplicate);
            return;
        }
        if !m.may_defer(data.message.size()) {
            out.dropped.push(DropReason::Overload);
            return;
        }
        let GroupData { cast, instance, number, wants_ack, message } = *data;
        m.defer(number, Waiting::Data { message: message.clone(), cast, instance, wants_ack });
        self.advance(from, out);
    }

    /// Delivers the messages of a member that are next in order.
    pub(super) fn advance(&mut self, from: SocketAddr, out: &mut Outcome) {
        while let Some(m) = self.members.get_mut(&from)
            && let Some((number, what)) = m.take_next()
        {
            let Waiting::Data { message, cast, instance, wants_ack } = what else {
                self.bury(from, true, out);
                return;
            };
            if cast != GroupCast::Unicast {
                if number != m.next {
                    out.dropped.push(DropReason::Duplicate);
                    continue;
                }
                m.next = m.next.next();
                if wants_ack {
                    out.send.push((from, GroupProtocolKind::Ack { next: m.next }));
                }
            }
            let payload = message.view().data().len();
            let for_others = cast == GroupCast::Multicast && instance != self.request.instance;
            if for_others || payload == 0 {
                // Not addressed to this member, but it used the window.
                self.read(from, group_blocks(payload), out);
                continue;
            }
            let source =
                GroupSource { group: self.request.group, instance: m.instance, event: None };
            out.queue.push(GroupItem { from, source, message: Some(message) });
        }
    }

    /// Counts a message of this many blocks that the application has read, and renews the sender's window if necessary.
    pub(crate) fn read(&mut self, from: SocketAddr, blocks: u32, out: &mut Outcome) {
        let (active_max, active_before) = (self.active_max(), self.active_count);
        let Some(m) = self.members.get_mut(&from) else { return };
        m.advertised = m.advertised.saturating_sub(blocks);
        match m.state {
            MemberState::Joined => {
                if active_before <= active_max {
                    m.state = MemberState::Active;
                    self.active_count += 1;
                    self.active.push_back(from);
                } else {
                    m.state = MemberState::Pending;
                    self.pending.push_back(from);
                }
                let window = m.grant();
                out.send.push((from, GroupProtocolKind::Advertise { window }));
                if active_before >= active_max * 3 / 4 {
                    self.reclaim(out);
                }
            }
            MemberState::Active => {
                self.active.retain(|a| *a != from);
                self.active.push_back(from);
                if m.advertised <= u32::from(GROUP_WINDOW_ACTIVE) * 3 / 4 {
                    let window = m.grant();
                    out.send.push((from, GroupProtocolKind::Advertise { window }));
                }
            }
            // Continue with the small window until a large one is free, even if the members holding
            // large ones never return them.
            MemberState::Pending => {
                let window = m.grant();
                out.send.push((from, GroupProtocolKind::Advertise { window }));
            }
            MemberState::Remitted if m.advertised <= u32::from(GROUP_WINDOW_IDLE) => {
                self.calm(from, out);
            }
            _ => {}
        }
    }

    /// Asks the member that has been idle longest to return its large window.
    fn reclaim(&mut self, out: &mut Outcome) {
        if self.active.len() < 2 {
            return;
        }
        let Some(addr) = self.active.pop_front() else { return };
        if let Some(m) = self.members.get_mut(&addr) {
            m.state = MemberState::Reclaiming;
            out.send.push((addr, GroupProtocolKind::Reclaim));
        }
    }
}
