//! Requests and answers on the control connection.
//!
//! A request is one message: its number (4 octets), then its fields. The answer is one message: an errno (4 octets, 0 for success),
//! then fields and descriptors as the request has them. An errno of [`VERSION_MISMATCH`] answers a hello of another version, and the two
//! versions follow.

pub use super::fields::{Head, Reader, Writer};
use crate::address::{ENCODED_LEN, SocketAddress};

/// Largest request or answer: a connection request with a whole message.
pub const LEN_MAX: usize = super::MESSAGE_LEN_MAX + 64;

/// The first octets of every hello.
pub const MAGIC: u32 = 0x4357_5450;

/// EPROTO: the two ends speak different versions.
pub const VERSION_MISMATCH: i32 = 71;

/// An option that is not the kernel's: octets of the receive queue, which there is SO_RCVBUF.
pub const RECEIVE_OCTETS: u32 = 0x1_0008;

/// What a socket is, in the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream = 1,
    /// SOCK_DGRAM.
    Dgram = 2,
    /// SOCK_RDM.
    Rdm = 4,
    /// SOCK_SEQPACKET.
    Seqpacket = 5,
}

impl Kind {
    /// From the kernel's number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Stream),
            2 => Some(Self::Dgram),
            4 => Some(Self::Rdm),
            5 => Some(Self::Seqpacket),
            _ => None,
        }
    }

    /// Sockets of this kind are connected before they exchange data.
    pub const fn is_connected_kind(self) -> bool {
        matches!(self, Self::Stream | Self::Seqpacket)
    }
}

/// What a program asks. `token` names a socket; only who holds it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first: answered by [`Welcome`] and two descriptors, the slots and the epochs.
    Hello {
        /// The version spoken.
        version: u16,
    },
    /// A new socket: answered by [`Opened`] and its data descriptor.
    Open {
        /// Of this kind.
        kind: Kind,
    },
    /// Binds, or takes back a binding.
    Bind {
        /// The socket.
        token: u64,
        /// struct sockaddr_tipc.
        address: [u8; ENCODED_LEN],
    },
    /// Takes back all bindings.
    UnbindAll {
        /// The socket.
        token: u64,
    },
    /// Takes connections from now on.
    Listen {
        /// The socket.
        token: u64,
        /// Octets by which the descriptor was made unwritable.
        pad: u32,
    },
    /// Asks for a connection: answered EINPROGRESS if it is under way; its end shows in the slot and at the descriptor.
    Connect {
        /// The socket.
        token: u64,
        /// struct sockaddr_tipc.
        address: [u8; ENCODED_LEN],
        /// Octets by which the descriptor was made unwritable, to be thrown away when the answer has come.
        pad: u32,
        /// Octets sent with the request.
        payload: &'a [u8],
    },
    /// Ends the connection in good order.
    Shutdown {
        /// The socket.
        token: u64,
    },
    /// Addresses and queue: answered by [`Report`].
    Report {
        /// The socket.
        token: u64,
    },
    /// Sets an option of level SOL_TIPC.
    SetOption {
        /// The socket.
        token: u64,
        /// The option's number.
        name: u32,
        /// Its value.
        value: u32,
    },
    /// Reads one: answered by 4 octets.
    GetOption {
        /// The socket.
        token: u64,
        /// The option's number.
        name: u32,
    },
    /// Asks whether a destination is reachable now; EHOSTUNREACH if not.
    Resolve {
        /// The socket that wants to send.
        token: u64,
        /// struct sockaddr_tipc.
        address: [u8; ENCODED_LEN],
    },
    /// Joins a group.
    Join {
        /// The socket.
        token: u64,
        /// struct tipc_group_req: type, instance, scope, flags.
        group: [u32; 4],
    },
    /// Leaves the group.
    Leave {
        /// The socket.
        token: u64,
    },
    /// The socket of a descriptor that comes with the request: who holds a socket may use it, however it was come by. Answered by
    /// [`Opened`], the kind and the slots of its region, and the region's descriptor; EBADF for what is no socket of this tipcd.
    Adopt,
    /// The identity of a node: answered by 16 octets, or EADDRNOTAVAIL.
    Identity {
        /// Its address.
        node: u32,
    },
    /// The name of a link: answered by its octets, or EADDRNOTAVAIL.
    LinkName {
        /// The peer's address.
        node: u32,
        /// The number of the own bearer.
        bearer: u32,
    },
    /// An operator's order: answered by EPERM, or by a descriptor of the outcome and, if that is what was asked, one more.
    Administer {
        /// [`crate::admin::Order`] as JSON.
        order: &'a [u8],
    },
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version spoken.
    pub version: u16,
    /// Slots in the client's region: as many sockets as the program may have.
    pub slots: u32,
    /// The node's address, 0 while it has none.
    pub node: u32,
}

/// The answer to an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Names the socket in requests.
    pub token: u64,
    /// Its place in the client's region.
    pub slot: u32,
}

/// The answer to an adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Names the socket in requests.
    pub opened: Opened,
    /// What it is.
    pub kind: Kind,
    /// Slots of the region that its slot is in.
    pub slots: u32,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Own address.
    pub local: SocketAddress,
    /// The connection's other end.
    pub peer: Option<SocketAddress>,
    /// Messages that wait in the node.
    pub queued_messages: u32,
    /// Their octets.
    pub queued_octets: u32,
}

impl<'a> Request<'a> {
    /// As octets.
    pub fn encode(&self) -> Vec<u8> {
        [self.head().octets(), self.tail()].concat()
    }

    /// What stands behind the head; empty but for requests that carry a payload or an order.
    pub const fn tail(&self) -> &'a [u8] {
        match *self {
            Self::Connect { payload, .. } => payload,
            Self::Administer { order } => order,
            _ => &[],
        }
    }

    /// All but the tail, without a memory allocation: for who may not make one.
    pub fn head(&self) -> Head {
        let op = |number: u32| Head::default().u32(number);
        match *self {
            Self::Hello { version } => op(1).u32(MAGIC).u32(version.into()),
            Self::Open { kind } => op(2).u32(kind as u32),
            Self::Bind { token, address } => op(3).u64(token).put(&address),
            Self::UnbindAll { token } => op(4).u64(token),
            Self::Listen { token, pad } => op(5).u64(token).u32(pad),
            Self::Connect { token, address, pad, .. } => op(6).u64(token).put(&address).u32(pad),
            Self::Administer { .. } => op(64),
            Self::Shutdown { token } => op(7).u64(token),
            Self::Report { token } => op(8).u64(token),
            Self::SetOption { token, name, value } => op(9).u64(token).u32(name).u32(value),
            Self::GetOption { token, name } => op(10).u64(token).u32(name),
            Self::Resolve { token, address } => op(11).u64(token).put(&address),
            Self::Join { token, group } => {
                group.iter().fold(op(12).u64(token), |head, word| head.u32(*word))
            }
            Self::Leave { token } => op(13).u64(token),
            Self::Adopt => op(14),
            Self::Identity { node } => op(15).u32(node),
            Self::LinkName { node, bearer } => op(16).u32(node).u32(bearer),
        }
    }

    /// From octets; `None` for what no program of this version sends.
    pub fn decode(octets: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        let op = r.u32()?;
        if op == 1 {
            // A hello of any version is understood, so that it can be answered.
            return (r.u32()? == MAGIC)
                .then_some(())
                .and_then(|()| r.u32())
                .and_then(|version| u16::try_from(version).ok())
                .map(|version| Self::Hello { version });
        }
        if op == 64 {
            return Some(Self::Administer { order: r.rest() });
        }
        if op == 2 {
            let kind = Kind::from_number(r.u32()?)?;
            return r.0.is_empty().then_some(Self::Open { kind });
        }
        let nodes = match op {
            14 => Some(Self::Adopt),
            15 => Some(Self::Identity { node: r.u32()? }),
            16 => Some(Self::LinkName { node: r.u32()?, bearer: r.u32()? }),
            _ => None,
        };
        if nodes.is_some() {
            return nodes.filter(|_| r.0.is_empty());
        }
        let token = r.u64()?;
        let request = match op {
            3 => Self::Bind { token, address: r.array()? },
            4 => Self::UnbindAll { token },
            5 => Self::Listen { token, pad: r.u32()? },
            6 => Self::Connect { token, address: r.array()?, pad: r.u32()?, payload: r.rest() },
            7 => Self::Shutdown { token },
            8 => Self::Report { token },
            9 => Self::SetOption { token, name: r.u32()?, value: r.u32()? },
            10 => Self::GetOption { token, name: r.u32()? },
            11 => Self::Resolve { token, address: r.array()? },
            12 => Self::Join { token, group: [r.u32()?, r.u32()?, r.u32()?, r.u32()?] },
            13 => Self::Leave { token },
            _ => return None,
        };
        r.0.is_empty().then_some(request)
    }
}

impl Welcome {
    /// As an answer.
    pub fn encode(self) -> Vec<u8> {
        let answer = Writer::answer(0).u32(self.version.into());
        answer.u32(self.slots).u32(self.node).finish()
    }

    /// From what follows the errno.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let version = u16::try_from(r.u32()?).ok()?;
        Some(Self { version, slots: r.u32()?, node: r.u32()? })
    }
}

impl Opened {
    /// As an answer.
    pub fn encode(self) -> Vec<u8> {
        Writer::answer(0).u64(self.token).u32(self.slot).finish()
    }

    /// From what follows the errno, or from an offer's payload.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { token: r.u64()?, slot: r.u32()? })
    }

    /// As an offer's payload.
    pub fn offer(self) -> [u8; super::record::OFFER_LEN] {
        let mut raw = [0; super::record::OFFER_LEN];
        raw[..8].copy_from_slice(&self.token.to_ne_bytes());
        raw[8..12].copy_from_slice(&self.slot.to_ne_bytes());
        raw
    }
}

impl Adopted {
    /// As an answer.
    pub fn encode(self) -> Vec<u8> {
        let answer = Writer::answer(0).u64(self.opened.token).u32(self.opened.slot);
        answer.u32(self.kind as u32).u32(self.slots).finish()
    }

    /// From what follows the errno.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let opened = Opened::decode(r)?;
        Some(Self { opened, kind: Kind::from_number(r.u32()?)?, slots: r.u32()? })
    }
}

impl Report {
    /// As an answer.
    pub fn encode(self) -> Vec<u8> {
        let peer = self.peer.unwrap_or_default();
        Writer::answer(0)
            .u32(self.local.port)
            .u32(self.local.node)
            .u32(self.peer.is_some().into())
            .u32(peer.port)
            .u32(peer.node)
            .u32(self.queued_messages)
            .u32(self.queued_octets)
            .finish()
    }

    /// From what follows the errno.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let local = SocketAddress { port: r.u32()?, node: r.u32()? };
        let has_peer = r.u32()? != 0;
        let peer = SocketAddress { port: r.u32()?, node: r.u32()? };
        Some(Self {
            local,
            peer: has_peer.then_some(peer),
            queued_messages: r.u32()?,
            queued_octets: r.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_from_their_octets_and_nothing_else_does() {
        let (token, address) = (0x1234_5678_9abc_def0, [7; 16]);
        let requests = [
            Request::Hello { version: 1 },
            Request::Open { kind: Kind::Rdm },
            Request::Bind { token, address },
            Request::UnbindAll { token },
            Request::Listen { token, pad: 1 },
            Request::Connect { token, address, pad: 9, payload: b"hello" },
            Request::Shutdown { token },
            Request::Report { token },
            Request::SetOption { token, name: 127, value: 3 },
            Request::GetOption { token, name: 127 },
            Request::Resolve { token, address },
            Request::Join { token, group: [1, 2, 3, 4] },
            Request::Leave { token },
            Request::Adopt,
            Request::Identity { node: 7 },
            Request::LinkName { node: 7, bearer: 1 },
        ];
        for request in requests {
            let octets = request.encode();
            assert_eq!(Request::decode(&octets), Some(request));
            for len in 0..octets.len().min(28) {
                assert_eq!(Request::decode(&octets[..len]), None, "{request:?} cut to {len}");
            }
        }
        assert_eq!(Request::decode(&[0xff; 40]), None);
        let mut long = Request::Leave { token }.encode();
        long.push(0);
        assert_eq!(Request::decode(&long), None, "something follows");
    }

    #[test]
    fn answers_come_back_from_their_octets() {
        let skip_errno = |octets: Vec<u8>| octets[4..].to_vec();
        let welcome = Welcome { version: 1, slots: 2, node: 3 };
        let raw = skip_errno(welcome.encode());
        assert_eq!(Welcome::decode(&mut Reader::new(&raw)), Some(welcome));
        let opened = Opened { token: 5, slot: 6 };
        assert_eq!(Opened::decode(&mut Reader::new(&opened.offer())), Some(opened));
        let raw = skip_errno(opened.encode());
        assert_eq!(Opened::decode(&mut Reader::new(&raw)), Some(opened));
        let local = SocketAddress { port: 1, node: 2 };
        let adopted = Adopted { opened, kind: Kind::Dgram, slots: 9 };
        let raw = skip_errno(adopted.encode());
        assert_eq!(Adopted::decode(&mut Reader::new(&raw)), Some(adopted));
        for peer in [None, Some(SocketAddress { port: 3, node: 4 })] {
            let report = Report { local, peer, queued_messages: 5, queued_octets: 6 };
            let raw = skip_errno(report.encode());
            assert_eq!(Report::decode(&mut Reader::new(&raw)), Some(report));
        }
    }
}
