//! Addresses used by TIPC: those of nodes, ports, services and media.
//!
//! Each kind is a distinct type, so that a port cannot be passed where a node is meant. On the wire, node addresses,
//! ports, service types and instances are 32-bit words.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A node's 32-bit address, as it appears in message headers. 0 means "any" or "not yet known".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeAddr(pub u32);

impl fmt::Debug for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A node's 128-bit identity. It stays the same when the 32-bit address, which is derived from it, changes after a
/// conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 16]);

impl NodeId {
    /// Parses an identity of 1 to 16 characters from the set that the kernel's tool accepts (`A-Za-z0-9.:_@-`), padded
    /// with zeros. Returns `None` when the text is empty, too long, or contains any other character.
    pub fn from_text(text: &str) -> Option<Self> {
        let legal = |b: &u8| b.is_ascii_alphanumeric() || b".:_@-".contains(b);
        if text.is_empty() || text.len() > 16 || !text.as_bytes().iter().all(legal) {
            return None;
        }
        let mut id = [0; 16];
        id[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self(id))
    }

    /// The identity that a node without a configured one derives from a bearer: the bearer's hardware or network
    /// address, padded with zeros.
    pub fn from_media(addr: &MediaAddr) -> Self {
        let mut id = [0; 16];
        match addr {
            MediaAddr::Ethernet(mac) => id[..6].copy_from_slice(mac),
            MediaAddr::Udp { ip: IpAddr::V4(ip), .. } => id[..4].copy_from_slice(&ip.octets()),
            MediaAddr::Udp { ip: IpAddr::V6(ip), .. } => id.copy_from_slice(&ip.octets()),
        }
        Self(id)
    }

    /// The address that a node with this identity tries first: the XOR of the four big-endian words, or their OR when the
    /// XOR is 0.
    pub fn addr(&self) -> NodeAddr {
        let words = self.0.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]));
        let (xor, or) = words.fold((0, 0), |(xor, or), w| (xor ^ w, or | w));
        NodeAddr(if xor != 0 { xor } else { or })
    }
}

impl fmt::Display for NodeId {
    /// Formats the identity as text when every character is legal, otherwise as hexadecimal without the trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().rposition(|&b| b != 0).map_or(0, |p| p + 1);
        let used = &self.0[..len];
        match core::str::from_utf8(used) {
            Ok(text) if NodeId::from_text(text).is_some() => f.write_str(text),
            _ => used.iter().try_for_each(|b| write!(f, "{b:02x}")),
        }
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// ID of a network: it separates clusters that share a medium. 4711 by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct NetworkId(pub u32);

impl Default for NetworkId {
    fn default() -> Self {
        Self(4711)
    }
}

/// A socket's port number (the kernel's "port reference"). 0 means no port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Port(pub u32);

/// Address of one socket in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SocketAddr {
    /// The port on that node.
    pub port: Port,
    /// The node that owns the port.
    pub node: NodeAddr,
}

/// A range of instances of one service type, with inclusive bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceRange {
    /// Type of the service.
    pub service: u32,
    /// Lowest instance of the range.
    pub lower: u32,
    /// Highest instance of the range, included.
    pub upper: u32,
}

impl ServiceRange {
    /// The range that contains only `instance`.
    pub const fn single(service: u32, instance: u32) -> Self {
        Self { service, lower: instance, upper: instance }
    }

    /// Whether the lower bound does not exceed the upper bound.
    pub const fn is_valid(&self) -> bool {
        self.lower <= self.upper
    }

    /// Whether the range contains `instance` (of the same service type).
    pub const fn contains(&self, instance: u32) -> bool {
        self.lower <= instance && instance <= self.upper
    }

    /// Whether two ranges of the same service type share an instance.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.service == other.service && self.lower <= other.upper && other.lower <= self.upper
    }
}

/// Where a binding is visible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Scope {
    /// Visible on every node of the cluster.
    #[default]
    Cluster,
    /// Visible only on the node that owns the bound socket.
    Node,
}

/// Priority of a message, which determines how much of a congested link's backlog and of a receiver's buffer the
/// message may use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Importance {
    /// The default level.
    #[default]
    Low,
    /// Twice the backlog limit and twice the receive queue limit of [`Importance::Low`].
    Medium,
    /// Three times the backlog limit and four times the receive queue limit of [`Importance::Low`].
    High,
    /// Four times the backlog limit and eight times the receive queue limit of [`Importance::Low`].
    Critical,
}

impl Importance {
    /// All levels, lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The level with this number (0 to 3), or `None`.
    pub const fn from_number(n: u32) -> Option<Self> {
        match n {
            0 => Some(Self::Low),
            1 => Some(Self::Medium),
            2 => Some(Self::High),
            3 => Some(Self::Critical),
            _ => None,
        }
    }
}

/// Index of a bearer on its own node, 0 to 2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BearerId(pub u8);

/// Source or destination of a frame on a medium.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MediaAddr {
    /// Hardware address of an Ethernet device, in the order of its bytes on the wire.
    Ethernet([u8; 6]),
    /// An IPv4 or IPv6 address and a UDP port.
    Udp {
        /// IPv4 or IPv6 address of the host.
        ip: IpAddr,
        /// UDP port, in the host's byte order.
        port: u16,
    },
}

impl MediaAddr {
    /// Length of the media-address block in discovery messages, in bytes.
    pub const BLOCK_LEN: usize = 32;
    const ETHERNET: u8 = 1;
    const UDP: u8 = 3;
    const PROTO_IPV4: u16 = 0x0800;
    const PROTO_IPV6: u16 = 0x86dd;

    /// Whether this is a unicast address, so that a frame sent to it reaches a single station.
    pub fn is_unicast(&self) -> bool {
        match self {
            Self::Ethernet(mac) => mac[0] & 1 == 0,
            Self::Udp { ip: IpAddr::V4(ip), .. } => !ip.is_multicast() && !ip.is_broadcast(),
            Self::Udp { ip: IpAddr::V6(ip), .. } => !ip.is_multicast(),
        }
    }

    /// Encodes the address as the block used in discovery messages.
    pub fn to_block(self) -> [u8; Self::BLOCK_LEN] {
        let mut block = [0; Self::BLOCK_LEN];
        match self {
            Self::Ethernet(mac) => {
                block[3] = Self::ETHERNET;
                block[4..10].copy_from_slice(&mac);
            }
            Self::Udp { ip, port } => {
                block[3] = Self::UDP;
                block[6..8].copy_from_slice(&port.to_be_bytes());
                match ip {
                    IpAddr::V4(ip) => {
                        block[4..6].copy_from_slice(&Self::PROTO_IPV4.to_be_bytes());
                        block[8..12].copy_from_slice(&ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        block[4..6].copy_from_slice(&Self::PROTO_IPV6.to_be_bytes());
                        block[8..24].copy_from_slice(&ip.octets());
                    }
                }
            }
        }
        block
    }

    /// Decodes a block; returns `None` for an unsupported medium, or an IP version other than 4 and 6.
    pub fn from_block(block: &[u8; Self::BLOCK_LEN]) -> Option<Self> {
        match block[3] {
            Self::ETHERNET => {
                let mut mac = [0; 6];
                mac.copy_from_slice(&block[4..10]);
                Some(Self::Ethernet(mac))
            }
            Self::UDP => {
                let port = u16::from_be_bytes([block[6], block[7]]);
                match u16::from_be_bytes([block[4], block[5]]) {
                    Self::PROTO_IPV4 => {
                        let ip = Ipv4Addr::new(block[8], block[9], block[10], block[11]);
                        Some(Self::Udp { ip: IpAddr::V4(ip), port })
                    }
                    Self::PROTO_IPV6 => {
                        let mut ip = [0; 16];
                        ip.copy_from_slice(&block[8..24]);
                        Some(Self::Udp { ip: IpAddr::V6(Ipv6Addr::from(ip)), port })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn address_is_the_exclusive_or_of_the_identity() {
        let from_mac = NodeId::from_media(&MediaAddr::Ethernet([2, 0, 0, 0, 0x0a, 1]));
        assert_eq!(from_mac.addr(), NodeAddr(0x0801_0000));
        let ip = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
        assert_eq!(
            NodeId::from_media(&MediaAddr::Udp { ip, port: 6118 }).addr(),
            NodeAddr(0x0a09_0001)
        );
        let mut twin = [0; 16];
        twin[3] = 5;
        twin[7] = 5;
        assert_eq!(NodeId(twin).addr(), NodeAddr(5), "OR is used if XOR gives 0");
    }

    #[test]
    fn identity_text_is_checked_and_printed_back() {
        assert_eq!(NodeId::from_text("rack-3.node:7").unwrap().to_string(), "rack-3.node:7");
        assert_eq!(NodeId::from_text(""), None);
        assert_eq!(NodeId::from_text("seventeen-letters"), None);
        assert_eq!(NodeId::from_text("white space"), None);
        assert_eq!(
            NodeId::from_media(&MediaAddr::Ethernet([2, 0, 0, 0, 0x0a, 1])).to_string(),
            "020000000a01"
        );
    }

    #[test]
    fn media_blocks_survive_a_round_trip() {
        for addr in [
            MediaAddr::Ethernet([2, 0, 0, 0, 0x0a, 1]),
            MediaAddr::Udp { ip: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), port: 6118 },
            MediaAddr::Udp { ip: IpAddr::V6(Ipv6Addr::LOCALHOST), port: 1 },
        ] {
            assert_eq!(MediaAddr::from_block(&addr.to_block()), Some(addr));
        }
        assert_eq!(MediaAddr::from_block(&[0; 32]), None);
    }
}
