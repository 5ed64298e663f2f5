//! Moves messages for programs from the node to the programs' descriptors, in batches and as far as there is room.

use std::io::IoSlice;

use crossway_sys::records::{self, MOST_SENT};
use crossway_sys::{Errno, socket};
use crossway_tipc_client::protocol::control::SocketKind;
use crossway_tipc_client::protocol::record::{Header, RecordKind};
use crossway_tipc_client::protocol::slot::Phase as SharedPhase;
use crossway_tipc_proto::addr::Port;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::socket::MembershipEvent;
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::ErrorCode;

use super::downlane::NONSENSE;
use super::limits::OUT_BYTES;
use super::local::{Local, Outgoing, Phase, Unread, local_range, local_socket};
use super::token::Place;
use super::{Context, Service};

impl Service {
    /// Passes waiting messages to a socket's program.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, place: Place) {
        self.pass_on(cx, place);
        self.watch_room(cx.epoll, place);
    }

    fn pass_on(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(port) = local.port else { return };
        if matches!(local.phase, Phase::Listening) {
            return self.offer(cx, place);
        }
        if matches!(local.phase, Phase::Open | Phase::Connecting) && local.kind.is_connected_kind()
        {
            return;
        }
        if local.lingers.is_some() && local.kind.is_connected_kind() {
            return discard(cx.now, cx.node, local, port);
        }
        while local.writable {
            fill(cx.now, cx.node, local, port);
            if local.out.is_empty() {
                break;
            }
            let before = (local.out.len(), local.out_sent);
            if !local.is_lane_free(&self.clients) {
                local.writable = false;
                return self.await_ring(cx.now, place);
            }
            let outcome = if local.has_down_lane() {
                local.write_lane()
            } else if local.kind == SocketKind::Stream {
                write_bytes(local)
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
                Err(NONSENSE) => return self.hang_up(cx, place),
                // The program no longer exists; this is also found when reading, where the socket is closed.
                Err(_) => {
                    local.readable = true;
                    local.writable = false;
                    return self.list(place);
                }
            }
        }
        let relief = local.wants_relief();
        if local.announce() == Err(Errno::AGAIN) {
            // Stray bells fill the descriptor: try again when they have been consumed.
            local.writable = false;
            return;
        }
        if relief {
            self.list(place);
            self.warm(place);
        }
        self.note_passed(cx.node, place);
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.pass_half_end_on();
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
            local.refuse_more();
        }
    }
}

/// Takes from the node all messages for a program that no longer receives: otherwise, a peer that is blocked in sending
/// them would not read the data that the program has sent. Keeps the first message that must be returned to its sender.
fn discard(now: Nanos, node: &mut Node, local: &mut Local, port: Port) {
    while let Ok(taken) = node.take(now, port) {
        let bytes = taken.payload().len();
        if local.kind != SocketKind::Stream && local.unread.is_empty() && taken.is_returnable() {
            local.pushed += 1;
            local.unread.push_back(Unread { bytes, taken: Some(taken) });
        }
    }
}

/// Takes a batch of messages from the node.
fn fill(now: Nanos, node: &mut Node, local: &mut Local, port: Port) {
    let mut bytes = 0;
    while local.out.len() < MOST_SENT && bytes < OUT_BYTES && local.end.is_none() {
        let Ok(taken) = node.take(now, port) else { return };
        let incoming = taken.incoming();
        let returned = incoming.error != ErrorCode::Ok;
        let ends = returned && local.kind.is_connected_kind();
        if !returned && local.kind == SocketKind::Stream && incoming.payload.is_empty() {
            local.halves.peer_ended = true;
            continue;
        }
        if ends {
            local.end = Some(incoming.error.number() as u8);
            // Data that the peer has not read comes before the end; a stream cannot represent it.
            if local.kind == SocketKind::Stream || incoming.payload.is_empty() {
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
        bytes += taken.size();
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
        // A message is only kept until it is read if its sender wants it returned.
        let bytes = outgoing.taken.payload().len();
        let taken = outgoing.taken.is_returnable().then_some(outgoing.taken);
        local.unread.push_back(Unread { bytes, taken });
    }
    Ok(())
}

fn write_bytes(local: &mut Local) -> Result<(), Errno> {
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
