//! What carries a mechanism's messages: its family, the transport below it, a node between the ends, and where the ends
//! meet.
//!
//! Each mechanism declares a [`Carrier`] next to its id, so that nothing has to be derived from the id.

use crate::meeting::Meeting;

/// A group of related mechanisms or contenders. Charts draw it in one hue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Memory that both ends map: rings, a heap, memfds that are passed.
    SharedMemory,
    /// UNIX sockets: streams, datagrams and sequenced packets.
    Unix,
    /// Pipes and FIFOs, whether bytes are copied to them or pages are put into them, and
    /// pseudoterminals.
    Pipe,
    /// IP sockets (TCP, UDP, MPTCP, SCTP, SMC), vsock, netlink and frames of an interface.
    Network,
    /// Message queues (POSIX, System V), and the kernel's queue of signals.
    Queue,
    /// Mechanisms driven through io_uring.
    Uring,
    /// TIPC sockets, of the kernel or of a `tipcd`.
    Tipc,
    /// Contenders that are messaging libraries.
    Library,
    /// Contenders that use a language's own facilities, such as Go channels.
    Language,
    /// What fits none of the others: `cma`, `userfaultfd`, `binder`, and contenders that declare this family.
    Other,
}

impl Family {
    /// All families, in the order in which they are shown.
    pub const ALL: [Family; 10] = [
        Family::SharedMemory,
        Family::Unix,
        Family::Pipe,
        Family::Network,
        Family::Queue,
        Family::Uring,
        Family::Tipc,
        Family::Library,
        Family::Language,
        Family::Other,
    ];

    /// The families that a contender can declare, in the order in which messages list them.
    pub const OF_CONTENDERS: [Family; 8] = [
        Family::Library,
        Family::Language,
        Family::SharedMemory,
        Family::Unix,
        Family::Pipe,
        Family::Network,
        Family::Queue,
        Family::Other,
    ];

    /// The family's name in declarations and records.
    pub fn word(self) -> &'static str {
        match self {
            Family::SharedMemory => "shared-memory",
            Family::Unix => "unix",
            Family::Pipe => "pipe",
            Family::Network => "network",
            Family::Queue => "queue",
            Family::Uring => "uring",
            Family::Tipc => "tipc",
            Family::Library => "library",
            Family::Language => "language",
            Family::Other => "other",
        }
    }

    /// Number of times that mechanisms of this family usually copy the payload: once if it is written to shared memory
    /// and read there, twice if it goes through the kernel.
    pub const fn copies(self) -> u32 {
        if matches!(self, Family::SharedMemory) { 1 } else { 2 }
    }

    /// Returns the family that a contender's declaration or record names; `None` if contenders cannot have it.
    pub fn of_contender(word: &str) -> Option<Family> {
        Self::OF_CONTENDERS.into_iter().find(|family| family.word() == word)
    }
}

/// What moves the bytes below a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Memory that both ends can access.
    Memory,
    /// The buffers of pipes or FIFOs, which are pages.
    Pipe,
    /// Sockets of AF_UNIX.
    Unix,
    /// The kernel's message queues, or its queue of signals.
    Queue,
    /// TCP, and MPTCP over it.
    Tcp,
    /// UDP, over IPv4 or IPv6.
    Udp,
    /// SCTP in the one-to-one style (RFC 6458).
    Sctp,
    /// Shared Memory Communications: RDMA, or its loopback device.
    Smc,
    /// Sockets of AF_VSOCK, between a virtual machine and its host.
    Vsock,
    /// TIPC, by the kernel or by a `tipcd`.
    Tipc,
    /// Sockets of AF_NETLINK.
    Netlink,
    /// Frames of an interface, by sockets of AF_PACKET.
    Packet,
    /// The buffers of pseudoterminals.
    Pty,
    /// The kernel's Binder driver, which copies into memory that the receiver maps.
    Binder,
}

impl Transport {
    /// Where the ends of a channel with this transport usually meet. Pipes and memory have no name.
    const fn usual_meeting(self) -> &'static [Meeting] {
        match self {
            Transport::Memory | Transport::Pipe | Transport::Pty => &[Meeting::Descriptor],
            Transport::Unix => &[Meeting::UnixName],
            Transport::Queue => &[Meeting::Ipc],
            Transport::Tcp
            | Transport::Udp
            | Transport::Sctp
            | Transport::Smc
            | Transport::Tipc => &[Meeting::Network],
            Transport::Vsock => &[Meeting::Kernel],
            Transport::Netlink | Transport::Packet => &[Meeting::Netns],
            Transport::Binder => &[Meeting::Path],
        }
    }
}

/// A program or thread in user space that passes messages on between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A LINX node, which registers the endpoints, and forwards their signals if they are on different nodes.
    Linx,
    /// A `tipcd`, Crossway's TIPC node in user space.
    Tipcd,
}

/// What carries a mechanism's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The family in which the mechanism is shown.
    pub family: Family,
    /// What moves the bytes.
    pub transport: Transport,
    /// The node in user space that the mechanism needs; `None` if the kernel and the ends are enough.
    pub node: Option<NodeKind>,
    /// Number of times that the payload is copied on its way.
    pub copies: u32,
    /// What both ends must reach to open the channel; one of these is enough.
    pub meets: &'static [Meeting],
}

impl Carrier {
    /// Creates a carrier without a node, with the number of copies that is usual in its family, and whose ends meet as is
    /// usual for its transport.
    pub const fn new(family: Family, transport: Transport) -> Carrier {
        let meets = transport.usual_meeting();
        Carrier { family, transport, node: None, copies: family.copies(), meets }
    }

    /// Adds a node between the ends.
    pub const fn through(self, node: NodeKind) -> Carrier {
        Carrier { node: Some(node), ..self }
    }

    /// Whether an end enters the kernel for each message: all do but rings in shared memory, a node's included.
    pub const fn enters_kernel(self) -> bool {
        let rings = matches!(self.family, Family::SharedMemory);
        !rings && !matches!(self.node, Some(NodeKind::Tipcd))
    }

    /// Sets the number of copies of the payload to one.
    pub const fn copied_once(self) -> Carrier {
        Carrier { copies: 1, ..self }
    }

    /// Sets where the ends meet.
    pub const fn meeting(self, meets: &'static [Meeting]) -> Carrier {
        Carrier { meets, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    /// Tests that every mechanism has a family for legends and colours. Only `cma` and `userfaultfd`,
    /// which read or write another process's memory, and `binder` are in [`Family::Other`].
    #[test]
    fn every_mechanism_has_a_family() {
        for entry in registry::ALL {
            let family = entry.carrier.family;
            let for_contenders = [Family::Library, Family::Language];
            assert!(!for_contenders.contains(&family), "{}: {family:?}", entry.id);
            let is_other = ["cma", "userfaultfd", "binder"].contains(&entry.id);
            assert_eq!(family == Family::Other, is_other, "{}: {family:?}", entry.id);
        }
    }

    /// Tests that a mechanism declares a node exactly if a `tipcd` or a LINX node is between its ends.
    #[test]
    fn ids_tell_of_the_node_that_is_needed() {
        for entry in registry::ALL {
            let expected = if entry.id.starts_with("tipc-node-") {
                Some(NodeKind::Tipcd)
            } else if entry.id.starts_with("linx-") {
                Some(NodeKind::Linx)
            } else {
                None
            };
            assert_eq!(entry.carrier.node, expected, "{}", entry.id);
        }
    }

    /// Tests that the mechanisms that cross hosts use a network protocol.
    #[test]
    fn transports_agree_with_the_capabilities() {
        for entry in registry::ALL {
            let local = [
                Transport::Memory,
                Transport::Pipe,
                Transport::Unix,
                Transport::Queue,
                Transport::Vsock,
                Transport::Netlink,
                Transport::Packet,
                Transport::Pty,
                Transport::Binder,
            ];
            let transport = entry.carrier.transport;
            assert_eq!((entry.caps)().crosses_hosts, !local.contains(&transport), "{}", entry.id);
        }
    }

    /// Tests that ends on different hosts meet by an address, and those of all other mechanisms by something of one host.
    #[test]
    fn ends_meet_by_an_address_exactly_if_they_may_be_on_different_hosts() {
        for entry in registry::ALL {
            let by_address = entry.carrier.meets.contains(&Meeting::Network);
            assert_eq!(by_address, (entry.caps)().crosses_hosts, "{}", entry.id);
            assert!(!entry.carrier.meets.is_empty(), "{}", entry.id);
        }
        let meets = |id: &str| registry::find(id).expect("a mechanism").carrier.meets;
        for id in ["pipe", "splice", "vmsplice", "uring-pipe", "shm-pipe", "memfd", "shm-futex"] {
            assert_eq!(meets(id), [Meeting::Descriptor], "{id}");
        }
        assert_eq!(meets("fifo"), [Meeting::Path]);
        assert_eq!(meets("binder"), [Meeting::Path]);
        assert_eq!(meets("posix-mq"), [Meeting::Ipc, Meeting::Descriptor]);
        assert_eq!(meets("cma"), [Meeting::Pid]);
    }

    /// Tests that rings are not measured through virtual calls. Passing a memfd is a system call, but sharing its memory
    /// afterwards is not.
    #[test]
    fn rings_do_not_enter_the_kernel_for_each_message() {
        let rings: Vec<&str> = registry::ALL
            .iter()
            .filter(|entry| !entry.carrier.enters_kernel())
            .map(|entry| entry.id)
            .collect();
        assert_eq!(
            rings,
            [
                "tipc-node-stream",
                "tipc-node-seqpacket",
                "tipc-node-rdm",
                "tipc-node-dgram",
                "memfd",
                "shm-futex",
                "shm-huge",
                "shm-secret",
                "shm-waitv",
                "shm-spin",
                "shm-eventfd",
                "shm-pipe",
                "sysv-shm",
                "posix-shm",
                "linx-shm"
            ]
        );
    }

    #[test]
    fn contenders_choose_among_their_families() {
        for family in Family::OF_CONTENDERS {
            assert_eq!(Family::of_contender(family.word()), Some(family));
        }
        assert_eq!(Family::of_contender("shared-memory"), Some(Family::SharedMemory));
        assert_eq!(Family::of_contender("tipc"), None);
    }
}
