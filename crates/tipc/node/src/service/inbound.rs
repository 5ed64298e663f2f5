//! Reads messages from programs in batches, sends them, and holds them back during congestion.

use crossway_sys::records::MOST;
use crossway_sys::{Errno, socket};
use crossway_tipc_client::protocol::control::SocketKind;
use crossway_tipc_client::protocol::record::{Header, PAD_FAMILY, RecordKind, SEND_HEADER_LEN};
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::socket::{Address, SocketError};
use crossway_tipc_proto::time::Nanos;

use super::held::Stalled;
use super::limits::{BATCH_BYTES, BATCHES_PER_TURN, STREAM_READ_BYTES, TURNS_AT_ONCE};
use super::local::{Local, Phase, Unread, local_socket, proto_address};
use super::token::Place;
use super::uplane::Extent;
use super::{Context, Service};

/// Maximum payload length of a returned message in bytes.
const RETURNED_BYTES: usize = 1_024;

/// What happened to a message.
pub(super) enum Sent {
    Done,
    /// There is no room for it: it must wait, and so must all messages after it.
    Stalled,
    /// The message is invalid; only a faulty or hostile program sends it.
    Nonsense,
}

impl Service {
    /// Reads from a socket, if reading is allowed, as much as one turn allows.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get(place) else { return };
        if !local.may_read() {
            return;
        }
        if local.stalled.is_empty() {
            self.read_by_kind(cx, place);
        } else {
            self.relieve(cx, place);
        }
        // After the data that is waiting, only the end follows.
        if self.sockets.get(place).is_some_and(|l| l.ended && !l.stalled.is_empty()) {
            self.start_linger(cx, place);
        }
    }

    fn read_by_kind(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get(place) else { return };
        match (&local.phase, local.kind) {
            (Phase::Offered { .. }, _) => self.read_answer(cx, place),
            (_, SocketKind::Stream) => self.read_stream(cx, place, STREAM_READ_BYTES),
            _ => {
                for _ in 0..BATCHES_PER_TURN {
                    self.read_messages(cx, place, BATCH_BYTES);
                    if !self.sockets.get(place).is_some_and(Local::may_read) {
                        break;
                    }
                }
            }
        }
    }

    /// Reads all data in a socket's descriptor although it cannot be sent on, so that a program that is blocked in a
    /// send continues and can read. Reading less would not help, because the system wakes the program only when the
    /// descriptor is nearly empty.
    fn relieve(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get(place) else { return };
        let all = socket::readable_bytes(&local.fd).unwrap_or(0);
        let mut left = all;
        loop {
            // Data that the program adds in the meantime is not read now.
            match self.sockets.get(place).map(|local| local.kind) {
                Some(SocketKind::Stream) => self.read_stream(cx, place, left.max(1)),
                Some(_) => self.read_messages(cx, place, left.max(1)),
                None => return,
            }
            let Some(local) = self.sockets.get_mut(place) else { return };
            left = left.saturating_sub(local.last_read);
            if left == 0 || local.last_read == 0 {
                if left < all {
                    local.stalled.note_relief();
                }
                return;
            }
            // If the limit ended this early, it continues when less data is waiting.
            if !local.may_read() {
                return;
            }
        }
    }

    /// Reads all data in a socket's descriptor, unless something is waiting to be sent on.
    pub(super) fn read_present(&mut self, cx: &mut Context<'_>, place: Place) {
        for _ in 0..TURNS_AT_ONCE {
            self.read(cx, place);
            if !self.sockets.get(place).is_some_and(Local::may_read) {
                break;
            }
        }
    }

    /// Reads a batch of messages with about `bytes` bytes in total, as estimated from the length of those read last.
    fn read_messages(&mut self, cx: &mut Context<'_>, place: Place, bytes: usize) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let most = (bytes / local.mean).clamp(1, MOST);
        local.last_read = 0;
        let count = match self.inbox.receive_up_to(&local.fd, most) {
            Ok(count) => count,
            Err(Errno::AGAIN) => {
                local.readable = false;
                return;
            }
            // The program has closed without reading everything. That is reported once, ahead of data that it sent, which is found by
            // the next read.
            Err(Errno::CONNRESET) if !local.ended_early => {
                (local.ended, local.ended_early) = (true, true);
                return;
            }
            Err(_) => return self.hang_up(cx, place),
        };
        // The end is reported only once.
        local.readable = count == most || local.ended_early;
        let bytes: usize = (0..count).filter_map(|n| self.inbox.get(n)).map(<[u8]>::len).sum();
        local.last_read = bytes;
        local.mean = bytes.checked_div(count).unwrap_or_default().max(1);
        local.write_len = local.write_len.max(local.mean);
        // The lane's contents were sent before these messages.
        self.take_lane(cx, place, Extent::Whole);
        let Some(local) = self.sockets.get_mut(place) else { return };
        let mut taken = 0;
        for n in 0..count {
            let Some(record) = self.inbox.get(n) else {
                return self.hang_up(cx, place);
            };
            let Some((address, payload)) = record.split_first_chunk::<SEND_HEADER_LEN>() else {
                // An empty record is the end; one shorter than an address is invalid.
                return self.hang_up(cx, place);
            };
            if u16::from_ne_bytes([address[0], address[1]]) == PAD_FAMILY {
                continue;
            }
            let Some(dest) = destination(address) else {
                return self.hang_up(cx, place);
            };
            taken += 1;
            let hold = Stalled { dest, payload: Vec::new(), sent: 0 };
            let outcome = if local.stalled.is_empty() {
                send_one(cx.now, cx.node, local, dest, payload, &mut self.undelivered)
            } else {
                Sent::Stalled
            };
            match outcome {
                Sent::Done => {}
                Sent::Stalled => {
                    local.stalled.push_back(Stalled { payload: payload.to_vec(), ..hold });
                }
                Sent::Nonsense => return self.hang_up(cx, place),
            }
        }
        self.note_taken(place, taken);
    }

    /// Reads at most `bytes` bytes from a stream's descriptor.
    fn read_stream(&mut self, cx: &mut Context<'_>, place: Place, bytes: usize) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let most = bytes.min(self.scratch.len());
        local.last_read = 0;
        let len = match socket::recv(&local.fd, &mut self.scratch[..most], true) {
            Ok(0) if local.ends_by_half() => return self.end_half(cx, place),
            Ok(0) => return self.hang_up(cx, place),
            Ok(len) => len,
            Err(Errno::AGAIN) => {
                local.readable = false;
                return;
            }
            Err(_) => return self.hang_up(cx, place),
        };
        // Less than requested: the descriptor is empty, and new data will be reported. The end is reported only once.
        local.readable = len == most || local.ended || local.halves.reported;
        local.last_read = len;
        local.write_len = local.write_len.max(len);
        let padding = len.min(local.pad_owed);
        local.pad_owed -= padding;
        // The lane's contents were sent before these messages.
        self.take_lane(cx, place, Extent::Whole);
        let Some(local) = self.sockets.get_mut(place) else { return };
        send_bytes(cx.now, cx.node, local, &self.scratch[padding..len]);
        self.note_taken(place, (len - padding) as u64);
    }

    /// Sends waiting data. When none is left, does what was postponed: removes the socket, shuts it down, or reads on.
    pub(super) fn retry(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        if local.stalled.is_empty() {
            return;
        }
        let moved = send_stalled(cx.now, cx.node, local, &mut self.undelivered);
        let stalls = !local.stalled.is_empty();
        let relief = local.wants_relief();
        if moved {
            self.linger_on(cx.now, place);
        }
        if stalls {
            if relief {
                self.list(place);
                self.warm(place);
            }
            return;
        }
        self.warm(place);
        self.tell_half_end(cx, place);
        let Some(local) = self.sockets.get_mut(place) else { return };
        if local.gone {
            self.remove(cx, place);
        } else if local.shuts {
            // Data sent before that request may still be in the descriptor.
            self.read_present(cx, place);
            if self.sockets.get(place).is_some_and(|local| local.shuts) {
                self.shut_down(cx, place);
            }
        } else if local.may_read() {
            self.list(place);
        }
    }
}

/// Sends waiting data, as far as possible. Returns whether any was sent.
fn send_stalled(now: Nanos, node: &mut Node, local: &mut Local, undelivered: &mut u64) -> bool {
    let mut moved = false;
    while let Some(mut held) = local.stalled.pop_front() {
        let rest = &held.payload[held.sent..];
        let stalls = if local.kind == SocketKind::Stream {
            let Some(port) = local.port else { continue };
            match node.send(now, port, None, rest) {
                Ok(sent) => {
                    held.sent += sent;
                    moved |= sent > 0;
                }
                Err(SocketError::WouldBlock) => {}
                Err(_) => continue,
            }
            held.sent < held.payload.len()
        } else {
            matches!(send_one(now, node, local, held.dest, rest, undelivered), Sent::Stalled)
        };
        if stalls {
            local.stalled.push_front(held);
            break;
        }
        moved = true;
    }
    moved
}

/// The destination in a message's header: `Some(None)` if the header contains none, `None` if the header is invalid.
pub(super) fn destination(address: &[u8; SEND_HEADER_LEN]) -> Option<Option<Address>> {
    match u16::from_ne_bytes([address[0], address[1]]) {
        0 => Some(None),
        _ => proto_address(address).map(Some),
    }
}

/// Sends stream bytes; those for which there is no room are held.
pub(super) fn send_bytes(now: Nanos, node: &mut Node, local: &mut Local, bytes: &[u8]) {
    // On a socket that is not connected, stream data has no meaning.
    let (Phase::Connected, Some(port)) = (&local.phase, local.port) else { return };
    if bytes.is_empty() {
        return;
    }
    let sent = if local.stalled.is_empty() {
        match node.send(now, port, None, bytes) {
            Ok(sent) => sent,
            Err(SocketError::WouldBlock) => 0,
            // The connection has ended, and the program is notified through its descriptor.
            Err(_) => return,
        }
    } else {
        0
    };
    if sent < bytes.len() {
        let rest = bytes[sent..].to_vec();
        local.stalled.push_back(Stalled { dest: None, payload: rest, sent: 0 });
    }
}

/// Sends one message of a program.
pub(super) fn send_one(
    now: Nanos,
    node: &mut Node,
    local: &mut Local,
    dest: Option<Address>,
    payload: &[u8],
    undelivered: &mut u64,
) -> Sent {
    let Some(port) = local.port else { return Sent::Nonsense };
    if local.kind.is_connected_kind() {
        if !matches!(local.phase, Phase::Connected) {
            return Sent::Done;
        }
        return match node.send(now, port, None, payload) {
            Err(SocketError::WouldBlock) => Sent::Stalled,
            // The end of a connection is reported through the descriptor.
            Ok(_) | Err(_) => Sent::Done,
        };
    }
    // Only in a group does a message need no destination: it goes to all.
    if dest.is_none() && !node.socket_report(port).is_ok_and(|r| r.group.is_some()) {
        return Sent::Nonsense;
    }
    match node.send(now, port, dest, payload) {
        Ok(_) => Sent::Done,
        Err(SocketError::WouldBlock) => Sent::Stalled,
        Err(error) => {
            // It was reachable when the program checked, and no longer is: handle this as if the message had found no receiver.
            let wanted = node.socket_report(port).is_ok_and(|r| !r.options.dest_droppable);
            let back = wanted && error == SocketError::Unreachable;
            if !back || !dest.is_some_and(|dest| return_to(local, dest, payload)) {
                *undelivered += 1;
            }
            Sent::Done
        }
    }
}

/// Returns a message to the program that sent it. Returns false if there is no room for it.
fn return_to(local: &mut Local, dest: Address, payload: &[u8]) -> bool {
    const NO_NAME: u8 = 1;
    const NO_NODE: u8 = 3;
    let (from, error) = match dest {
        Address::Socket(to) => (to, NO_NODE),
        _ => (Default::default(), NO_NAME),
    };
    let header = Header {
        kind: RecordKind::Returned,
        error,
        from: local_socket(from),
        service: None,
        member: None,
        gone: false,
    };
    let part = &payload[..payload.len().min(RETURNED_BYTES)];
    if local.has_down_lane() {
        return local.write_lane_now(&header.encode(), part);
    }
    let done = crossway_sys::records::send(&local.fd, &header.encode(), part, true).is_ok();
    if done {
        local.pushed += 1;
        local.unread.push_back(Unread { bytes: part.len(), taken: None });
    }
    done
}
