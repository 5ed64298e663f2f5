//! Requests and answers on the control connection.
//!
//! A request is one message: its number (4 bytes), then its fields. The answer is one message, too: an errno (4 bytes,
//! 0 for success), then the fields of that request's answer, with its descriptors. A hello with a different version is
//! answered with the errno [`VERSION_MISMATCH`], followed by tipcd's version.

pub use super::answers::{Adopted, Granted, Opened, SocketReport, Welcome};
pub use super::fields::{Head, Reader, Writer};
use crate::address::ENCODED_LEN;

/// Maximum length in bytes of a request or answer: the length of a connection request with a message of maximum length.
pub const LEN_MAX: usize = super::MESSAGE_LEN_MAX + 64;

/// The first field of every hello, after the request's number.
pub const MAGIC: u32 = 0x4357_5450;

/// The errno EPROTO: the two ends use different versions of the protocol.
pub const VERSION_MISMATCH: i32 = 71;

/// A socket option that the kernel does not have: the size of the receive queue in bytes. The kernel uses SO_RCVBUF for
/// this.
pub const RECEIVE_BYTES: u32 = 0x1_0008;

/// Another one, of streams: 1 if shutdown(2) with SHUT_WR on the descriptor ends this direction only, and the peer's program
/// reads the end. Both ends of a connection set it before either uses it; both nodes are Crossway's.
pub const HALF_CLOSE: u32 = 0x1_0009;

/// The type of a socket, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// SOCK_STREAM: a connection that carries bytes.
    Stream = 1,
    /// SOCK_DGRAM: messages that may be dropped, even at their source.
    Dgram = 2,
    /// SOCK_RDM: messages that are not dropped at their source, but may be at their destination.
    Rdm = 4,
    /// SOCK_SEQPACKET: a connection that carries messages.
    Seqpacket = 5,
}

impl SocketKind {
    /// Returns the kind with the kernel's number; `None` if there is none.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Stream),
            2 => Some(Self::Dgram),
            4 => Some(Self::Rdm),
            5 => Some(Self::Seqpacket),
            _ => None,
        }
    }

    /// Whether sockets of this kind must be connected to exchange data.
    pub const fn is_connected_kind(self) -> bool {
        matches!(self, Self::Stream | Self::Seqpacket)
    }
}

/// A program's request. `token` identifies a socket; only programs that hold the socket know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first request on a connection. Answered with [`Welcome`] and two descriptors, for the slots and the epochs.
    Hello {
        /// Protocol version of the program.
        version: u16,
    },
    /// Opens a socket. Answered with [`Opened`] and its data descriptor.
    Open {
        /// Kind of the socket.
        kind: SocketKind,
    },
    /// Binds a service range, or withdraws a binding.
    Bind {
        /// Token of the socket.
        token: u64,
        /// The range as a struct sockaddr_tipc.
        address: [u8; ENCODED_LEN],
    },
    /// Withdraws all bindings of a socket.
    UnbindAll {
        /// Token of the socket.
        token: u64,
    },
    /// Makes a socket accept connections.
    Listen {
        /// Token of the socket.
        token: u64,
        /// Number of bytes of padding written to make the descriptor unwritable.
        pad: u32,
    },
    /// Requests a connection. Answered with EINPROGRESS if the request is pending; the result then appears in the slot
    /// and on the descriptor.
    Connect {
        /// Token of the socket.
        token: u64,
        /// The destination as a struct sockaddr_tipc.
        address: [u8; ENCODED_LEN],
        /// Number of bytes of padding written to make the descriptor unwritable, to be discarded when the connection
        /// request has been answered.
        pad: u32,
        /// Data sent with the request.
        payload: &'a [u8],
    },
    /// Shuts the connection down.
    Shutdown {
        /// Token of the socket.
        token: u64,
    },
    /// Queries a socket's addresses and queue. Answered with [`SocketReport`].
    Report {
        /// Token of the socket.
        token: u64,
    },
    /// Sets an option of level SOL_TIPC.
    SetOption {
        /// Token of the socket.
        token: u64,
        /// Number of the option.
        name: u32,
        /// The value to set, in the option's own unit.
        value: u32,
    },
    /// Reads an option. Answered with its value (4 bytes).
    GetOption {
        /// Token of the socket.
        token: u64,
        /// Number of the option.
        name: u32,
    },
    /// Asks whether a destination is reachable now. Answered with EHOSTUNREACH if it is not.
    Resolve {
        /// Token of the sending socket.
        token: u64,
        /// The destination as a struct sockaddr_tipc.
        address: [u8; ENCODED_LEN],
    },
    /// Joins a group. The socket must not be a member of a group already.
    Join {
        /// Token of the socket.
        token: u64,
        /// The fields of struct tipc_group_req: type, instance, scope, flags.
        group: [u32; 4],
    },
    /// Leaves the group that the socket is a member of.
    Leave {
        /// Token of the socket.
        token: u64,
    },
    /// Adopts a socket, whose data descriptor is passed with the request. Any process that holds such a descriptor may
    /// use the socket, no matter how it got the descriptor. Answered with [`Adopted`] and the descriptor of the shared
    /// memory with the socket's slot; EBADF if it is not a socket of this tipcd, EOPNOTSUPP if it has lanes.
    Adopt,
    /// Switches a socket to receiving through its lane: the data descriptor gets a bell ([`crossway_ring::doorbell`])
    /// after its current contents, and from then on only bells. For a direct lane, the answer is [`Granted`] and the
    /// descriptor of the lane's memory; otherwise it has no fields. Repeating the request has no effect and gets the
    /// same answer. EAGAIN if a thread is reading the descriptor ([`super::slot::READERS`]) or the descriptor has no
    /// room, EOPNOTSUPP if the socket has no lanes or its connection has ended.
    LaneDown {
        /// Token of the socket.
        token: u64,
    },
    /// Queries the identity of a node. Answered with 16 bytes, or EADDRNOTAVAIL.
    Identity {
        /// Address of the node.
        node: u32,
    },
    /// Queries the name of a link. Answered with the name, or EADDRNOTAVAIL.
    LinkName {
        /// Address of the peer.
        node: u32,
        /// Number of this node's bearer.
        bearer: u32,
    },
    /// Requests lanes for a socket. Answered with [`Granted`] and two descriptors, for their memory ([`super::lane`])
    /// and for an eventfd that wakes the tipcd. A second request gets the same lanes. EOPNOTSUPP if the socket will
    /// never get lanes, EAGAIN if it is not connected yet.
    Lanes {
        /// Token of the socket.
        token: u64,
    },
    /// Requests the sending end of the peer's direct lane. Answered with [`Granted`] and two descriptors, one for its
    /// memory and one into which bells are to be sent. EOPNOTSUPP if there is no direct lane, or if another process has
    /// its sending end.
    Outlet {
        /// Token of the sending socket.
        token: u64,
    },
    /// Queries the words that show whether anything is on its way. Answered with the descriptor of their memory
    /// ([`super::traffic`]).
    Traffic,
    /// Asks to be answered when everything that programs have sent and changed before has been delivered, as far as there
    /// is room.
    Settle,
    /// Passes an operator's order. Answered with EPERM, or with the descriptor of a file that contains the outcome, and
    /// a further descriptor if the order provides one.
    Administer {
        /// [`crate::admin::Order`] as JSON.
        order: &'a [u8],
    },
}

impl<'a> Request<'a> {
    /// Encodes the request as one message of the control connection, in native byte order.
    pub fn encode(&self) -> Vec<u8> {
        [self.head().bytes(), self.tail()].concat()
    }

    /// The part of the request after the head: its payload or order, otherwise empty.
    pub const fn tail(&self) -> &'a [u8] {
        match *self {
            Self::Connect { payload, .. } => payload,
            Self::Administer { order } => order,
            _ => &[],
        }
    }

    /// Encodes everything except the tail, for callers that must not allocate memory.
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
            Self::Outlet { token } => op(19).u64(token),
            Self::Traffic => op(20),
            Self::Settle => op(21),
        }
    }

    /// Decodes a request. Returns `None` if it is invalid in this version.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let op = r.u32()?;
        if op == 1 {
            // Decode a hello of any version, so that it can be answered.
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
            let kind = SocketKind::from_number(r.u32()?)?;
            return r.0.is_empty().then_some(Self::Open { kind });
        }
        let nodes = match op {
            14 => Some(Self::Adopt),
            20 => Some(Self::Traffic),
            21 => Some(Self::Settle),
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
            19 => Self::Outlet { token },
            _ => return None,
        };
        r.0.is_empty().then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_from_their_bytes_and_nothing_else_does() {
        let (token, address) = (0x1234_5678_9abc_def0, [7; 16]);
        let requests = [
            Request::Hello { version: 1 },
            Request::Open { kind: SocketKind::Rdm },
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
            Request::Outlet { token },
            Request::Traffic,
            Request::Settle,
        ];
        for request in requests {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request));
            for len in 0..bytes.len().min(28) {
                assert_eq!(Request::decode(&bytes[..len]), None, "{request:?} cut to {len}");
            }
        }
        assert_eq!(Request::decode(&[0xff; 40]), None);
        let mut long = Request::Leave { token }.encode();
        long.push(0);
        assert_eq!(Request::decode(&long), None, "trailing data");
    }
}
