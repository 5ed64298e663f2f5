//! Requests to join a group.

use crate::address::Scope;

/// Flag TIPC_GROUP_LOOPBACK: the member receives its own messages.
const LOOPBACK: u32 = 1;
/// Flag TIPC_GROUP_MEMBER_EVTS: the member is notified of others that join or leave.
const MEMBER_EVENTS: u32 = 2;

/// A request to join a group, `struct tipc_group_req` of linux/tipc.h.
///
/// ```
/// use crossway_tipc_client::Group;
///
/// let group = Group { member_events: true, ..Group::new(4711, 1) };
/// assert!(!group.loopback);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The service type that identifies the group; types below 64 are reserved.
    pub service: u32,
    /// The instance by which other members address this one; it need not be unique.
    pub instance: u32,
    /// Whether members on other nodes belong to the group.
    pub scope: Scope,
    /// Whether the member also receives its own messages that are addressed to it or to all.
    pub loopback: bool,
    /// Whether the member receives an [`Event`](crate::Event) when a member joins or leaves.
    pub member_events: bool,
}

impl Group {
    /// Returns a request to join a cluster-wide group as `instance`, without receiving one's own messages or membership
    /// events.
    pub fn new(service: u32, instance: u32) -> Group {
        Group { service, instance, scope: Scope::Cluster, loopback: false, member_events: false }
    }

    pub(crate) fn request(self) -> [u32; 4] {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.loopback, LOOPBACK) | flag(self.member_events, MEMBER_EVENTS);
        [self.service, self.instance, self.scope.number(), flags]
    }
}
