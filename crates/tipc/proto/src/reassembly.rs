//! From packets to messages: unpacks bundles and reassembles fragments.

use crate::drops::{DropCounters, DropReason};
use crate::limits::WIRE_MESSAGE_LEN_MAX;
use crate::wire::{Bundle, Fragment, FragmentKind, User, View};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The fragments of one message received so far. One per link is enough, because fragments of different messages are
/// never interleaved on a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    message: Option<Vec<u8>>,
}

/// A fragment arrived out of order, or the reassembled data is not a message: on a unicast link, the two ends are out
/// of sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfStep;

impl Reassembly {
    /// Handles the next in-sequence packet and appends the messages that it completes.
    pub(crate) fn accept(
        &mut self,
        packet: Cow<'_, [u8]>,
        messages: &mut Vec<Vec<u8>>,
        drops: &mut DropCounters,
    ) -> Result<(), OutOfStep> {
        let Ok(view) = View::parse(&packet) else {
            drops.count(DropReason::Malformed);
            return Ok(());
        };
        match view.user() {
            Some(User::Bundler) => {
                match Bundle::decode(&view) {
                    Ok(bundle) => {
                        for item in bundle.items() {
                            match item {
                                Ok(inner) => messages.push(with_sender(&inner, &view)),
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
                messages.push(packet.into_owned());
                Ok(())
            }
        }
    }

    fn fragment(
        &mut self,
        view: &View<'_>,
        messages: &mut Vec<Vec<u8>>,
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
            let mut message = self.message.take().unwrap_or_default();
            // Refuse fragments inside a fragment, with which a peer could nest without limit.
            match View::parse(&message) {
                Ok(inner) if !matches!(inner.user(), Some(User::Fragmenter | User::Bundler)) => {
                    let size = inner.size();
                    message.truncate(size);
                    set_sender(&mut message, view);
                    messages.push(message);
                }
                _ => return bad(drops),
            }
        }
        Ok(())
    }

    /// Number of bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, Vec::len)
    }
}

/// An inner message has no valid link fields of its own; its sender is the sender of the enclosing packet.
fn with_sender(inner: &View<'_>, outer: &View<'_>) -> Vec<u8> {
    let mut message = inner.bytes().to_vec();
    set_sender(&mut message, outer);
    message
}

fn set_sender(message: &mut [u8], outer: &View<'_>) {
    message[12..16].copy_from_slice(&outer.prev_node().0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Importance, NodeAddr, Port};
    use crate::wire::{DataKind, DataMessage, ErrorCode, LinkFields};

    fn message(len: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut out = Vec::new();
        DataMessage {
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
        }
        .encode(&LinkFields { sender: NodeAddr(7), ..LinkFields::default() }, &mut out);
        out
    }

    fn fragment(kind: FragmentKind, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Fragment { kind, dest: NodeAddr(1), number: 1, importance: 0, body }
            .encode(&LinkFields { sender: NodeAddr(7), ..LinkFields::default() }, &mut out);
        out
    }

    #[test]
    fn three_fragments_make_the_message() {
        let whole = message(100);
        let (mut r, mut got, mut drops) =
            (Reassembly::default(), Vec::new(), DropCounters::default());
        for (kind, body) in [
            (FragmentKind::First, &whole[..50]),
            (FragmentKind::Middle, &whole[50..80]),
            (FragmentKind::Last, &whole[80..]),
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
        let last = fragment(FragmentKind::Last, &whole[80..]);
        assert_eq!(r.accept((&last).into(), &mut got, &mut drops), Err(OutOfStep));
        let first = fragment(FragmentKind::First, &whole[..50]);
        assert_eq!(r.accept((&first).into(), &mut got, &mut drops), Ok(()));
        assert_eq!(r.accept((&first).into(), &mut got, &mut drops), Err(OutOfStep));
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
