//! The protocol between a program and its node: records on a SEQPACKET socket, with one connection for each endpoint.
//! Signals are not sent here.

mod about;

pub(crate) use about::{Report, Row};

use super::fields::{Malformed, Reader, Writer};
use crate::{Spid, Transport};

/// The version of this protocol.
pub(crate) const VERSION: u32 = 4;

/// A message from a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Opens the connection's endpoint. It is the first request on every connection, except on a tool's.
    Open { version: u32, name: String },
    /// Hunts for an endpoint; the answer may arrive at any time.
    Hunt { id: u32, owner: Option<Spid>, path: String },
    /// Cancels a hunt.
    CancelHunt { id: u32 },
    /// Requests a notice of the end of an endpoint.
    Attach { id: u32, spid: Spid },
    /// Cancels an attach.
    Detach { id: u32 },
    /// Requests a channel to an endpoint.
    Connect { spid: Spid, transport: Option<Transport> },
    /// Reports that there was no room for the descriptors of the channel to an endpoint, so that the channel does not
    /// exist.
    NoChannel { spid: Spid },
    /// Requests permission to send as `from` on the channel to `to`.
    Vouch { from: Spid, to: Spid },
    /// Requests information about an endpoint.
    Name { spid: Spid },
    /// Requests the list of all endpoints and links.
    List { version: u32 },
    /// Reports the state of the endpoint, as requested by [`Event::Ask`].
    Report { serial: u32, report: Report },
    /// Requests a notice of the next link that comes up after the token's link.
    NewLink { id: u32, token: u64 },
    /// Cancels a request for a new link.
    CancelNewLink { id: u32 },
    /// Requests to take part in the running trace.
    JoinTrace,
    /// Requests the state of an endpoint.
    Condition { spid: Spid },
    /// Starts a trace with at most this many bytes of each payload; it ends with the connection.
    StartTrace { version: u32, payload: u32 },
}

/// The reason why a node refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Gone,
    Unknown,
    Limit,
    NotPermitted,
    Protocol,
}

/// A message from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The endpoint is open. The memory through which its program notices traces is attached.
    Opened { spid: Spid },
    /// The request that is waiting for an answer is refused.
    Refused { refusal: Refusal, why: String },
    /// The answer to a hunt.
    Found { id: u32, spid: Spid },
    /// The endpoint attached to has ended.
    Gone { id: u32, spid: Spid },
    /// The endpoint at the other end of a channel has ended.
    PeerGone { spid: Spid },
    /// A channel to `spid`. Its descriptors are attached, unless the channel already existed.
    Channel { spid: Spid, channel: Channel },
    /// The endpoint at the other end of a channel had no room for the channel's descriptors, so the signals sent over
    /// it are lost.
    NoChannel { spid: Spid },
    /// The peer of a channel may send as `from`.
    Vouched { peer: Spid, from: Spid },
    /// Information about an endpoint.
    NameIs(Row),
    /// One entry of a list, or the state of an endpoint.
    Row { row: Row, report: Option<Report> },
    /// The end of the list, or the answer to a request that needs no other one.
    End,
    /// Requests a [`Request::Report`].
    Ask { serial: u32 },
    /// A link came up.
    LinkUp { id: u32, token: u64, name: String },
    /// Describes the trace with this number. If the trace is still running, its socket and the memory that counts lost
    /// records are attached.
    Trace { generation: u64, payload: u32 },
}

/// The description of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    /// The channel's number, unique at this endpoint.
    pub(crate) number: u32,
    /// `None` if the channel already existed.
    pub(crate) transport: Option<Transport>,
    /// Whether the other end is the node, which relays signals to another node.
    pub(crate) relay: bool,
    /// Whether this is the end that requested the channel.
    pub(crate) first: bool,
    /// Capacity of each ring in bytes.
    pub(crate) capacity: u32,
    /// Number of bytes of each half of the pool that the ends share; 0 if they share none.
    pub(crate) pool: u32,
}

fn optional(spid: Option<Spid>) -> u32 {
    spid.map_or(0, Spid::get)
}

fn transport_byte(transport: Option<Transport>) -> u8 {
    transport.map_or(0, |t| t as u8 + 1)
}

fn transport_of(byte: u8) -> Result<Option<Transport>, Malformed> {
    Ok(match byte {
        0 => None,
        1 => Some(Transport::Uds),
        2 => Some(Transport::Fifo),
        3 => Some(Transport::Shm),
        _ => return Err(Malformed),
    })
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Request::Open { version, name } => Writer::of(1).int(*version).text(name),
            Request::Hunt { id, owner, path } => {
                Writer::of(2).int(*id).int(optional(*owner)).text(path)
            }
            Request::CancelHunt { id } => Writer::of(3).int(*id),
            Request::Attach { id, spid } => Writer::of(4).int(*id).spid(*spid),
            Request::Detach { id } => Writer::of(5).int(*id),
            Request::Connect { spid, transport } => {
                Writer::of(6).spid(*spid).byte(transport_byte(*transport))
            }
            Request::Vouch { from, to } => Writer::of(7).spid(*from).spid(*to),
            Request::Name { spid } => Writer::of(8).spid(*spid),
            Request::List { version } => Writer::of(9).int(*version),
            Request::Report { serial, report } => report.write(Writer::of(10).int(*serial)),
            Request::NewLink { id, token } => Writer::of(11).int(*id).long(*token),
            Request::CancelNewLink { id } => Writer::of(12).int(*id),
            Request::JoinTrace => Writer::of(13),
            Request::Condition { spid } => Writer::of(15).spid(*spid),
            Request::NoChannel { spid } => Writer::of(16).spid(*spid),
            Request::StartTrace { version, payload } => Writer::of(14).int(*version).int(*payload),
        }
        .done()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Request, Malformed> {
        let mut r = Reader::new(bytes);
        let request = match r.byte()? {
            1 => Request::Open { version: r.int()?, name: r.text()? },
            2 => Request::Hunt { id: r.int()?, owner: Spid::new(r.int()?), path: r.text()? },
            3 => Request::CancelHunt { id: r.int()? },
            4 => Request::Attach { id: r.int()?, spid: r.spid()? },
            5 => Request::Detach { id: r.int()? },
            6 => Request::Connect { spid: r.spid()?, transport: transport_of(r.byte()?)? },
            7 => Request::Vouch { from: r.spid()?, to: r.spid()? },
            8 => Request::Name { spid: r.spid()? },
            9 => Request::List { version: r.int()? },
            10 => Request::Report { serial: r.int()?, report: Report::read(&mut r)? },
            11 => Request::NewLink { id: r.int()?, token: r.long()? },
            12 => Request::CancelNewLink { id: r.int()? },
            13 => Request::JoinTrace,
            15 => Request::Condition { spid: r.spid()? },
            16 => Request::NoChannel { spid: r.spid()? },
            14 => Request::StartTrace { version: r.int()?, payload: r.int()? },
            _ => return Err(Malformed),
        };
        r.end(request)
    }
}

impl Event {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Event::Opened { spid } => Writer::of(1).spid(*spid),
            Event::Refused { refusal, why } => Writer::of(2).byte(*refusal as u8).text(why),
            Event::Found { id, spid } => Writer::of(3).int(*id).spid(*spid),
            Event::Gone { id, spid } => Writer::of(4).int(*id).spid(*spid),
            Event::PeerGone { spid } => Writer::of(5).spid(*spid),
            Event::Channel { spid, channel } => Writer::of(6)
                .spid(*spid)
                .int(channel.number)
                .byte(transport_byte(channel.transport))
                .byte(channel.relay.into())
                .byte(channel.first.into())
                .int(channel.capacity)
                .int(channel.pool),
            Event::Vouched { peer, from } => Writer::of(7).spid(*peer).spid(*from),
            Event::NameIs(row) => row.write(Writer::of(8)),
            Event::Row { row, report } => {
                let w = row.write(Writer::of(9)).byte(report.is_some().into());
                report.iter().fold(w, |w, report| report.write(w))
            }
            Event::End => Writer::of(10),
            Event::Ask { serial } => Writer::of(11).int(*serial),
            Event::LinkUp { id, token, name } => Writer::of(12).int(*id).long(*token).text(name),
            Event::Trace { generation, payload } => Writer::of(13).long(*generation).int(*payload),
            Event::NoChannel { spid } => Writer::of(14).spid(*spid),
        }
        .done()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Event, Malformed> {
        let mut r = Reader::new(bytes);
        let event = match r.byte()? {
            1 => Event::Opened { spid: r.spid()? },
            2 => {
                let refusal = match r.byte()? {
                    0 => Refusal::Gone,
                    1 => Refusal::Unknown,
                    2 => Refusal::Limit,
                    3 => Refusal::NotPermitted,
                    4 => Refusal::Protocol,
                    _ => return Err(Malformed),
                };
                Event::Refused { refusal, why: r.text()? }
            }
            3 => Event::Found { id: r.int()?, spid: r.spid()? },
            4 => Event::Gone { id: r.int()?, spid: r.spid()? },
            5 => Event::PeerGone { spid: r.spid()? },
            6 => Event::Channel {
                spid: r.spid()?,
                channel: Channel {
                    number: r.int()?,
                    transport: transport_of(r.byte()?)?,
                    relay: r.byte()? != 0,
                    first: r.byte()? != 0,
                    capacity: r.int()?,
                    pool: r.int()?,
                },
            },
            7 => Event::Vouched { peer: r.spid()?, from: r.spid()? },
            8 => Event::NameIs(Row::read(&mut r)?),
            9 => {
                let row = Row::read(&mut r)?;
                let report = if r.byte()? != 0 { Some(Report::read(&mut r)?) } else { None };
                Event::Row { row, report }
            }
            10 => Event::End,
            11 => Event::Ask { serial: r.int()? },
            12 => Event::LinkUp { id: r.int()?, token: r.long()?, name: r.text()? },
            13 => Event::Trace { generation: r.long()?, payload: r.int()? },
            14 => Event::NoChannel { spid: r.spid()? },
            _ => return Err(Malformed),
        };
        r.end(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spid(n: u32) -> Spid {
        Spid::new(n).unwrap()
    }

    #[test]
    fn frames_decode_as_encoded_and_truncated_ones_do_not() {
        let report =
            Report { numbers: vec![1, 2], from: Some(spid(4)), queued: 5, ..Report::default() };
        let requests = [
            Request::Open { version: VERSION, name: "a".into() },
            Request::Hunt { id: 1, owner: Some(spid(2)), path: "a/b".into() },
            Request::CancelHunt { id: 1 },
            Request::Attach { id: 3, spid: spid(9) },
            Request::Detach { id: 3 },
            Request::Connect { spid: spid(9), transport: Some(Transport::Shm) },
            Request::NoChannel { spid: spid(7) },
            Request::Vouch { from: spid(1), to: spid(2) },
            Request::Name { spid: spid(1) },
            Request::List { version: VERSION },
            Request::Report { serial: 1, report: report.clone() },
            Request::NewLink { id: 1, token: 1 << 40 },
            Request::CancelNewLink { id: 1 },
            Request::JoinTrace,
            Request::Condition { spid: spid(4) },
            Request::StartTrace { version: VERSION, payload: 9 },
        ];
        for request in requests {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            for len in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..len]), Err(Malformed));
            }
        }
        let row = Row {
            spid: spid(7),
            name: "n".into(),
            kind: 1,
            pid: 2,
            user: 3,
            attached_from: 4,
            attached_to: 5,
            hunts: 6,
            channels: 7,
        };
        let channel = Channel {
            number: 1,
            transport: Some(Transport::Fifo),
            relay: true,
            first: false,
            capacity: 4096,
            pool: 512,
        };
        let events = [
            Event::Opened { spid: spid(1) },
            Event::Refused { refusal: Refusal::Limit, why: "full".into() },
            Event::Found { id: 1, spid: spid(1) },
            Event::Gone { id: 1, spid: spid(1) },
            Event::PeerGone { spid: spid(1) },
            Event::NoChannel { spid: spid(7) },
            Event::Channel { spid: spid(1), channel },
            Event::Vouched { peer: spid(1), from: spid(2) },
            Event::NameIs(row.clone()),
            Event::Row { row, report: Some(report) },
            Event::End,
            Event::Ask { serial: 9 },
            Event::LinkUp { id: 1, token: 2, name: "b".into() },
            Event::Trace { generation: 3, payload: 96 },
        ];
        for event in events {
            let bytes = event.encode();
            assert_eq!(Event::decode(&bytes), Ok(event));
            for len in 0..bytes.len() {
                assert_eq!(Event::decode(&bytes[..len]), Err(Malformed));
            }
        }
    }
}
