//! `LINK_PROTOCOL`: RESET and ACTIVATE bring a link up; STATE supervises it and reports missing packets.

use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::{BearerId, NodeAddr};
use crate::seq::Seq;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// The name of the interface at one end of a link: up to 15 bytes, terminated by a NUL.
///
/// Kernels leave old stack contents after the NUL, so two names are equal if the text before the NUL is equal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceName(ArrayVec<u8, 15>);

impl InterfaceName {
    /// Length of the field on the wire, in bytes.
    pub const FIELD_LEN: usize = 16;

    /// The first 15 bytes of `text`, up to a NUL.
    pub fn new(text: &str) -> Self {
        Self(text.bytes().take_while(|&b| b != 0).take(15).collect())
    }

    /// The bytes of the name, without the padding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn decode(field: &[u8]) -> Self {
        Self(field.iter().copied().take_while(|&b| b != 0).take(15).collect())
    }
}

/// Fields of RESET and ACTIVATE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reset {
    /// Largest packet that the sender accepts, in bytes; a multiple of 4.
    pub max_packet: usize,
    /// Name of the sender's interface. The kernel drops messages without a name.
    pub interface: InterfaceName,
}

/// Additional fields of a STATE message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State<'a> {
    /// Whether the message requests an immediate answer.
    pub probe: bool,
    /// Whether the message is a probe or the answer to one.
    pub keepalive: bool,
    /// Number of unicast packets missing after the acknowledged one (13 bits).
    pub gap: u16,
    /// Number of broadcast packets missing after the acknowledged one (10 bits).
    pub bcast_gap: u16,
    /// The body: a gap-ack record if both ends support it, then optionally a monitor record.
    pub body: &'a [u8],
}

/// The kinds of link protocol message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkProtocolKind<'a> {
    /// Supervision of a link that is up.
    State(State<'a>),
    /// The sender's end is down.
    Reset(Reset),
    /// The sender's end is ready. The number is the session that it answers; `None` if it names none.
    Activate(Reset, Option<u16>),
}

/// A link protocol message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkProtocol<'a> {
    /// The node that sent the message.
    pub sender: NodeAddr,
    /// The node at the other end of the link.
    pub dest: NodeAddr,
    /// The sender's session: initially random, incremented at each reset.
    pub session: u16,
    /// Last packet received in sequence on the link.
    pub ack: Seq,
    /// In STATE, the number of this message within the session. In RESET and ACTIVATE, the number of the next packet
    /// plus 32767.
    pub seq: Seq,
    /// Last broadcast received in sequence from the destination. In ACTIVATE, the session that it answers takes its
    /// place.
    pub bcast_ack: Seq,
    /// Number of the last broadcast sent by the sender.
    pub last_bcast: Seq,
    /// Sequence number of the next packet on this link.
    pub next_sent: Seq,
    /// Whether the broadcast acknowledgement is not valid yet.
    pub bcast_ack_invalid: bool,
    /// Whether the sender's end is going down and will stay down for now.
    pub peer_stopping: bool,
    /// Whether the sender has another working link to the destination.
    pub redundant_link: bool,
    /// Bearer at the sender's end.
    pub bearer: BearerId,
    /// Link priority that the peer is to adopt; 0 for no change.
    pub priority: u8,
    /// Network plane of the link: 0 is "A".
    pub plane: u8,
    /// Tolerance that the peer is to adopt, in milliseconds; 0 for no change.
    pub tolerance_ms: u16,
    /// Kind of the message, with its own fields.
    pub kind: LinkProtocolKind<'a>,
}

impl<'a> LinkProtocol<'a> {
    /// Decodes a link protocol message.
    ///
    /// # Errors
    /// If the header is not 40 bytes long, the type does not exist, or RESET or ACTIVATE lacks the interface name.
    pub fn decode(view: &View<'a>) -> Result<Self, WireError> {
        view.check_header_len()?;
        let announced = || -> Result<Reset, WireError> {
            let field = view.data().get(..InterfaceName::FIELD_LEN).ok_or(WireError::Truncated)?;
            let max_packet = view.bits(9, 16, 0xffff) as usize * 4;
            Ok(Reset { max_packet, interface: InterfaceName::decode(field) })
        };
        let kind = match view.msg_type() {
            0 => LinkProtocolKind::State(State {
                probe: view.bits(5, 0, 1) != 0,
                keepalive: view.bit19(),
                gap: view.bits(1, 16, 0x1fff) as u16,
                bcast_gap: view.bits(8, 0, 0x3ff) as u16,
                body: view.data(),
            }),
            1 => LinkProtocolKind::Reset(announced()?),
            2 => {
                let session = (view.bits(1, 16, 1) != 0).then(|| view.bits(1, 0, 0xffff) as u16);
                LinkProtocolKind::Activate(announced()?, session)
            }
            t => return Err(WireError::Type(t as u8)),
        };
        Ok(Self {
            sender: view.prev_node(),
            dest: NodeAddr(view.word(7)),
            session: view.bits(5, 16, 0xffff) as u16,
            ack: view.ack(),
            seq: view.seq(),
            bcast_ack: view.bcast_ack(),
            last_bcast: Seq(view.bits(4, 16, 0xffff) as u16),
            next_sent: Seq(view.bits(4, 0, 0xffff) as u16),
            bcast_ack_invalid: view.bits(5, 14, 1) != 0,
            peer_stopping: view.bits(5, 13, 1) != 0,
            redundant_link: view.bits(5, 12, 1) != 0,
            bearer: BearerId(view.bits(5, 9, 7) as u8),
            priority: view.bits(5, 4, 31) as u8,
            plane: view.bits(5, 1, 7) as u8,
            tolerance_ms: view.bits(9, 0, 0xffff) as u16,
            kind,
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let msg_type = match self.kind {
            LinkProtocolKind::State(_) => 0,
            LinkProtocolKind::Reset(_) => 1,
            LinkProtocolKind::Activate(..) => 2,
        };
        let mut h = HeaderWords::new(User::LinkProtocol, msg_type, super::NAMED_HEADER_LEN);
        h.set(1, 0, 0xffff, self.bcast_ack.0.into());
        h.set(2, 16, 0xffff, self.ack.0.into()).set(2, 0, 0xffff, self.seq.0.into());
        h.set_word(3, self.sender.0).set_word(6, self.sender.0).set_word(7, self.dest.0);
        h.set(4, 16, 0xffff, self.last_bcast.0.into()).set(4, 0, 0xffff, self.next_sent.0.into());
        h.set(5, 16, 0xffff, self.session.into()).set(5, 14, 1, self.bcast_ack_invalid.into());
        h.set(5, 13, 1, self.peer_stopping.into()).set(5, 12, 1, self.redundant_link.into());
        h.set(5, 9, 7, self.bearer.0.into()).set(5, 4, 31, self.priority.into()).set(
            5,
            1,
            7,
            self.plane.into(),
        );
        h.set(9, 0, 0xffff, self.tolerance_ms.into());
        match &self.kind {
            LinkProtocolKind::State(state) => {
                h.set(0, 19, 1, state.keepalive.into()).set(5, 0, 1, state.probe.into());
                h.set(1, 16, 0x1fff, state.gap.into()).set(8, 0, 0x3ff, state.bcast_gap.into());
                h.write(&[state.body], out);
            }
            LinkProtocolKind::Reset(reset) | LinkProtocolKind::Activate(reset, _) => {
                if let LinkProtocolKind::Activate(_, Some(session)) = self.kind {
                    h.set(1, 16, 1, 1).set(1, 0, 0xffff, session.into());
                }
                h.set(9, 16, 0xffff, (reset.max_packet / 4) as u32);
                let mut field = [0; InterfaceName::FIELD_LEN];
                field[..reset.interface.0.len()].copy_from_slice(&reset.interface.0);
                h.write(&[&field], out);
            }
        }
    }
}
