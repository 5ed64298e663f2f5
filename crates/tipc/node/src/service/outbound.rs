//! Messages to programs: out of the node into their descriptors, in batches, as long as these have room.

use std::io::IoSlice;

use crossway_sys::epoll::Epoll;
use crossway_sys::records::{self, MOST_SENT};
use crossway_sys::{Errno, socket};
use crossway_tipc_client::protocol::control::Kind;
use crossway_tipc_client::protocol::record::{Header, Kind as RecordKind};
use crossway_tipc_client::protocol::slot::Phase as SharedPhase;
use crossway_tipc_proto::addr::Port;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::socket::MembershipEvent;
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::ErrorCode;

use super::Service;
use super::downlane::NONSENSE;
use super::limits::OUT_OCTETS;
use super::local::{Local, Outgoing, Phase, Unread, local_range, local_socket};
use super::token::Place;

impl Service {
    /// Hands over what waits for a socket's program.
    pub(super) fn deliver(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(port) = local.port else { return };
        if matches!(local.phase, Phase::Listening) {
            return self.offer(now, node, epoll, place);
        }
        if matches!(local.phase, Phase::Open | Phase::Connecting) && local.kind.is_connected_kind()
        {
            return;
        }
        if local.lingers.is_some() && local.kind.is_connected_kind() {
            return discard(now, node, local, port);
        }
        while local.writable {
            fill(now, node, local, port);
            if local.out.is_empty() {
                break;
            }
            let before = (local.out.len(), local.out_sent);
            let outcome = if local.has_down_lane() {
                local.write_lane()
            } else if local.kind == Kind::Stream {
                write_octets(local)
            } else {
                let consumed = self.clients.get(local.client).map_or(0, |c| c.consumed(local.slot));
                local.note_consumed(consumed);
                write_messages(local)
            };
            if before != (local.out.len(), local.out_sent) {
                local.stalled.note_room();
            }
            match outcome {
                Ok(()) => {}
                Err(Errno::AGAIN) => local.writable = false,
                Err(NONSENSE) => return self.hang_up(now, node, epoll, place),
                // The program is gone; reading says so, too, and in its turn closes the socket.
                Err(_) => {
                    local.readable = true;
                    local.writable = false;
                    return self.list(place);
                }
            }
        }
        let relief = local.wants_relief();
        if local.announce() == Err(Errno::AGAIN) {
            // Stray bells fill the descriptor: when they have been taken out, this is tried again.
            local.writable = false;
            return;
        }
        if relief {
            self.list(place);
            self.warm(place);
        }
        let Some(local) = self.sockets.get_mut(place) else { return };
        if local.out.is_empty()
            && let Some(end) = local.end.take()
        {
            local.phase = Phase::Disconnected;
            local.stalled.clear();
            local.readable = true;
            self.list(place);
            self.warm(place);
            let Some(local) = self.sockets.get(place) else { return };
            self.set_state(local, SharedPhase::Disconnected, end);
            socket::shutdown_send(&local.fd);
        }
    }
}

/// Takes what comes for a program that receives no more, and keeps the first that goes back to its sender: a peer that waits until it can send
/// does not read what the program sent.
fn discard(now: Nanos, node: &mut Node, local: &mut Local, port: Port) {
    while let Ok(taken) = node.take(now, port) {
        let octets = taken.payload().len();
        if local.kind != Kind::Stream && local.unread.is_empty() && taken.is_returnable() {
            local.pushed += 1;
            local.unread.push_back(Unread { octets, taken: Some(taken) });
        }
    }
}

/// Takes messages out of the node up to a batch.
fn fill(now: Nanos, node: &mut Node, local: &mut Local, port: Port) {
    let mut octets = 0;
    while local.out.len() < MOST_SENT && octets < OUT_OCTETS && local.end.is_none() {
        let Ok(taken) = node.take(now, port) else { return };
        let incoming = taken.incoming();
        let returned = incoming.error != ErrorCode::Ok;
        let ends = returned && local.kind.is_connected_kind();
        if ends {
            local.end = Some(incoming.error.number() as u8);
            // What the peer has not read stands before the end; a stream has no place for it.
            if local.kind == Kind::Stream || incoming.payload.is_empty() {
                return;
            }
        }
        let news = incoming.group.and_then(|source| source.event);
        let header = Header {
            kind: match news {
                Some(_) => RecordKind::Member,
                None if returned => RecordKind::Returned,
                None => RecordKind::Data,
            },
            error: incoming.error.number() as u8,
            from: local_socket(incoming.from),
            service: incoming.service.map(local_range),
            member: incoming.group.map(|source| source.instance),
            gone: news == Some(MembershipEvent::Left),
        };
        octets += taken.octets();
        local.out.push_back(Outgoing { header: header.encode(), taken });
    }
}

fn write_messages(local: &mut Local) -> Result<(), Errno> {
    let Local { fd, out, .. } = local;
    let messages = out.iter().map(|o| (&o.header, o.taken.payload()));
    let sent = if out.len() == 1 {
        let first = &out[0];
        records::send(&*fd, &first.header, first.taken.payload(), true)?;
        1
    } else {
        records::send_many(&*fd, messages)?
    };
    for _ in 0..sent {
        let Some(outgoing) = local.out.pop_front() else { break };
        local.pushed += 1;
        // Only what its sender wants back is kept until it was read.
        let octets = outgoing.taken.payload().len();
        let taken = outgoing.taken.is_returnable().then_some(outgoing.taken);
        local.unread.push_back(Unread { octets, taken });
    }
    Ok(())
}

fn write_octets(local: &mut Local) -> Result<(), Errno> {
    let mut parts = [IoSlice::new(&[]); MOST_SENT];
    let mut skip = local.out_sent;
    for (part, outgoing) in parts.iter_mut().zip(&local.out) {
        *part = IoSlice::new(&outgoing.taken.payload()[skip..]);
        skip = 0;
    }
    let count = local.out.len().min(MOST_SENT);
    let mut sent = records::send_parts(&local.fd, &parts[..count], true)?;
    while let Some(first) = local.out.front() {
        let left = first.taken.payload().len() - local.out_sent;
        if sent < left {
            local.out_sent += sent;
            break;
        }
        sent -= left;
        local.out_sent = 0;
        local.out.pop_front();
    }
    Ok(())
}
