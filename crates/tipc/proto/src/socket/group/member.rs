//! What a member of a group knows about another member.

use crate::addr::SocketAddr;
use crate::limits::{GROUP_WINDOW_ACTIVE, GROUP_WINDOW_IDLE};
use crate::seq::Seq;
use crate::wire::{GroupCast, Packet};
use alloc::collections::VecDeque;

/// State of a member. It becomes a full member when both its JOIN and its binding have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberState {
    /// The member's JOIN has arrived, but its binding is not known yet.
    Joining,
    /// The member's binding is known, but its JOIN has not arrived yet.
    Published,
    /// A full member with a small window.
    Joined,
    /// The member is sending and waits for a large window.
    Pending,
    /// The member is sending and has a large window.
    Active,
    /// The member was asked to return its large window.
    Reclaiming,
    /// The member has returned its large window, but the application has not read all earlier messages yet.
    Remitted,
    /// The member is leaving. Messages that it sent earlier are still delivered.
    Leaving,
}

/// An item that a member has sent, and that waits for earlier items from the same member.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    Data { message: Packet, cast: GroupCast, instance: u32, wants_ack: bool },
    Left,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) addr: SocketAddr,
    pub(super) instance: u32,
    pub(super) state: MemberState,
    /// Key of the member's binding; `None` until it is known. With this key, a late withdrawal of an earlier binding
    /// does not end a new membership.
    pub(super) key: Option<u32>,
    /// Instance and key of a new binding of the same socket that was published before the old membership ended.
    pub(super) reborn: Option<(u32, u32)>,
    /// The sequence number in the JOIN of a new membership, which arrived while messages of the old membership were
    /// still missing, and the window that this JOIN and earlier ones like it grant.
    pub(super) rejoined: Option<(Seq, u16)>,
    /// Whether the member's LEAVE has arrived while messages that it sent earlier are still missing.
    pub(super) said_farewell: bool,
    /// Whether the member was assumed to belong to a new binding because it still answered. A LEAVE may disprove this
    /// later.
    pub(super) revived: bool,
    /// Number of blocks that we may still send to this member.
    pub(super) window: u32,
    /// Number of blocks granted to this member that it has not sent yet, or that it has sent but the application has
    /// not read yet.
    pub(super) advertised: u32,
    /// Sequence number of the member's next broadcast.
    pub(super) next: Seq,
    pub(super) deferred: VecDeque<(Seq, Waiting)>,
    pub(super) deferred_bytes: usize,
}

impl Member {
    pub(super) const fn new(addr: SocketAddr, state: MemberState) -> Self {
        Self {
            addr,
            instance: 0,
            state,
            key: None,
            reborn: None,
            rejoined: None,
            said_farewell: false,
            revived: false,
            window: 0,
            advertised: 0,
            next: Seq(0),
            deferred: VecDeque::new(),
            deferred_bytes: 0,
        }
    }

    /// Whether messages can be sent to the member when its window has room.
    pub(super) const fn is_receiver(&self) -> bool {
        !matches!(self.state, MemberState::Joining | MemberState::Leaving)
    }

    /// Whether messages from the member are accepted.
    pub(super) const fn is_sender(&self) -> bool {
        !matches!(self.state, MemberState::Joining | MemberState::Published)
    }

    /// Whether the member counts as having a large window.
    pub(super) const fn is_active(&self) -> bool {
        matches!(self.state, MemberState::Active | MemberState::Reclaiming | MemberState::Remitted)
    }

    /// Grants the member as many blocks as are missing from its full window, and returns their number.
    pub(super) fn grant(&mut self) -> u16 {
        let whole = match self.state {
            MemberState::Active => GROUP_WINDOW_ACTIVE,
            MemberState::Joined | MemberState::Pending => GROUP_WINDOW_IDLE,
            _ => 0,
        };
        let more = u32::from(whole).saturating_sub(self.advertised);
        self.advertised += more;
        more as u16
    }

    /// Whether there is room to store a message of this length that arrives out of order.
    pub(super) fn may_defer(&self, len: usize) -> bool {
        self.deferred_bytes + len <= 2 * 1024 * usize::from(GROUP_WINDOW_ACTIVE)
    }

    /// Inserts an item in order: a broadcast by its number, any other item after all items with the same number.
    pub(super) fn defer(&mut self, number: Seq, what: Waiting) {
        let broadcast = match &what {
            Waiting::Data { message, cast, .. } => {
                self.deferred_bytes += message.size();
                *cast != GroupCast::Unicast
            }
            Waiting::Left => false,
        };
        let place = self.deferred.iter().position(|(other, _)| broadcast && number.before(*other));
        self.deferred.insert(place.unwrap_or(self.deferred.len()), (number, what));
    }

    /// Removes and returns the next item in order, if it has arrived.
    pub(super) fn take_next(&mut self) -> Option<(Seq, Waiting)> {
        if self.deferred.front()?.0.after(self.next) {
            return None;
        }
        let (number, what) = self.deferred.pop_front()?;
        if let Waiting::Data { message, .. } = &what {
            self.deferred_bytes -= message.size();
        }
        Some((number, what))
    }
}
