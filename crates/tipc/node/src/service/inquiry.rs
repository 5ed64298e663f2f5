//! Answers programs' queries about sockets, nodes and links, and reads and sets socket options.

use crossway_sys::Errno;
use crossway_tipc_client::protocol::control::{
    HALF_CLOSE, RECEIVE_BYTES, SocketKind, SocketReport,
};
use crossway_tipc_proto::addr::Port;
use crossway_tipc_proto::node::{Node, option};

use super::Service;
use super::local::local_socket;
use super::request::{Answer, errno};
use super::token::Place;

impl Service {
    pub(super) fn get_option(
        &mut self,
        node: &mut Node,
        place: Place,
        port: Port,
        name: u32,
    ) -> Result<u32, Errno> {
        if name == RECEIVE_BYTES {
            let bytes = node.socket_report(port).map_err(errno)?.options.receive_bytes;
            return Ok(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        let value = node.get_option(port, name).map_err(errno)?;
        // The queue continues in the program's descriptor.
        let Some(local) = self.sockets.get_mut(place) else { return Ok(value) };
        local.note_consumed(self.clients.get(local.client).map_or(0, |c| c.consumed(local.slot)));
        local.note_lane_taken();
        let (messages, bytes) = local.waiting();
        let more = match name {
            option::SOCK_RECVQ_DEPTH => messages,
            option::SOCK_RECVQ_USED => bytes,
            _ => 0,
        };
        Ok(value.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)))
    }

    pub(super) fn set_option(
        &mut self,
        node: &mut Node,
        place: Place,
        port: Port,
        name: u32,
        value: u32,
    ) -> Result<(), Errno> {
        if name == RECEIVE_BYTES {
            let mut options = node.socket_report(port).map_err(errno)?.options;
            options.receive_bytes = (value as usize).clamp(1, self.limits.receive_bytes);
            return node.set_options(port, options).map_err(errno);
        }
        if name == HALF_CLOSE {
            let mut options = node.socket_report(port).map_err(errno)?.options;
            options.half_close = value != 0;
            let local = self.sockets.get_mut(place).filter(|l| l.kind == SocketKind::Stream);
            local.ok_or(Errno::NOPROTOOPT)?.halves.wanted = value != 0;
            return node.set_options(port, options).map_err(errno);
        }
        let takes_none = matches!(name, option::MCAST_BROADCAST | option::MCAST_REPLICAST);
        node.set_option(port, name, (!takes_none).then_some(value)).map_err(errno)
    }
}

/// The 16-byte identity of a node; zeros for this node if it has none because it has no bearers.
pub(super) fn identity(node: &Node, address: u32) -> Answer {
    let id = if node.addr().unwrap_or_default().0 == address {
        Some(node.id().map_or([0; 16], |id| id.0))
    } else {
        node.peers().find(|peer| peer.addr.0 == address).map(|peer| peer.id.0)
    };
    id.map_or_else(
        || Answer::error(Errno::ADDRNOTAVAIL),
        |id| Answer { bytes: [&[0; 4][..], &id].concat(), fds: Vec::new() },
    )
}

/// The name of a link: "own node:interface-peer:interface".
pub(super) fn link_name(node: &Node, address: u32, bearer: u32) -> Answer {
    let peer = node.peers().find(|peer| peer.addr.0 == address);
    let name = peer.and_then(|peer| {
        let link = peer.links.iter().find(|link| u32::from(link.bearer.0) == bearer)?;
        Some(crate::admin::name_of_link(node, &peer, link))
    });
    name.map_or_else(
        || Answer::error(Errno::ADDRNOTAVAIL),
        |name| Answer { bytes: [&[0; 4], name.as_bytes()].concat(), fds: Vec::new() },
    )
}

pub(super) fn report(node: &Node, port: Port) -> Answer {
    let Ok(report) = node.socket_report(port) else { return Answer::error(Errno::BADF) };
    let bytes = SocketReport {
        local: local_socket(report.local),
        peer: report.peer.map(local_socket),
        queued_messages: u32::try_from(report.queued_messages).unwrap_or(u32::MAX),
        queued_bytes: u32::try_from(report.queued_bytes).unwrap_or(u32::MAX),
    }
    .encode();
    Answer { bytes, fds: Vec::new() }
}

#[cfg(test)]
mod tests {
    use crossway_tipc_client::SocketOption;
    use crossway_tipc_proto::node::option;

    #[test]
    fn clients_and_the_protocol_number_the_options_alike() {
        let known = [
            option::IMPORTANCE,
            option::SRC_DROPPABLE,
            option::DEST_DROPPABLE,
            option::CONN_TIMEOUT,
            option::NODE_RECVQ_DEPTH,
            option::SOCK_RECVQ_DEPTH,
            option::MCAST_BROADCAST,
            option::MCAST_REPLICAST,
            option::GROUP_JOIN,
            option::GROUP_LEAVE,
            option::SOCK_RECVQ_USED,
            option::NODELAY,
        ];
        assert_eq!(known, SocketOption::ALL.map(SocketOption::number));
    }
}
