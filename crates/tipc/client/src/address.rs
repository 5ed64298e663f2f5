//! TIPC addresses as used by programs, encoded like the kernel's struct sockaddr_tipc.

use std::fmt;

/// AF_TIPC, the family in every encoded address.
pub const FAMILY: u16 = 30;
/// Length of an encoded address in bytes.
pub const ENCODED_LEN: usize = 16;

const SERVICE_RANGE: u8 = 1;
const SERVICE: u8 = 2;
const SOCKET: u8 = 3;
const CLUSTER_SCOPE: i8 = 2;
const NODE_SCOPE: i8 = 3;

/// Address of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketAddress {
    /// Number of the socket's port.
    pub port: u32,
    /// Address of the socket's node; 0 if the node has no address.
    pub node: u32,
}

/// A service type and a range of its instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceRange {
    /// Service type; types below 64 are reserved for the protocol.
    pub service: u32,
    /// Lowest instance of the range.
    pub lower: u32,
    /// Highest instance of the range, included; not below `lower`.
    pub upper: u32,
}

impl ServiceRange {
    /// Returns the range that contains only `instance`.
    pub const fn single(service: u32, instance: u32) -> Self {
        Self { service, lower: instance, upper: instance }
    }
}

/// The destination of a message or a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// All sockets that are bound to a range which overlaps this range (multicast).
    Range(ServiceRange),
    /// One of the sockets bound to an instance; the sockets are chosen in turn.
    Service {
        /// Type of the service.
        service: u32,
        /// Instance of the service.
        instance: u32,
        /// Address of the node that looks the instance up; 0 for a lookup in the whole cluster.
        domain: u32,
    },
    /// One socket, by its port and node instead of a name.
    Socket(SocketAddress),
}

/// Where a binding is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Visible on every node.
    #[default]
    Cluster,
    /// Visible only on this node.
    Node,
}

impl Scope {
    /// Returns the scope's number in linux/tipc.h.
    pub(crate) fn number(self) -> u32 {
        match self {
            Scope::Cluster => CLUSTER_SCOPE.unsigned_abs().into(),
            Scope::Node => NODE_SCOPE.unsigned_abs().into(),
        }
    }
}

/// The address argument of a bind call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The service type and instances that the socket is bound to.
    pub range: ServiceRange,
    /// Where the binding is visible.
    pub scope: Scope,
    /// Whether the call withdraws the binding. In the encoded form, this is a negative scope.
    pub withdraw: bool,
}

/// The error for an encoded address whose family is not AF_TIPC, or whose form is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a TIPC address: family {family}, address type {form}; expected family 30 (AF_TIPC) and address type 1, 2 or 3"
)]
pub struct BadAddress {
    /// The address family that was given; AF_TIPC is 30.
    pub family: u16,
    /// The form that was given (`addrtype`): 1 is a range, 2 a service instance, 3 a socket.
    pub form: u8,
}

fn encode(form: u8, scope: i8, words: [u32; 3]) -> [u8; ENCODED_LEN] {
    let mut raw = [0; ENCODED_LEN];
    raw[..2].copy_from_slice(&FAMILY.to_ne_bytes());
    raw[2] = form;
    raw[3] = scope.cast_unsigned();
    for (place, word) in raw[4..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    raw
}

fn words(raw: &[u8; ENCODED_LEN]) -> [u32; 3] {
    let word = |at: usize| u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    [word(4), word(8), word(12)]
}

impl Address {
    /// Returns the address of one of the sockets bound to an instance, anywhere in the cluster.
    pub const fn service(service: u32, instance: u32) -> Self {
        Self::Service { service, instance, domain: 0 }
    }

    /// Encodes the address as a struct sockaddr_tipc.
    pub fn encode(self) -> [u8; ENCODED_LEN] {
        match self {
            Self::Range(r) => encode(SERVICE_RANGE, CLUSTER_SCOPE, [r.service, r.lower, r.upper]),
            Self::Service { service, instance, domain } => {
                encode(SERVICE, CLUSTER_SCOPE, [service, instance, domain])
            }
            Self::Socket(s) => encode(SOCKET, 0, [s.port, s.node, 0]),
        }
    }

    /// Decodes an address from a struct sockaddr_tipc.
    ///
    /// # Errors
    /// [`BadAddress`] if the family is not AF_TIPC, or the form is unknown.
    pub fn decode(raw: &[u8; ENCODED_LEN]) -> Result<Self, BadAddress> {
        let family = u16::from_ne_bytes([raw[0], raw[1]]);
        let [a, b, c] = words(raw);
        match (family, raw[2]) {
            (FAMILY, SERVICE_RANGE) => {
                Ok(Self::Range(ServiceRange { service: a, lower: b, upper: c }))
            }
            (FAMILY, SERVICE) => Ok(Self::Service { service: a, instance: b, domain: c }),
            (FAMILY, SOCKET) => Ok(Self::Socket(SocketAddress { port: a, node: b })),
            (family, form) => Err(BadAddress { family, form }),
        }
    }
}

impl Binding {
    /// Encodes the argument as a struct sockaddr_tipc.
    pub fn encode(self) -> [u8; ENCODED_LEN] {
        let scope = match self.scope {
            Scope::Cluster => CLUSTER_SCOPE,
            Scope::Node => NODE_SCOPE,
        };
        let scope = if self.withdraw { -scope } else { scope };
        encode(SERVICE_RANGE, scope, [self.range.service, self.range.lower, self.range.upper])
    }

    /// Decodes the argument of a bind call. Returns `Ok(None)` for a socket's address, which cannot
    /// be bound.
    ///
    /// # Errors
    /// [`BadAddress`] if the family is not AF_TIPC, or the form is unknown.
    pub fn decode(raw: &[u8; ENCODED_LEN]) -> Result<Option<Self>, BadAddress> {
        let scope = raw[3].cast_signed();
        // Every scope except "node" counts as "cluster".
        let seen = if scope.unsigned_abs() == NODE_SCOPE.unsigned_abs() {
            Scope::Node
        } else {
            Scope::Cluster
        };
        let range = match Address::decode(raw)? {
            Address::Range(range) => range,
            Address::Service { service, instance, .. } => ServiceRange::single(service, instance),
            Address::Socket(_) => return Ok(None),
        };
        Ok(Some(Self { range, scope: seen, withdraw: scope < 0 }))
    }
}

impl From<SocketAddress> for Address {
    fn from(socket: SocketAddress) -> Self {
        Self::Socket(socket)
    }
}

impl From<ServiceRange> for Address {
    fn from(range: ServiceRange) -> Self {
        Self::Range(range)
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{:x}:{}>", self.node, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(r) => write!(f, "{{{}, {}, {}}}", r.service, r.lower, r.upper),
            Self::Service { service, instance, .. } => write!(f, "{{{service}, {instance}}}"),
            Self::Socket(socket) => socket.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_kernels_layout_and_come_back_from_it() {
        let raw = Address::service(0x0102_0304, 7).encode();
        assert_eq!(raw[..4], [30, 0, 2, 2]);
        assert_eq!(raw[4..8], 0x0102_0304_u32.to_ne_bytes());
        for address in [
            Address::service(70, 7),
            Address::Service { service: 70, instance: 7, domain: 9 },
            Address::Range(ServiceRange { service: 70, lower: 1, upper: 5 }),
            Address::Socket(SocketAddress { port: 5, node: 9 }),
        ] {
            assert_eq!(Address::decode(&address.encode()), Ok(address));
        }
        let form = |form| encode(form, 0, [0; 3]);
        assert_eq!(Address::decode(&form(4)), Err(BadAddress { family: 30, form: 4 }));
        assert_eq!(Address::decode(&[0; 16]), Err(BadAddress { family: 0, form: 0 }));
    }

    #[test]
    fn a_negative_scope_takes_a_binding_back() {
        let range = ServiceRange { service: 70, lower: 1, upper: 5 };
        for scope in [Scope::Cluster, Scope::Node] {
            for withdraw in [false, true] {
                let binding = Binding { range, scope, withdraw };
                assert_eq!(Binding::decode(&binding.encode()), Ok(Some(binding)));
            }
        }
        // Unknown scopes mean the cluster, as in the kernel.
        let odd = encode(SERVICE, 100, [70, 3, 0]);
        let range = ServiceRange::single(70, 3);
        let expected = Binding { range, scope: Scope::Cluster, withdraw: false };
        assert_eq!(Binding::decode(&odd), Ok(Some(expected)));
        let socket = Address::Socket(SocketAddress::default()).encode();
        assert_eq!(Binding::decode(&socket), Ok(None));
    }
}
