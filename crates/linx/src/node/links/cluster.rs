//! Nodes that find each other by TIPC. Each publishes an instance, computed from its name, of one service type. TIPC's
//! topology service tells every node when another one starts or ends, wherever it is in the cluster.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_sys::epoll::Trigger;
use crossway_tipc_client as tipc;
use crossway_tipc_client::{Address, Patience, SocketKind};

use super::super::{Node, Token};
use super::{LinkAddress, Peer};

/// The topology service of every TIPC node.
const TOPOLOGY: Address = Address::service(1, 1);
/// Asks for an event for each socket, so that a second node with the same instance is noticed (TIPC_SUB_PORTS).
const EACH_SOCKET: u32 = 1;
const FOR_EVER: u32 = u32::MAX;
const PUBLISHED: u32 = 1;
const WITHDRAWN: u32 = 2;
const EVENT_LEN: usize = 48;

/// Pause before a subscription that ended is requested again.
const AGAIN: Duration = Duration::from_millis(500);

/// A node's part in a cluster.
pub(super) struct Cluster {
    service: u32,
    instance: u32,
    topology: Option<tipc::Socket>,
    /// When to connect to the topology service again; `None` while this node is connected to it.
    ask_at: Option<Instant>,
    is_ready: bool,
    /// Number of sockets that publish each instance.
    published: BTreeMap<u32, u32>,
    /// The last failure that was logged.
    told: String,
}

impl Cluster {
    pub(super) fn new(service: u32, name: &str) -> Cluster {
        Cluster {
            service,
            instance: instance_of(name),
            topology: None,
            ask_at: Some(Instant::now()),
            is_ready: false,
            published: BTreeMap::new(),
            told: String::new(),
        }
    }

    /// Returns the address at which this node is published.
    pub(super) fn address(&self) -> LinkAddress {
        LinkAddress::Tipc { service: self.service, instance: self.instance }
    }

    pub(super) fn next_instant(&self) -> Option<Instant> {
        self.ask_at
    }

    pub(super) fn has_work(&self) -> bool {
        self.is_ready
    }

    /// Notes that the system reported a change of the subscription.
    pub(super) fn changed(&mut self) {
        self.is_ready = true;
    }

    /// Whether this node dials the node with `instance`: of two nodes, the one with the lower instance dials.
    fn dials(&self, instance: u32) -> bool {
        instance > self.instance
    }

    fn subscribe(&self, backend: &tipc::Backend) -> Result<tipc::Socket, String> {
        let socket =
            tipc::Socket::open_on(backend, SocketKind::Seqpacket).map_err(|e| e.to_string())?;
        let failed = |errno: Errno| format!("TIPC's topology service: {errno}");
        // Both calls are answered by this host's own TIPC.
        let patience = Patience::Until(Instant::now() + AGAIN);
        socket.connect(Some(TOPOLOGY), patience).map_err(failed)?;
        let request = [self.service, 0, u32::MAX, FOR_EVER, EACH_SOCKET, 0, 0];
        let request: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
        socket.send(&request, None, patience).map_err(failed)?;
        Ok(socket)
    }

    /// Returns the next event: its type and the instance. `None` if there is none now.
    fn event(&mut self) -> Result<Option<(u32, u32)>, String> {
        let Some(socket) = &self.topology else { return Ok(None) };
        let mut event = [0; EVENT_LEN];
        match socket.recv(&mut event, Patience::Now) {
            Ok(EVENT_LEN) => {
                let word = |n: usize| {
                    event[4 * n..4 * n + 4].try_into().map(u32::from_ne_bytes).unwrap_or_default()
                };
                Ok(Some((word(0), word(1))))
            }
            Err(Errno::AGAIN) => Ok(None),
            Ok(_) => Err("TIPC's topology service ended the subscription".to_owned()),
            Err(errno) => Err(format!("TIPC's topology service: {errno}")),
        }
    }
}

/// Returns the instance for a node's name: its 32-bit FNV-1a hash.
fn instance_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl Node {
    /// Connects to the topology service, if that is due, and handles its events.
    pub(in crate::node) fn follow_cluster(&mut self) {
        let Some(cluster) = &mut self.links.cluster else { return };
        if cluster.ask_at.is_some_and(|at| at <= Instant::now()) {
            let subscribed = cluster.subscribe(&self.settings.tipc).and_then(|socket| {
                self.epoll
                    .add(&socket, Token::Topology.number(), Trigger::Changes)
                    .map_err(|error| error.to_string())?;
                Ok(socket)
            });
            match subscribed {
                Ok(socket) => {
                    cluster.topology = Some(socket);
                    cluster.ask_at = None;
                    cluster.told.clear();
                    cluster.is_ready = true;
                }
                Err(why) => return self.leave_cluster(&why),
            }
        }
        if !std::mem::take(&mut cluster.is_ready) {
            return;
        }
        while let Some(cluster) = &mut self.links.cluster {
            match cluster.event() {
                Ok(Some((PUBLISHED, instance))) => self.handle_published(instance),
                Ok(Some((WITHDRAWN, instance))) => self.handle_withdrawn(instance),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(why) => return self.leave_cluster(&why),
            }
        }
    }

    /// Forgets which nodes are published, until the topology service answers again. Links that are up stay up.
    fn leave_cluster(&mut self, why: &str) {
        let Some(cluster) = &mut self.links.cluster else { return };
        cluster.topology = None;
        cluster.ask_at = Some(Instant::now() + AGAIN);
        if cluster.told != why {
            tracing::warn!("cannot look up the nodes of the cluster: {why}; trying again");
            cluster.told = why.to_owned();
        }
        for instance in std::mem::take(&mut cluster.published).into_keys() {
            self.forget_node(instance);
        }
    }

    fn handle_published(&mut self, instance: u32) {
        let Some(cluster) = &mut self.links.cluster else { return };
        let count = cluster.published.entry(instance).or_default();
        *count += 1;
        if *count > 1 {
            tracing::warn!(
                "several nodes of the cluster {} have the same name, or names that give the same TIPC instance \
                 {instance}; give each node a different name (--name)",
                cluster.service
            );
            return;
        }
        if !cluster.dials(instance) {
            return;
        }
        let address = LinkAddress::Tipc { service: cluster.service, instance };
        // It is named when the other node introduces itself.
        match Peer::found(address) {
            Ok(peer) => {
                self.links.peers.insert(peer);
            }
            Err(error) => tracing::warn!("cannot create a link to {address}: {error}"),
        }
    }

    fn handle_withdrawn(&mut self, instance: u32) {
        let Some(cluster) = &mut self.links.cluster else { return };
        match cluster.published.get_mut(&instance) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                cluster.published.remove(&instance);
                self.forget_node(instance);
            }
        }
    }

    /// Stops dialling a node. The link to that node stays up until it has lost its connection.
    fn forget_node(&mut self, instance: u32) {
        let Some(cluster) = &self.links.cluster else { return };
        let address = LinkAddress::Tipc { service: cluster.service, instance };
        let found =
            self.links.peers.iter().find(|(_, peer)| peer.is_found && peer.addresses == [address]);
        let Some((index, peer)) = found else { return };
        if peer.wire.is_none() && peer.id.is_none() {
            self.links.peers.remove(index);
        } else {
            let peer = &mut self.links.peers[index];
            peer.addresses.clear();
            peer.dial_at = None;
        }
    }
}
