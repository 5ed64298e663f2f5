//! The LINX messaging model between two nodes that are joined by a link, over TCP or over TIPC.
//!
//! Each end runs a private node in a thread and has two endpoints on it, one to send from and one to receive at. The
//! other end hunts for them by the path of the link. A signal passes through both nodes, which takes three socket hops
//! and two more threads, compared with one hop for the mechanism below. A link that loses its connection goes down
//! immediately here, so the death of a peer is noticed as on a socket.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_linx::{
    Endpoint, Error, Filter, LinkAddress, LinkSettings, Node, NodeThread, Settings, Spid,
    TipcBackend,
};
use crossway_sys::{OsError, random};
use crossway_tipc_client::{KernelSocket, SocketKind};

use super::linx::{Ends, HELLO, LinxRx, LinxTx, LinxUds, check, os};
use super::tipc_node;
use crate::self_test::exchange_a_byte;
use crate::{
    Caps, Carrier, Deadline, Family, Listener, Mechanism, NodeKind, Offer, OpenError, Probe, Spec,
    carrier,
};

/// The service type of the TIPC links; any number above 63 would do.
const SERVICE: u32 = 0x4357_0003;

/// Time after which a silent peer counts as dead. It is long, because a stopped peer is not dead.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a channel must have no room before it counts as full: a node forwards signals after a moment, and then has
/// room again.
const SETTLES_WITHIN: Duration = Duration::from_millis(50);

/// The protocol that carries the link.
pub trait Over: fmt::Debug + 'static {
    /// Id of the mechanism, [`Mechanism::ID`].
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// What carries the mechanism's messages.
    const CARRIER: Carrier;
    /// How to make the mechanism available if it is missing.
    const REMEDY: &'static str;

    /// Returns the address to listen on.
    ///
    /// # Errors
    /// [`OpenError::Os`] if a system call fails.
    fn address(spec: &Spec) -> Result<LinkAddress, OpenError>;

    /// Returns the TIPC implementation to use.
    ///
    /// # Errors
    /// [`OpenError`] if there is none.
    fn tipc() -> Result<TipcBackend, OpenError>;
}

/// LINX over one kind of link.
#[derive(Debug)]
pub struct LinxLink<V>(PhantomData<V>);

/// The protocol of [`LinxTcp`]: a TCP connection between the nodes.
#[derive(Debug)]
pub struct Tcp;
/// The protocol of [`LinxTipc`]: a TIPC connection between the nodes.
#[derive(Debug)]
pub struct Tipc;

/// LINX over a link that uses TCP.
pub type LinxTcp = LinxLink<Tcp>;
/// LINX over a link that uses TIPC.
pub type LinxTipc = LinxLink<Tipc>;

impl Over for Tcp {
    const NAME: &'static str = "linx-tcp";
    const SUMMARY: &'static str = "LINX signals between two nodes, over a TCP link";
    const CARRIER: Carrier =
        Carrier::new(Family::Network, carrier::Transport::Tcp).through(NodeKind::Linx);
    const REMEDY: &'static str = "bring the loopback interface up: ip link set lo up";

    fn address(spec: &Spec) -> Result<LinkAddress, OpenError> {
        let ip = spec.bind.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(LinkAddress::Tcp(SocketAddr::new(ip, 0)))
    }

    fn tipc() -> Result<TipcBackend, OpenError> {
        Ok(TipcBackend::Automatic)
    }
}

impl Over for Tipc {
    const NAME: &'static str = "linx-tipc";
    const SUMMARY: &'static str =
        "LINX signals between two nodes, over a TIPC link (the kernel's TIPC or a tipcd's)";
    const CARRIER: Carrier =
        Carrier::new(Family::Tipc, carrier::Transport::Tipc).through(NodeKind::Linx);
    const REMEDY: &'static str = tipc_node::REMEDY;

    fn address(_: &Spec) -> Result<LinkAddress, OpenError> {
        let instance = (random::unguessable()? >> 32) as u32;
        Ok(LinkAddress::Tipc { service: SERVICE, instance })
    }

    fn tipc() -> Result<TipcBackend, OpenError> {
        match KernelSocket::open(SocketKind::Stream) {
            Ok(_) => Ok(TipcBackend::Kernel),
            Err(_) => Ok(TipcBackend::Node(tipc_node::node().map_err(tipc_node::open_error)?)),
        }
    }
}

/// Starts a node, and opens an end's two endpoints on it.
fn place<V: Over>(
    name: &str,
    listen: Vec<LinkAddress>,
    links: Vec<LinkSettings>,
) -> Result<(Arc<NodeThread>, Ends), OpenError> {
    let settings = Settings {
        name: name.to_owned(),
        listen,
        links,
        link_timeout: PATIENCE,
        reconnect_within: Some(Duration::ZERO),
        tipc: V::tipc()?,
        ..Settings::default()
    };
    let node = Arc::new(Node::spawn_private(settings).map_err(os)?);
    let connect = || node.connection().map_err(os);
    let ends = Ends::open(connect()?, connect()?)?;
    Ok((node, ends))
}

/// Introduces `endpoint` to the other end, in a signal to `to`: as the endpoint from which the other end will get
/// signals (`sends` is true), or as the one to which the other end can send.
fn hello(endpoint: &mut Endpoint, sends: bool, to: Spid) -> Result<(), OpenError> {
    endpoint.send_copy(HELLO, &[u8::from(sends)], to, None).map_err(os)?;
    Ok(())
}

/// The listening side: this end's node and endpoints, and the connecting end's endpoints once they are known.
#[derive(Debug)]
pub struct LinxLinkListener {
    mechanism: &'static str,
    ends: Option<Ends>,
    /// The connecting end's sending and receiving endpoint, each `None` before its first signal has arrived.
    known: [Option<Spid>; 2],
    node: Arc<NodeThread>,
}

impl Listener for LinxLinkListener {
    type Tx = LinxTx;
    type Rx = LinxRx;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let start = Instant::now();
        let again = || crate::building_blocks::complete::no_second_channel(self.mechanism);
        let Ends { tx, mut rx } = self.ends.take().ok_or_else(again)?;
        loop {
            if let [Some(from), Some(to)] = self.known {
                return Ends { tx, rx }.halves(
                    from,
                    to,
                    SETTLES_WITHIN,
                    Some(Arc::clone(&self.node)),
                );
            }
            match rx.receive(&Filter::only(&[HELLO]), until).map_err(os)? {
                Some(hello) => {
                    let receives = usize::from(hello.payload() != [1]);
                    self.known[receives] = hello.sender();
                }
                None => {
                    self.ends = Some(Ends { tx, rx });
                    return Err(OpenError::TimedOut {
                        mechanism: self.mechanism,
                        waited: start.elapsed(),
                    });
                }
            }
        }
    }
}

impl<V: Over> Mechanism for LinxLink<V> {
    const ID: &'static str = V::NAME;
    const ABOUT: &'static str = V::SUMMARY;
    const CARRIER: Carrier = V::CARRIER;
    type Tx = LinxTx;
    type Rx = LinxRx;
    type Listener = LinxLinkListener;

    fn caps() -> Caps {
        Caps { crosses_hosts: true, ..LinxUds::caps() }
    }

    fn probe() -> Probe {
        Probe::of_kernel(exchange_a_byte::<Self>(), V::REMEDY)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check(Self::ID, spec)?;
        let (node, ends) = place::<V>("listener", vec![V::address(spec)?], Vec::new())?;
        let at = node.listens_at().first().copied().ok_or_else(|| {
            let why = std::io::Error::other("the node does not report its address");
            OsError::new("getsockname", "LINX node", why)
        })?;
        let offer = Offer::new().with_word("address", at);
        let ends = Some(ends);
        Ok((LinxLinkListener { mechanism: Self::ID, ends, known: [None; 2], node }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        check(Self::ID, spec)?;
        let start = Instant::now();
        let until = Some(start + spec.open_timeout);
        let address: LinkAddress = offer.word(Self::ID, "address")?;
        let link = LinkSettings { name: "peer".to_owned(), addresses: vec![address] };
        let (node, mut ends) = place::<V>("connector", Vec::new(), vec![link])?;
        let mut find = |path| match ends.tx.hunt_and_wait(path, until) {
            Err(Error::TimedOut) => {
                Err(OpenError::TimedOut { mechanism: Self::ID, waited: start.elapsed() })
            }
            found => Ok(found.map_err(os)?),
        };
        let (to, from) = (find("peer/rx")?, find("peer/tx")?);
        hello(&mut ends.tx, true, to)?;
        hello(&mut ends.rx, false, to)?;
        ends.halves(from, to, SETTLES_WITHIN, Some(node))
    }
}
