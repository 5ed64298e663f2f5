//! One other member of a group, as this member sees it.

use crate::addr::SocketAddr;
use crate::limits::{GROUP_WINDOW_ACTIVE, GROUP_WINDOW_IDLE};
use crate::seq::Seq;
use crate::wire::GroupCast;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Where a member stands. Both its own word and its binding must be known before it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberState {
    /// It said that it is there; its binding is not known yet.
    Joining,
    /// Its binding is known; it has not said anything yet.
    Published,
    /// It is there and has a small window.
    Joined,
    /// It sends, and waits for its turn to have a large window.
    Pending,
    /// It sends and has a large window.
    Active,
    /// It was asked to give its large window back.
    Reclaiming,
    /// It gave the window back; what it sent before is still being read.
    Remitted,
    /// It is leaving: what it sent before is still delivered.
    Leaving,
}

/// What waits for its turn from one member.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    Data { bytes: Vec<u8>, cast: GroupCast, instance: u32, wants_ack: bool },
    Left,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) addr: SocketAddr,
    pub(super) instance: u32,
    pub(super) state: MemberState,
    /// Key of its binding, once known: a late withdrawal of an earlier one must not end a new membership.
    pub(super) key: Option<u32>,
    /// A new binding of the same socket, seen before the end of the old membership.
    pub(super) reborn: Option<(u32, u32)>,
    /// What it said about a new membership before everything of the old one was there.
    pub(super) rejoined: Option<(Seq, u16)>,
    /// It said farewell; what it sent before is not complete yet.
    pub(super) said_farewell: bool,
    /// It was taken for the owner of a new binding because it answered; a farewell can still show that this was too early.
    pub(super) revived: bool,
    /// Blocks that it lets us send.
    pub(super) window: u32,
    /// Blocks that it may send or that wait to be read.
    pub(super) advertised: u32,
    /// Number of its next broadcast.
    pub(super) next: Seq,
    pub(super) deferred: VecDeque<(Seq, Waiting)>,
    pub(super) deferred_octets: usize,
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
            deferred_octets: 0,
        }
    }

    /// It gets what we send, as far as its window goes.
    pub(super) const fn is_receiver(&self) -> bool {
        !matches!(self.state, MemberState::Joining | MemberState::Leaving)
    }

    /// What it sends is heard.
    pub(super) const fn is_sender(&self) -> bool {
        !matches!(self.state, MemberState::Joining | MemberState::Published)
    }

    /// It counts among those with a large window.
    pub(super) const fn is_active(&self) -> bool {
        matches!(self.state, MemberState::Active | MemberState::Reclaiming | MemberState::Remitted)
    }

    /// Blocks that make its window whole again; they are given with this call.
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

    /// Room that its messages still have when they arrive out of order.
    pub(super) fn may_defer(&self, octets: usize) -> bool {
        self.deferred_octets + octets <= 2 * 1024 * usize::from(GROUP_WINDOW_ACTIVE)
    }

    /// Puts something in its place: broadcasts by their number, the rest behind everything.
    pub(super) fn defer(&mut self, number: Seq, what: Waiting) {
        let broadcast = match &what {
            Waiting::Data { bytes, cast, .. } => {
                self.deferred_octets += bytes.len();
                *cast != GroupCast::Unicast
            }
            Waiting::Left => false,
        };
        let place = self.deferred.iter().position(|(other, _)| broadcast && number.before(*other));
        self.deferred.insert(place.unwrap_or(self.deferred.len()), (number, what));
    }

    /// What is next in order, if it is there.
    pub(super) fn take_next(&mut self) -> Option<(Seq, Waiting)> {
        if self.deferred.front()?.0.after(self.next) {
            return None;
        }
        let (number, what) = self.deferred.pop_front()?;
        if let Waiting::Data { bytes, .. } = &what {
            self.deferred_octets -= bytes.len();
        }
        Some((number, what))
    }
}
