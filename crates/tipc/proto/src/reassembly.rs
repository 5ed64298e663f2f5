//! Turns packets into messages: unpacks bundles and reassembles fragments.

use crate::drops::{DropCounters, DropReason};
use crate::limits::WIRE_MESSAGE_LEN_MAX;
use crate::wire::{Bundle, Fragment, FragmentKind, Inbound, Packet, User, View};
use alloc::vec::Vec;

/// The fragments of a message received so far. One message per link is enough, because the fragments of different
/// messages are never interleaved on a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    message: Option<Vec<u8>>,
}

/// Error: a fragment arrived out of order, or the reassembled data is not a message. On a unicast link, this means that
/// the two ends no longer agree on the state of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfStep;

impl Reassembly {
    /// Handles the next packet in sequence, and appends the messages that it completes to `messages`.
    pub(crate) fn accept(
        &mut self,
        packet: Inbound<'_>,
        messages: &mut Vec<Packet>,
        drops: &mut DropCounters,
    ) -> Result<(), OutOfStep> {
        let view = packet.view();
        match view.user() {
            Some(User::Bundler) => {
                match Bundle::decode(&view) {
                    Ok(bundle) => {
                        for item in bundle.items() {
                            match item {
                                Ok(inner) => {
                                    messages.push(with_sender(Packet::copy_of(&inner), &view));
                                }
                                Err(_) => drops.count(DropReason::BadBundle),
                            }
                        }
                    }
                    Err(error) => drops.count(error.into()),
                }
                Ok(())
            }
            Some(User::Fragmenter) => self.fragment(&view, messages, drops),
            _ => {
                messages.push(packet.into_packet());
                Ok(())
            }
        }
    }

    fn fragment(
        &mut self,
        view: &View<'_>,
        messages: &mut Vec<Packet>,
        drops: &mut DropCounters,
    ) -> Result<(), OutOfStep> {
        let fragment = Fragment::decode(view).map_err(|error| {
            drops.count(error.into());
            OutOfStep
        })?;
        let bad = |drops: &mut DropCounters| {
            drops.count(DropReason::BadFragment);
            Err(OutOfStep)
        };
        match (fragment.kind, &mut self.message) {
            (FragmentKind::First, None) => {
                // Reserve room for the whole message, whose size is in the header in the first fragment.
                let promised = fragment.body.first_chunk().map_or(0, |w| u32::from_be_bytes(*w));
                let mut message = Vec::with_capacity(
                    ((promised & 0x1_ffff) as usize)
                        .min(WIRE_MESSAGE_LEN_MAX)
                        .max(fragment.body.len()),
                );
                message.extend_from_slice(fragment.body);
                self.message = Some(message);
                return Ok(());
            }
            (FragmentKind::First, Some(_)) | (_, None) => {
                self.message = None;
                return bad(drops);
            }
            (_, Some(message)) => {
                if message.len() + fragment.body.len() > WIRE_MESSAGE_LEN_MAX {
                    self.message = None;
                    return bad(drops);
                }
                message.extend_from_slice(fragment.body);
            }
        }
        if fragment.kind == FragmentKind::Last {
            let nests = |inner: &Packet| {
                matches!(inner.view().user(), Some(User::Fragmenter | User::Bundler))
            };
            // Refuse fragments inside a fragment, with which a peer could nest without limit.
            match Packet::parse(self.message.take().unwrap_or_default()) {
                Ok(inner) if !nests(&inner) => messages.push(with_sender(inner, view)),
                _ => return bad(drops),
            }
        }
        Ok(())
    }

    /// Number of bytes of the incomplete message.
    pub(crate) fn held_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, Vec::len)
    }
}

/// Copies the sender of the enclosing packet to an inner message, which has no valid link fields of its own.
fn with_sender(mut inner: Packet, outer: &View<'_>) -> Packet {
    inner.set_sender(outer.prev_node());
    inner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Importance, NodeAddr, Port};
    use crate::seq::Seq;
    use crate::wire::{DataKind, DataMessage, ErrorCode, LinkFields};

    const LINK: LinkFields = LinkFields {
        sender: NodeAddr(7),
        seq: Seq(0),
        ack: Seq(0),
        bcast_ack: Seq(0),
        broadcast: None,
    };

    fn message(len: usize) -> Packet {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let message = DataMessage {
            importance: Importance::Low,
            dest_droppable: false,
            flag18: false,
            syn: false,
            error: ErrorCode::Ok,
            reroutes: 0,
            lookup_scope: 0,
            orig_port: Port(1),
            dest_port: Port(2),
            kind: DataKind::Conn,
            payload: &payload,
        };
        Packet::encoded(|out| message.encode(&LINK, out))
    }

    fn fragment(kind: FragmentKind, body: &[u8]) -> Packet {
        let fragment = Fragment { kind, dest: NodeAddr(1), number: 1, importance: 0, body };
        Packet::encoded(|out| fragment.encode(&LINK, out))
    }

    #[test]
    fn three_fragments_make_the_message() {
        let whole = message(100);
        let (mut r, mut got, mut drops) =
            (Reassembly::default(), Vec::new(), DropCounters::default());
        for (kind, body) in [
            (FragmentKind::First, &whole.bytes()[..50]),
            (FragmentKind::Middle, &whole.bytes()[50..80]),
            (FragmentKind::Last, &whole.bytes()[80..]),
        ] {
            assert_eq!(r.accept(fragment(kind, body).into(), &mut got, &mut drops), Ok(()));
        }
        assert_eq!(got, [whole]);
        assert_eq!(r.held_bytes(), 0);
    }

    #[test]
    fn fragments_out_of_step_and_wholes_without_a_message_are_refused() {
        let whole = message(100);
        let (mut r, mut got, mut drops) =
            (Reassembly::default(), Vec::new(), DropCounters::default());
        let last = fragment(FragmentKind::Last, &whole.bytes()[80..]);
        assert_eq!(r.accept(last.clone().into(), &mut got, &mut drops), Err(OutOfStep));
        let first = fragment(FragmentKind::First, &whole.bytes()[..50]);
        assert_eq!(r.accept(first.clone().into(), &mut got, &mut drops), Ok(()));
        assert_eq!(r.accept(first.clone().into(), &mut got, &mut drops), Err(OutOfStep));
        assert_eq!(r.accept(first.into(), &mut got, &mut drops), Ok(()));
        assert_eq!(
            r.accept(last.into(), &mut got, &mut drops),
            Err(OutOfStep),
            "50 and 20 bytes are not 124"
        );
        assert!(got.is_empty());
        assert_eq!(drops.get(DropReason::BadFragment), 3);
    }
}
