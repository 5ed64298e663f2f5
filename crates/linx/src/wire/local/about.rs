//! Information about endpoints in records of the protocol, from the node and from programs.

use super::super::fields::{Malformed, Reader, Writer};
use crate::{Count, Spid, Traffic};

/// The part of an endpoint's state that only the endpoint itself knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether the endpoint is waiting in a receive.
    pub(crate) receiving: bool,
    /// The kind of filter: 0 accepts any number, 1 only those in `numbers`, 2 all except those.
    pub(crate) filter: u8,
    pub(crate) numbers: Vec<u32>,
    pub(crate) from: Option<Spid>,
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) traffic: Traffic,
    pub(crate) dropped: u64,
    pub(crate) timeouts: u32,
}

/// The node's information about an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) spid: Spid,
    pub(crate) name: String,
    /// The kind: 0 local, 1 remote, 2 link.
    pub(crate) kind: u8,
    pub(crate) pid: u32,
    pub(crate) user: u32,
    pub(crate) attached_from: u32,
    pub(crate) attached_to: u32,
    pub(crate) hunts: u32,
    pub(crate) channels: u32,
}

impl Report {
    pub(super) fn write(&self, w: Writer) -> Writer {
        let w = w.byte(self.receiving.into()).byte(self.filter).int(super::optional(self.from));
        let Traffic { sent_local, sent_remote, received_local, received_remote } = self.traffic;
        let counts = [sent_local, sent_remote, received_local, received_remote];
        let w = w.long(self.queued).long(self.queued_bytes);
        let w = counts.iter().fold(w, |w, count| w.long(count.signals).long(count.bytes));
        let w = w.long(self.dropped).int(self.timeouts).byte(self.numbers.len() as u8);
        self.numbers.iter().fold(w, |w, n| w.int(*n))
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Report, Malformed> {
        let count = |r: &mut Reader<'_>| Ok(Count { signals: r.long()?, bytes: r.long()? });
        let mut report = Report {
            receiving: r.byte()? != 0,
            filter: r.byte()?,
            from: Spid::new(r.int()?),
            queued: r.long()?,
            queued_bytes: r.long()?,
            traffic: Traffic {
                sent_local: count(r)?,
                sent_remote: count(r)?,
                received_local: count(r)?,
                received_remote: count(r)?,
            },
            dropped: r.long()?,
            timeouts: r.int()?,
            numbers: Vec::new(),
        };
        for _ in 0..r.byte()? {
            report.numbers.push(r.int()?);
        }
        Ok(report)
    }
}

impl Row {
    pub(super) fn write(&self, w: Writer) -> Writer {
        let w = w.spid(self.spid).byte(self.kind).int(self.pid).int(self.user);
        let w = w.int(self.attached_from).int(self.attached_to).int(self.hunts).int(self.channels);
        w.text(&self.name)
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Row, Malformed> {
        Ok(Row {
            spid: r.spid()?,
            kind: r.byte()?,
            pid: r.int()?,
            user: r.int()?,
            attached_from: r.int()?,
            attached_to: r.int()?,
            hunts: r.int()?,
            channels: r.int()?,
            name: r.text()?,
        })
    }
}
