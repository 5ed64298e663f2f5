//! The protocol between two nodes: frames in a byte stream, each with a length (4 bytes, of what follows), a kind and
//! fields.
//!
//! Frames that a session numbers (everything from [`Message`]) survive the loss of a connection; the others belong to one
//! connection.

use super::fields::{Malformed, Reader, Writer};
use crate::Spid;
use crate::limits::PIECE;

/// The version of this protocol.
pub(crate) const VERSION: u32 = 1;

/// The first bytes of every connection, which show that the other end is a node.
pub(crate) const MAGIC: u32 = 0x4c4e_5858;

/// Maximum length of a frame in bytes: a piece of a signal with its fields.
pub(crate) const LONGEST_FRAME: usize = PIECE + 256;

/// The piece is the first of its signal.
pub(crate) const FIRST: u8 = 1;
/// The signal is out of band.
pub(crate) const OUT_OF_BAND: u8 = 2;

/// A frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Identifies the sender, and says how many messages of the session it has received. Both ends send it first.
    Init(Init),
    /// The connection is refused, with the reason.
    Refused { why: String },
    /// This many messages of the session were received.
    Ack { received: u64 },
    /// Requests a [`Frame::Pong`].
    Ping,
    /// The answer to a [`Frame::Ping`].
    Pong,
    /// A message numbered by the session.
    Message(Message),
}

/// The introduction of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) version: u32,
    /// Features, separated by commas; those that both ends list are used.
    pub(crate) features: String,
    /// The dialling node's name, which the other node uses for the link unless configured otherwise.
    pub(crate) name: String,
    /// Chosen by the dialling end; the same on every connection of one session.
    pub(crate) session: u64,
    /// The number of the session that the end knows, 0 if none: an end that has forgotten the session starts a new one.
    pub(crate) known: u64,
    pub(crate) received: u64,
    /// How long the end waits for a sign of life, in milliseconds.
    pub(crate) timeout_ms: u32,
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Hunts for an endpoint.
    Query { id: u64, path: String },
    /// Cancels a hunt.
    Cancel { id: u64 },
    /// Announces an endpoint that will be referred to from now on.
    Publish { spid: Spid, name: String },
    /// The endpoint has ended.
    Unpublish { spid: Spid },
    /// The answer to a query.
    Answer { id: u64, spid: Spid },
    /// A piece of a signal. The first one starts with the signal's number.
    Data { from: Spid, to: Spid, size: u32, flags: u8, piece: Vec<u8> },
    /// This many bytes for `to` were delivered.
    Credit { to: Spid, bytes: u32 },
}

impl Frame {
    /// Appends the frame with its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let w = match self {
            Frame::Init(init) => Writer::of(1)
                .int(MAGIC)
                .int(init.version)
                .long(init.session)
                .long(init.known)
                .long(init.received)
                .int(init.timeout_ms)
                .text(&init.features)
                .text(&init.name),
            Frame::Refused { why } => Writer::of(2).text(why),
            Frame::Ack { received } => Writer::of(3).long(*received),
            Frame::Ping => Writer::of(4),
            Frame::Pong => Writer::of(5),
            Frame::Message(message) => match message {
                Message::Query { id, path } => Writer::of(16).long(*id).text(path),
                Message::Cancel { id } => Writer::of(17).long(*id),
                Message::Publish { spid, name } => Writer::of(18).spid(*spid).text(name),
                Message::Unpublish { spid } => Writer::of(19).spid(*spid),
                Message::Answer { id, spid } => Writer::of(20).long(*id).spid(*spid),
                Message::Data { from, to, size, flags, piece } => {
                    Writer::of(21).spid(*from).spid(*to).int(*size).byte(*flags).rest(piece)
                }
                Message::Credit { to, bytes } => Writer::of(22).spid(*to).int(*bytes),
            },
        };
        let body = w.done();
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(&body);
    }

    /// Decodes the first frame, if it is complete, and returns it with its length in bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
        let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if len == 0 || len > LONGEST_FRAME {
            return Err(Malformed);
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let mut r = Reader::new(body);
        let frame = match r.byte()? {
            1 => {
                if r.int()? != MAGIC {
                    return Err(Malformed);
                }
                Frame::Init(Init {
                    version: r.int()?,
                    session: r.long()?,
                    known: r.long()?,
                    received: r.long()?,
                    timeout_ms: r.int()?,
                    features: r.text()?,
                    name: r.text()?,
                })
            }
            2 => Frame::Refused { why: r.text()? },
            3 => Frame::Ack { received: r.long()? },
            4 => Frame::Ping,
            5 => Frame::Pong,
            16 => Frame::Message(Message::Query { id: r.long()?, path: r.text()? }),
            17 => Frame::Message(Message::Cancel { id: r.long()? }),
            18 => Frame::Message(Message::Publish { spid: r.spid()?, name: r.text()? }),
            19 => Frame::Message(Message::Unpublish { spid: r.spid()? }),
            20 => Frame::Message(Message::Answer { id: r.long()?, spid: r.spid()? }),
            21 => Frame::Message(Message::Data {
                from: r.spid()?,
                to: r.spid()?,
                size: r.int()?,
                flags: r.byte()?,
                piece: r.rest().to_vec(),
            }),
            22 => Frame::Message(Message::Credit { to: r.spid()?, bytes: r.int()? }),
            _ => return Err(Malformed),
        };
        Ok(Some((r.end(frame)?, 4 + len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_and_parts_of_them_wait_for_more() {
        let spid = |n| Spid::new(n).unwrap();
        let init = Init {
            version: VERSION,
            features: "oob,resume".into(),
            name: "a".into(),
            session: 1,
            known: 2,
            received: 3,
            timeout_ms: 1000,
        };
        let messages = [
            Message::Query { id: 1, path: "b/c".into() },
            Message::Cancel { id: 1 },
            Message::Publish { spid: spid(3), name: "c".into() },
            Message::Unpublish { spid: spid(3) },
            Message::Answer { id: 1, spid: spid(3) },
            Message::Data { from: spid(1), to: spid(2), size: 8, flags: FIRST, piece: vec![1; 8] },
            Message::Credit { to: spid(2), bytes: 99 },
        ];
        let others = [
            Frame::Init(init),
            Frame::Refused { why: "no".into() },
            Frame::Ack { received: 7 },
            Frame::Ping,
            Frame::Pong,
        ];
        for frame in others.into_iter().chain(messages.map(Frame::Message)) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(Frame::decode(&bytes[..len]), Ok(None));
            }
            assert_eq!(Frame::decode(&bytes), Ok(Some((frame, bytes.len()))));
        }
        assert_eq!(Frame::decode(&[0, 0, 0, 0, 1]), Err(Malformed), "no kind");
        assert_eq!(Frame::decode(&[1, 0, 0, 0]), Err(Malformed), "longer than any");
        assert_eq!(Frame::decode(&[0, 0, 0, 2, 4, 9]), Err(Malformed), "something follows");
    }
}
