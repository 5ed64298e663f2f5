//! The encoding of a trace's records, which capture files and the dissector (`crossway_linx.lua`) share.
//!
//! All numbers are big-endian. A record consists of version, event, way and flags (a byte each), then reporter, from,
//! to, number and size (4 bytes each), id (8), name and link (each preceded by its length in 2 bytes), and the
//! beginning of the payload. Between programs and the tool that traces, a record is preceded by its time.

use crate::wire::fields::{Malformed, Reader, Writer};

/// The version of the encoding.
const VERSION: u8 = 1;

/// Length in bytes of the time that precedes a record: nanoseconds since 1970-01-01 UTC.
const TIME: usize = 8;

/// Length in bytes of a record without texts and payload.
const FIXED: usize = 36;

const OUT_OF_BAND: u8 = 1;

/// What a record reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EventKind {
    /// A signal was sent or received by an endpoint.
    #[default]
    Signal = 1,
    Open = 2,
    Close = 3,
    Hunt = 4,
    CancelHunt = 5,
    Found = 6,
    Attach = 7,
    Detach = 8,
    Gone = 9,
    /// An endpoint that was open before the trace began.
    Exists = 10,
    /// From here on, messages of links.
    LinkQuery = 32,
    LinkCancel = 33,
    LinkPublish = 34,
    LinkUnpublish = 35,
    LinkAnswer = 36,
    LinkData = 37,
    LinkCredit = 38,
}

/// The direction of a signal as seen by the endpoint, or of a link's message as seen by the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    #[default]
    Sent = 1,
    Received = 2,
}

/// A record. Fields that do not apply are 0 or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) event: EventKind,
    pub(crate) way: Way,
    pub(crate) out_of_band: bool,
    /// The number of the endpoint whose program reports the event; 0 if the node reports it.
    pub(crate) reporter: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The number that identifies the signal's type.
    pub(crate) number: u32,
    /// The signal's size in bytes, including its number; for credit, the number of bytes.
    pub(crate) size: u32,
    /// The reference of a hunt or attach.
    pub(crate) id: u64,
    pub(crate) name: &'a str,
    pub(crate) link: &'a str,
    /// The whole payload.
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    /// Encodes the record with its time and at most `most` bytes of its payload.
    pub(crate) fn encode(&self, at_ns: u64, most: usize) -> Vec<u8> {
        let flags = if self.out_of_band { OUT_OF_BAND } else { 0 };
        let room = TIME + FIXED + self.name.len() + self.link.len() + self.payload.len().min(most);
        Writer(Vec::with_capacity(room))
            .long(at_ns)
            .byte(VERSION)
            .byte(self.event as u8)
            .byte(self.way as u8)
            .byte(flags)
            .int(self.reporter)
            .int(self.from)
            .int(self.to)
            .int(self.number)
            .int(self.size)
            .long(self.id)
            .text(self.name)
            .text(self.link)
            .rest(&self.payload[..self.payload.len().min(most)])
            .done()
    }
}

/// One record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced<'a> {
    /// When the event happened, in nanoseconds since 1970-01-01 UTC.
    pub at_ns: u64,
    /// The record, in the form that the dissector reads.
    pub bytes: &'a [u8],
    /// Length in bytes that the record would have with its whole payload.
    pub whole_len: usize,
}

impl<'a> Traced<'a> {
    /// Reads a record, which may be invalid because an endpoint's program wrote it.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Traced<'a>, Malformed> {
        let mut r = Reader::new(bytes);
        let at_ns = r.long()?;
        let (version, event) = (r.byte()?, r.byte()?);
        r.byte()?;
        r.byte()?;
        let (_reporter, _from, _to, _number, size) =
            (r.int()?, r.int()?, r.int()?, r.int()?, r.int()?);
        r.long()?;
        r.text()?;
        r.text()?;
        if version != VERSION {
            return Err(Malformed);
        }
        let captured = r.rest().len();
        let cut = match event {
            1 => (size as usize).saturating_sub(crate::limits::LEAST_SIGNAL + captured),
            _ => 0,
        };
        let bytes = &bytes[TIME..];
        Ok(Traced { at_ns, bytes, whole_len: bytes.len() + cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_whole_length_although_its_payload_is_cut() {
        let record = Record {
            reporter: 1,
            from: 1,
            to: 2,
            number: 3,
            size: 104,
            link: "l",
            payload: &[7; 100],
            ..Record::default()
        };
        let bytes = record.encode(9, 10);
        let traced = Traced::decode(&bytes).unwrap();
        assert_eq!((traced.at_ns, traced.bytes.len()), (9, FIXED + 1 + 10));
        assert_eq!(traced.whole_len, FIXED + 1 + 100);
        assert_eq!(bytes.len(), TIME + FIXED + 1 + 10);
        for len in 0..TIME + FIXED {
            assert!(Traced::decode(&bytes[..len]).is_err());
        }
        let mut other = bytes.clone();
        other[TIME] = 2;
        assert_eq!(Traced::decode(&other), Err(Malformed), "another version");
    }
}
