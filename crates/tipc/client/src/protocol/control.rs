//! Requests and answers on the control connection.
//!
//! A request is one message: its number (4 octets), then its fields. The answer is one message: an errno (4 octets, 0 for success),
//! then fields and descriptors as the request has them. An errno of [`VERSION_MISMATCH`] answers a hello of another version, and the two
//! versions follow.

pub use super::answers::{Adopted, Granted, Opened, Report, Welcome};
pub use super::fields::{Head, Reader, Writer};
use crate::address::ENCODED_LEN;

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
    /// Has what comes to a socket go by its lane from now on: the data descriptor carries a bell ([`crossway_ring::doorbell`]) behind what it holds, and then
    /// bells only. EAGAIN while somebody reads the descriptor ([`super::slot::READERS`]) or it has no room, EOPNOTSUPP without lanes.
    LaneDown {
        /// The socket.
        token: u64,
    },
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
    /// Lanes for a socket: answered by [`Granted`] and two descriptors: their memory ([`super::lane`]) and an eventfd that wakes the tipcd. A second
    /// asker is given the same. EOPNOTSUPP where there will be none, EAGAIN where the socket is not
    /// connected yet.
    Lanes {
        /// The socket.
        token: u64,
    },
    /// An operator's order: answered by EPERM, or by a descriptor of the outcome and, if that is what was asked, one more.
    Administer {
        /// [`crate::admin::Order`] as JSON.
        order: &'a [u8],
    },
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
            Self::Lanes { token } => op(17).u64(token),
            Self::LaneDown { token } => op(18).u64(token),
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
            17 => Self::Lanes { token },
            18 => Self::LaneDown { token },
            _ => return None,
        };
        r.0.is_empty().then_some(request)
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
            Request::Lanes { token },
            Request::LaneDown { token },
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
}
