//! From packets to messages: bundles are taken apart, fragments put together.

use crate::drops::{DropCounters, DropReason};
use crate::limits::WIRE_MESSAGE_LEN_MAX;
use crate::wire::{Bundle, Fragment, FragmentKind, User, View};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The fragments of one message so far. There is one per link, because fragments of two messages never mix on a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    message: Option<Vec<u8>>,
}

/// A fragment came out of order, or the whole is not a message: on a unicast link the peer and we no longer agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfStep;

impl Reassembly {
    /// Takes the next in-sequence packet and appends the messages that it completes.
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
                // Room for the whole message, which its header promises in the first place.
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
            // A fragment inside a fragment would let a peer nest without end.
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

    /// Octets held.
    pub(crate) fn octets(&self) -> usize {
        self.message.as_ref().map_or(0, Vec::len)
    }
}

/// An inner message has no valid link fields of its own; its sender is that of the packet around it.
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
        assert_eq!(r.octets(), 0);
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
            "50 and 20 octets are not 124"
        );
        assert!(got.is_empty());
        assert_eq!(drops.get(DropReason::BadFragment), 3);
    }
}
