//! Returns undeliverable messages to their senders.

use super::Node;
use crate::addr::NodeAddr;
use crate::drops::DropReason;
use crate::wire::{BASIC_HEADER_LEN, ErrorCode, Packet, View};
use alloc::vec::Vec;

/// Maximum number of payload bytes in a returned message.
pub(super) const RETURNED_BYTES: usize = 1_024;

/// Builds the returned form of a message: ports swapped, error code set, payload cut to 1,024 bytes (to none if a full
/// listener refuses a connection request), and the node addresses added to a short header. Returns `None` if the
/// message must not be returned: because it is a returned message itself, or because its sender does not want it back.
pub(crate) fn returned(view: &View<'_>, own: NodeAddr, error: ErrorCode) -> Option<Packet> {
    let is_data = view.user_number() <= 3;
    if (is_data && view.bit19()) || view.error_code() != Some(ErrorCode::Ok) {
        return None;
    }
    let refused_setup = view.is_syn() && error == ErrorCode::Overload;
    let payload =
        if refused_setup { &[] } else { &view.data()[..view.data().len().min(RETURNED_BYTES)] };
    let header_len = view.header_len().max(BASIC_HEADER_LEN);
    let mut words = Vec::with_capacity(header_len / 4);
    words.extend((0..header_len / 4).map(|n| view.word(n)));
    let size = (header_len + payload.len()) as u32;
    words[0] = words[0] & !(0xf << 21 | 1 << 20 | 0x1_ffff) | (header_len as u32 / 4) << 21 | size;
    words[1] = words[1] & !(0xf << 25 | 0xffff) | error.number() << 25;
    words[2] = 0;
    words.swap(4, 5);
    (words[3], words[6], words[7]) = (own.0, own.0, view.prev_node().0);
    let mut bytes = Vec::with_capacity(size as usize);
    bytes.extend(words.iter().flat_map(|w| w.to_be_bytes()));
    bytes.extend_from_slice(payload);
    Some(Packet::built(bytes))
}

impl Node {
    /// Returns an undeliverable message to its sender, or counts it as dropped if it must not or cannot be returned.
    /// Returns whether it was returned.
    pub(super) fn return_message(
        &mut self,
        sender: NodeAddr,
        view: &View<'_>,
        error: ErrorCode,
    ) -> bool {
        // A multicast is never returned, even if its sender did not mark it as droppable: it was not addressed to a single port.
        let is_mcast = view.user_number() <= 3 && view.msg_type() == 1;
        let answer = (!is_mcast).then(|| returned(view, self.own(), error)).flatten();
        let done = answer.is_some_and(|message| self.route(sender, message).is_ok());
        if !done {
            let overload = error == ErrorCode::Overload;
            self.drops.count(if overload { DropReason::Overload } else { DropReason::NoPort });
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Importance, Port};
    use crate::wire::{DataKind, DataMessage, Frame, LinkFields, Message};

    fn connection_message(error: ErrorCode, dest_droppable: bool) -> Packet {
        let message = DataMessage {
            importance: Importance::High,
            dest_droppable,
            flag18: false,
            syn: false,
            error,
            reroutes: 0,
            lookup_scope: 0,
            orig_port: Port(11),
            dest_port: Port(22),
            kind: DataKind::Conn,
            payload: &[7; 2000],
        };
        let link = LinkFields { sender: NodeAddr(1), ..LinkFields::default() };
        Packet::encoded(|out| message.encode(&link, out))
    }

    #[test]
    fn a_returned_message_has_its_ports_swapped_and_its_payload_cut() {
        let message = connection_message(ErrorCode::Ok, false);
        let back = returned(&message.view(), NodeAddr(2), ErrorCode::NoPort).unwrap();
        let Ok(Frame::Sequenced(link, Message::Data(m))) = Frame::decode(back.bytes()) else {
            panic!("not data")
        };
        assert_eq!((link.sender, m.orig_port, m.dest_port), (NodeAddr(2), Port(22), Port(11)));
        assert_eq!(m.kind, DataKind::ConnReturned { orig: NodeAddr(2), dest: NodeAddr(1) });
        assert_eq!(
            (m.error, m.importance, m.payload.len()),
            (ErrorCode::NoPort, Importance::High, RETURNED_BYTES)
        );
    }

    #[test]
    fn messages_already_returned_or_marked_droppable_are_not_returned() {
        for message in
            [connection_message(ErrorCode::NoPort, false), connection_message(ErrorCode::Ok, true)]
        {
            assert_eq!(returned(&message.view(), NodeAddr(2), ErrorCode::NoPort), None);
        }
    }
}
