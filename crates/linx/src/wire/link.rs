//! The protocol between two nodes. Each frame in the byte stream has a length (4 bytes; it does not include itself), a
//! kind and fields.
//!
//! Frames to which a session gives numbers (all variants of [`Message`]) survive the loss of a connection; the others
//! belong to one connection.

use super::body::{Body, Framed};
use super::fields::{Malformed, Reader, Writer};
use crate::Spid;
use crate::limits::PIECE;

/// The version of this protocol.
pub(crate) const VERSION: u32 = 1;

/// The first field of the first frame on every connection, which shows that the other end is a node.
pub(crate) const MAGIC: u32 = 0x4c4e_5858;

/// Maximum length of a frame in bytes: a piece of a signal with its fields.
pub(crate) const LONGEST_FRAME: usize = PIECE + 256;

/// The kind of a frame that contains a piece of a signal. `DATA_HEAD` is that frame's length in bytes without the
/// piece.
const DATA: u8 = 21;
const DATA_HEAD: usize = 18;

/// Flag: the piece is the first of its signal.
pub(crate) const FIRST: u8 = 1;
/// Flag: the signal is out of band.
pub(crate) const OUT_OF_BAND: u8 = 2;

/// A frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Identifies the sender, and says how many messages of the session it has received. Both ends send it first.
    Init(Init),
    /// The connection is refused, with the reason.
    Refused { why: String },
    /// The sender of this frame has received this many messages of the session.
    Ack { received: u64 },
    /// Requests a [`Frame::Pong`].
    Ping,
    /// The answer to a [`Frame::Ping`].
    Pong,
    /// A message numbered by the session.
    Message(Message),
}

/// The introduction of one end of a connection to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) version: u32,
    /// Features, separated by commas; those that both ends list are used.
    pub(crate) features: String,
    /// The name of the sending node. A dialled node names the link after the dialling node. A dialling node does so
    /// only if the topology service has reported the dialled node; other links have the configured name.
    pub(crate) name: String,
    /// Chosen by the dialling end; the same on every connection of one session.
    pub(crate) session: u64,
    /// The number of the session that this end remembers; 0 if none. An end that has forgotten the session starts a new
    /// one.
    pub(crate) known: u64,
    pub(crate) received: u64,
    /// How long this end waits for a sign of life, in milliseconds.
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
    Data { from: Spid, to: Spid, size: u32, flags: u8, piece: Body },
    /// The sender of this message has delivered this many bytes to `to`.
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
                    Writer::of(DATA).spid(*from).spid(*to).int(*size).byte(*flags).rest(piece)
                }
                Message::Credit { to, bytes } => Writer::of(22).spid(*to).int(*bytes),
            },
        };
        let body = w.done();
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(&body);
    }

    /// Returns the lengths of the head and the body of the first frame; `None` if there are too few bytes to tell. For
    /// a piece of a signal, the head is the whole frame without the piece; for other frames, it is only the length.
    pub(crate) fn measure(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
        let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if len == 0 || len > LONGEST_FRAME {
            return Err(Malformed);
        }
        match rest.first() {
            None => Ok(None),
            Some(&DATA) if len < DATA_HEAD - 4 => Err(Malformed),
            Some(&DATA) => Ok(Some((DATA_HEAD, len - (DATA_HEAD - 4)))),
            Some(_) => Ok(Some((4, len))),
        }
    }

    /// Returns sender, receiver, size and flags from the head of a frame with a piece of a signal; `None` for another
    /// head.
    pub(crate) fn data_head(head: &[u8]) -> Option<(Spid, Spid, u32, u8)> {
        if head.len() != DATA_HEAD {
            return None;
        }
        let mut r = Reader::new(&head[5..]);
        Some((r.spid().ok()?, r.spid().ok()?, r.int().ok()?, r.byte().ok()?))
    }

    /// Decodes a frame from its head and body.
    pub(crate) fn decode(head: &[u8], body: Body) -> Result<Frame, Malformed> {
        if head.len() == DATA_HEAD {
            let mut r = Reader::new(&head[5..]);
            let (from, to, size, flags) = (r.spid()?, r.spid()?, r.int()?, r.byte()?);
            return r.end(Frame::Message(Message::Data { from, to, size, flags, piece: body }));
        }
        let mut r = Reader::new(&body);
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
            22 => Frame::Message(Message::Credit { to: r.spid()?, bytes: r.int()? }),
            _ => return Err(Malformed),
        };
        r.end(frame)
    }
}

/// Decodes the first frame, if it is complete, and returns it with its length in bytes.
#[cfg(test)]
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
    let Some((head, body)) = Frame::measure(bytes)? else { return Ok(None) };
    let Some(frame) = bytes.get(..head + body) else { return Ok(None) };
    let (head, body) = frame.split_at(head);
    Ok(Some((Frame::decode(head, Body::of(body))?, frame.len())))
}

impl Message {
    /// Returns the message in the form in which it is sent; a piece of a signal is not copied.
    pub(crate) fn framed(self) -> Framed {
        let Message::Data { from, to, size, flags, piece } = self else {
            let mut bytes = Vec::new();
            Frame::Message(self).encode(&mut bytes);
            return bytes.into();
        };
        let mut head = [0; DATA_HEAD];
        let len = (DATA_HEAD - 4 + piece.len()) as u32;
        for (at, number) in [(0, len), (5, from.get()), (9, to.get()), (13, size)] {
            head[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        (head[4], head[17]) = (DATA, flags);
        piece.behind(&head)
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
            Message::Data {
                from: spid(1),
                to: spid(2),
                size: 8,
                flags: FIRST,
                piece: Body::of(&[1; 8]),
            },
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
                assert_eq!(decode(&bytes[..len]), Ok(None));
            }
            assert_eq!(decode(&bytes), Ok(Some((frame.clone(), bytes.len()))));
            if let Frame::Message(message) = frame {
                assert_eq!(message.framed().to_vec(), bytes);
            }
        }
        assert_eq!(decode(&[0, 0, 0, 0, 1]), Err(Malformed), "no kind");
        assert_eq!(decode(&[1, 0, 0, 0]), Err(Malformed), "longer than any");
        assert_eq!(decode(&[0, 0, 0, 2, 4, 9]), Err(Malformed), "something follows");
        assert_eq!(decode(&[0, 0, 0, 13, DATA, 0, 0]), Err(Malformed), "no fields");
    }
}
