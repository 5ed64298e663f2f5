//! How the programs of `crossway run --via tipc` reach their *porter*, the process that lets TCP
//! connections to other hosts travel by TIPC.
//!
//! A program talks to it on SEQPACKET connections to an abstract UNIX address, one request
//! ([`Ask`]) and one answer each: a byte, 1 for yes, and for some requests a descriptor. A
//! connection that a program keeps open says that it is still there.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError, fdpass, proc, random};

/// Contains the porter's abstract address.
pub const VARIABLE: &str = "CROSSWAY_RUN_VIA";
/// What such an address begins with.
const NAME: &str = "crossway-via-";

/// What carries a connection that travels so.
pub const CARRIED: &str = "TIPC in place of TCP: both programs run with crossway run --via tipc";

/// How long a program waits for an answer. The porter's own waits are shorter.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the connecting end waits for the other host's word, when both ends have the connection.
const CONFIRMATION: Duration = Duration::from_secs(10);

/// What the connecting end sends on the stream when its TCP connection is established.
pub const ESTABLISHED: u8 = b'E';
/// The other host's word that it has that connection, too: from now on, the bytes go by the stream.
pub const CONFIRMED: u8 = b'C';

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The program listens here, as long as it keeps the connection open.
    Listen {
        /// The address, which may be unspecified.
        at: SocketAddr,
    },
    /// The program is about to connect. The answer contains a stream to the host of the listening
    /// end, if that expects it.
    Dial {
        /// The connecting end.
        own: SocketAddr,
        /// The listening end.
        peer: SocketAddr,
    },
    /// The program has accepted a connection. The answer contains its stream, if it has one.
    Claim {
        /// The listening end.
        own: SocketAddr,
        /// The connecting end.
        peer: SocketAddr,
    },
}

/// Length of an address in a request.
const ADDRESS_LEN: usize = 18;
/// Length of a request.
pub const ASK_LEN: usize = 1 + 2 * ADDRESS_LEN;

/// The two addresses of a connection, encoded: as in a request, and in the first message between
/// two porters.
pub fn encode_ends(one: SocketAddr, other: SocketAddr) -> [u8; 2 * ADDRESS_LEN] {
    let mut bytes = [0; 2 * ADDRESS_LEN];
    for (place, address) in bytes.chunks_exact_mut(ADDRESS_LEN).zip([one, other]) {
        let six = match address.ip() {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        place[..16].copy_from_slice(&six.octets());
        place[16..].copy_from_slice(&address.port().to_be_bytes());
    }
    bytes
}

/// Decodes what [`encode_ends`] has encoded.
pub fn decode_ends(bytes: &[u8; 2 * ADDRESS_LEN]) -> (SocketAddr, SocketAddr) {
    let address = |at: usize| {
        let ip: [u8; 16] = std::array::from_fn(|n| bytes[at + n]);
        let port = u16::from_be_bytes([bytes[at + 16], bytes[at + 17]]);
        SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
    };
    (address(0), address(ADDRESS_LEN))
}

impl Ask {
    /// The request as a message.
    pub fn encode(self) -> [u8; ASK_LEN] {
        let (kind, one, other) = match self {
            Self::Listen { at } => (b'L', at, at),
            Self::Dial { own, peer } => (b'D', own, peer),
            Self::Claim { own, peer } => (b'A', own, peer),
        };
        let mut bytes = [kind; ASK_LEN];
        bytes[1..].copy_from_slice(&encode_ends(one, other));
        bytes
    }

    /// Decodes a message; `None` if it is none of these.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ASK_LEN] = bytes.try_into().ok()?;
        let (one, other) = decode_ends(bytes[1..].first_chunk()?);
        match bytes[0] {
            b'L' => Some(Self::Listen { at: one }),
            b'D' => Some(Self::Dial { own: one, peer: other }),
            b'A' => Some(Self::Claim { own: one, peer: other }),
            _ => None,
        }
    }
}

/// A porter, as its programs know it.
#[derive(Debug)]
pub struct Porter {
    name: String,
}

impl Porter {
    /// The one that the environment names. The first call reads the environment.
    pub fn of_environment() -> Option<&'static Porter> {
        static NAMED: OnceLock<Option<Porter>> = OnceLock::new();
        let named = || {
            let name = std::env::var(VARIABLE).ok()?;
            name.starts_with(NAME).then_some(Porter { name })
        };
        NAMED.get_or_init(named).as_ref()
    }

    /// Makes the address of a new porter, and the socket that listens there.
    ///
    /// # Errors
    /// [`OsError`] of a system call.
    pub fn create() -> Result<(Self, OwnedFd), OsError> {
        let name = format!("{NAME}{}-{:016x}", std::process::id(), random::unguessable()?);
        let listener = socket::unix(SocketType::Seqpacket)?;
        socket::bind(&listener, &socket::abstract_address(name.as_bytes())?, &name)?;
        socket::listen(&listener, 256)?;
        Ok((Self { name }, listener))
    }

    /// Its abstract address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens a connection that keeps the porter alive.
    pub fn stay(&self) -> Option<OwnedFd> {
        let address = socket::abstract_address(self.name.as_bytes()).ok()?;
        let connection = socket::unix(SocketType::Seqpacket).ok()?;
        socket::connect(&connection, &address).ok()?;
        let owner = socket::peer_credentials(&connection).ok()?;
        (owner.uid == proc::effective_user()).then_some(connection)
    }

    /// Makes a request. Returns the connection and the descriptors in the answer, if the answer is
    /// yes.
    fn ask(&self, ask: Ask) -> Option<(OwnedFd, Option<OwnedFd>)> {
        let connection = self.stay()?;
        socket::send(&connection, &ask.encode(), true).ok()?;
        let until = Instant::now() + ANSWER;
        let (mut answer, mut fds) = ([0], Vec::new());
        while wait_ready(&connection, Interest::Readable, Some(until)) == Ok(true) {
            match fdpass::receive(&connection, &mut answer, &mut fds, true) {
                Ok(1) if answer == [1] => return Some((connection, fds.pop())),
                Err(Errno::AGAIN) => {}
                _ => return None,
            }
        }
        None
    }

    /// Announces a listener, for as long as the connection that is returned stays open.
    pub fn listen(&self, at: SocketAddr) -> Option<OwnedFd> {
        self.ask(Ask::Listen { at }).map(|(connection, _)| connection)
    }

    /// Gets a stream to the host of the listening end `peer` for the connection that is about to be
    /// made; `None` if nobody expects it there.
    pub fn dial(&self, own: SocketAddr, peer: SocketAddr) -> Option<OwnedFd> {
        self.ask(Ask::Dial { own, peer })?.1
    }

    /// Gets the stream of a connection that has been accepted, if it has one.
    pub fn claim(&self, own: SocketAddr, peer: SocketAddr) -> Option<OwnedFd> {
        self.ask(Ask::Claim { own, peer })?.1
    }
}

/// Whether a descriptor is a connection to a porter.
pub fn is_connection(fd: impl AsFd) -> bool {
    let name = socket::peer_address(fd).ok().and_then(|peer| socket::abstract_name(&peer));
    name.is_some_and(|name| name.starts_with(NAME.as_bytes()))
}

/// What became of a stream that was to carry a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Both ends use it.
    Made,
    /// Neither does.
    None,
    /// The other end may use it or not: the connection must end.
    Unknown,
}

/// Tells the other host that the TCP connection is established, and waits for its word.
pub fn agree(stream: impl AsFd) -> Agreement {
    if socket::send(&stream, &[ESTABLISHED], true).is_err() {
        return Agreement::None;
    }
    let until = Instant::now() + CONFIRMATION;
    let mut word = [0];
    while wait_ready(&stream, Interest::Readable, Some(until)) == Ok(true) {
        match socket::recv(&stream, &mut word, true) {
            Ok(1) if word == [CONFIRMED] => return Agreement::Made,
            Err(Errno::AGAIN) => {}
            // The other host ends the stream only before it confirms.
            _ => return Agreement::None,
        }
    }
    Agreement::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_encoding() {
        let (four, six) = ("10.0.0.1:80".parse().unwrap(), "[2001:db8::1]:65535".parse().unwrap());
        for ask in [
            Ask::Listen { at: "0.0.0.0:1".parse().unwrap() },
            Ask::Dial { own: four, peer: six },
            Ask::Claim { own: six, peer: four },
        ] {
            let bytes = ask.encode();
            assert_eq!(Ask::decode(&bytes), Some(ask));
            assert_eq!(Ask::decode(&bytes[1..]), None);
            assert_eq!(Ask::decode(&[b'X'; ASK_LEN]), None);
        }
    }

    #[test]
    fn a_porter_is_asked_and_its_connections_are_recognised() {
        let (porter, listener) = Porter::create().unwrap();
        let (own, peer) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
        let (stream, other) = socket::unix_pair(SocketType::Stream).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for answer in [&[1][..], &[0], &[]] {
                    let connection = socket::accept(&listener).unwrap();
                    let mut bytes = [0; ASK_LEN + 1];
                    let len = socket::recv(&connection, &mut bytes, false).unwrap();
                    assert_eq!(Ask::decode(&bytes[..len]), Some(Ask::Claim { own, peer }));
                    if !answer.is_empty() {
                        fdpass::send(&connection, answer, &[stream.as_fd()]).unwrap();
                    }
                }
            });
            let got = porter.claim(own, peer).unwrap();
            assert!(!is_connection(&got) && porter.claim(own, peer).is_none());
            assert!(porter.claim(own, peer).is_none(), "it has died");
            socket::send(&got, &[CONFIRMED], true).unwrap();
        });
        assert_eq!(agree(&other), Agreement::Made);
        drop(stream);
        assert_eq!(agree(&other), Agreement::None);
        assert!(is_connection(porter.stay().unwrap()));
        drop(listener);
        assert!(porter.stay().is_none());
    }
}
