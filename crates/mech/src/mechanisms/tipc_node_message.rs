//! TIPC's RDM and DGRAM through a node in user space.

use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_tipc_client::{Address, ErrorCode, Event, NodeSocket, Patience, SocketKind};

use super::tipc_node::{MAX_MESSAGE_BYTES, REMEDY, node_socket, offered, publish, version};
use crate::building_blocks::datagram::{Datagram, Inbox};
use crate::building_blocks::tipc_port::{Arrival, MessageType, PortSocket, Tipc, TipcMessages};
use crate::{Carrier, Family, NodeKind, Offer, OpenError, Privilege, Spec, Transport};

/// How long a call that should not wait still waits for the node's process to run. If the descriptor is full, the node
/// has merely not run yet: within a node nothing else holds these messages back.
const NODE_RUNS_WITHIN: Duration = Duration::from_secs(1);

/// RDM (reliably delivered messages): messages are not lost in transit, but a full receiver rejects them.
pub type TipcNodeRdm = Datagram<TipcMessages<Rdm>>;
/// Datagrams, which may also be dropped in transit.
pub type TipcNodeDgram = Datagram<TipcMessages<Dgram>>;

/// The socket type of [`TipcNodeRdm`], SOCK_RDM.
#[derive(Debug)]
pub struct Rdm;

impl MessageType for Rdm {
    const NAME: &'static str = "tipc-node-rdm";
    const SUMMARY: &'static str = "TIPC through a node in user space (tipcd), RDM messages; an overloaded receiver rejects messages";
    const KIND: SocketKind = SocketKind::Rdm;
    type Tipc = NodeTipc;
}

/// The socket type of [`TipcNodeDgram`], SOCK_DGRAM.
#[derive(Debug)]
pub struct Dgram;

impl MessageType for Dgram {
    const NAME: &'static str = "tipc-node-dgram";
    const SUMMARY: &'static str = "TIPC through a node in user space (tipcd), datagrams; an overloaded receiver rejects messages";
    const KIND: SocketKind = SocketKind::Dgram;
    type Tipc = NodeTipc;
}

/// The TIPC of a `tipcd`.
#[derive(Debug)]
pub struct NodeTipc;

impl Tipc for NodeTipc {
    type Socket = NodeSocket;
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc).through(NodeKind::Tipcd);
    const PRIVILEGE: Privilege = Privilege::None;
    const LARGEST: usize = MAX_MESSAGE_BYTES;
    const ADVICE: &'static str = "this is the limit of TIPC; use tipc-node-stream for more";
    const REMEDY: &'static str = REMEDY;

    fn port(kind: SocketKind, spec: &Spec) -> Result<NodeSocket, OpenError> {
        node_socket(kind, spec)
    }

    fn publish(socket: &NodeSocket) -> Result<String, OpenError> {
        publish(socket)
    }

    fn offered(mechanism: &'static str, offer: &Offer, name: &str) -> Result<Address, OpenError> {
        offered(mechanism, offer, name)
    }

    fn overflow(_spec: &Spec) -> Vec<u8> {
        // The client reports a message's full length without it.
        Vec::new()
    }

    fn version() -> String {
        version()
    }
}

impl Inbox for NodeSocket {
    type Address = Address;

    fn greet(&self, to: &Address, word: &[u8], within: Duration) -> Result<(), Errno> {
        self.send(word, Some(*to), Patience::Until(Instant::now() + within)).map(drop)
    }

    fn hear(&self, buf: &mut [u8]) -> Result<(usize, Option<Address>), Errno> {
        let message = self.recv_message(buf, Patience::Now)?;
        let from = (message.event == Event::Data).then(|| message.from.into());
        Ok((message.full_len, from))
    }
}

impl PortSocket for NodeSocket {
    #[inline]
    fn send_to(&self, msg: &[u8], to: &Address, nonblocking: bool) -> Result<(), Errno> {
        let patience = if nonblocking { Patience::Now } else { Patience::Forever };
        let outcome = match self.send(msg, Some(*to), patience) {
            Err(Errno::AGAIN) if nonblocking => {
                self.send(msg, Some(*to), Patience::Until(Instant::now() + NODE_RUNS_WITHIN))
            }
            outcome => outcome,
        };
        outcome.map(drop)
    }

    #[inline]
    fn receive(
        &self,
        buf: &mut [u8],
        _overflow: &mut [u8],
        nonblocking: bool,
    ) -> Result<Arrival, Errno> {
        let patience = if nonblocking { Patience::Now } else { Patience::Forever };
        let message = self.recv_message(buf, patience)?;
        Ok(match message.event {
            Event::Data => Arrival::Message(message.full_len),
            Event::Returned(ErrorCode::Overload) => Arrival::Rejected,
            Event::Returned(_) => Arrival::Unreachable,
            Event::End(_) | Event::MemberUp | Event::MemberDown => Arrival::End,
        })
    }
}
