//! The information that a node provides about its endpoints.

use std::path::Path;

use crate::control::Control;
use crate::wire::local::{Event, Report, Request, Row, VERSION};
use crate::{Error, Spid};

/// The kind of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// Opened by a program on this node.
    Local,
    /// An endpoint of another node.
    Remote,
    /// A link that is up.
    Link,
}

/// The signals that an endpoint waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The endpoint is not waiting in a receive.
    NotReceiving,
    /// Signals with any number.
    Any,
    /// Signals with one of these numbers.
    Only(Vec<u32>),
    /// Signals with any number except these.
    Except(Vec<u32>),
}

/// How many signals, and the sum of their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of signals.
    pub signals: u64,
    /// The sum of their sizes in bytes; each size includes the 4 bytes of the signal's number.
    pub bytes: u64,
}

impl Count {
    #[inline]
    fn add(&mut self, size: usize) {
        self.signals += 1;
        self.bytes += size as u64;
    }
}

impl std::ops::Add for Count {
    type Output = Count;

    fn add(self, other: Count) -> Count {
        Count { signals: self.signals + other.signals, bytes: self.bytes + other.bytes }
    }
}

/// What an endpoint has sent and received so far. The answers to its own hunts, attaches and time-outs count as
/// received from this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent to endpoints of this node.
    pub sent_local: Count,
    /// Sent to endpoints of other nodes.
    pub sent_remote: Count,
    /// Received from endpoints of this node.
    pub received_local: Count,
    /// Received from endpoints of other nodes.
    pub received_remote: Count,
}

impl Traffic {
    /// Returns the signals sent to endpoints of this node and of other nodes together.
    pub fn sent(&self) -> Count {
        self.sent_local + self.sent_remote
    }

    /// Returns the signals received from endpoints of this node and of other nodes together.
    pub fn received(&self) -> Count {
        self.received_local + self.received_remote
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, remote: bool, size: usize) {
        if remote { self.sent_remote.add(size) } else { self.sent_local.add(size) }
    }

    #[inline]
    pub(crate) fn count_received(&mut self, remote: bool, size: usize) {
        if remote { self.received_remote.add(size) } else { self.received_local.add(size) }
    }
}

/// The state that an endpoint reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The signals that the endpoint waits for.
    pub waits_for: WaitsFor,
    /// The sender that the endpoint waits for; `None` for any.
    pub from: Option<Spid>,
    /// Number of signals in the endpoint's queue.
    pub queued: u64,
    /// Number of bytes in the endpoint's queue.
    pub queued_bytes: u64,
    /// The signals that the endpoint has sent and received so far.
    pub traffic: Traffic,
    /// Number of signals that the endpoint has dropped because its queue was full.
    pub dropped: u64,
    /// Number of pending time-outs.
    pub timeouts: u32,
}

/// Information about an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointInfo {
    /// The number by which other endpoints of this node address the endpoint.
    pub spid: Spid,
    /// The endpoint's name, preceded by the path of links to the endpoint if it is remote.
    pub name: String,
    /// The kind of the endpoint.
    pub kind: EndpointKind,
    /// The id of the endpoint's process; 0 for a link, or if the process is on another host or in another PID
    /// namespace.
    pub pid: u32,
    /// The id of the endpoint's user; 0 if it was not opened by a program.
    pub user: u32,
    /// Number of attaches to the endpoint.
    pub attached_from: u32,
    /// Number of the endpoint's own attaches.
    pub attached_to: u32,
    /// Number of the endpoint's pending hunts.
    pub hunts: u32,
    /// Number of the endpoint's channels to other endpoints.
    pub channels: u32,
    /// The state that the endpoint reports; `None` if it was not opened by a program, or if its program, which reports
    /// only when it uses the endpoint, did not report in time.
    pub condition: Option<Condition>,
}

impl EndpointInfo {
    pub(crate) fn new(row: Row, report: Option<Report>) -> Self {
        let condition = report.map(|report| Condition {
            waits_for: match (report.receiving, report.filter) {
                (false, _) => WaitsFor::NotReceiving,
                (true, 1) => WaitsFor::Only(report.numbers),
                (true, 2) => WaitsFor::Except(report.numbers),
                (true, _) => WaitsFor::Any,
            },
            from: report.from,
            queued: report.queued,
            queued_bytes: report.queued_bytes,
            traffic: report.traffic,
            dropped: report.dropped,
            timeouts: report.timeouts,
        });
        EndpointInfo {
            spid: row.spid,
            name: row.name,
            kind: match row.kind {
                0 => EndpointKind::Local,
                1 => EndpointKind::Remote,
                _ => EndpointKind::Link,
            },
            pid: row.pid,
            user: row.user,
            attached_from: row.attached_from,
            attached_to: row.attached_to,
            hunts: row.hunts,
            channels: row.channels,
            condition,
        }
    }
}

/// Lists all endpoints and links of the node in this directory.
///
/// # Errors
/// [`Error::NoNode`], [`Error::NotPermitted`], [`Error::NodeGone`], [`Error::Protocol`], [`Error::Os`].
pub fn list(dir: &Path) -> Result<Vec<EndpointInfo>, Error> {
    let mut control = Control::connect(dir)?;
    control.say(&Request::List { version: VERSION })?;
    let mut all = Vec::new();
    loop {
        match control.hear(false)? {
            Some((Event::Row { row, report }, _)) => all.push(EndpointInfo::new(row, report)),
            Some((Event::End, _)) => return Ok(all),
            Some((Event::Refused { why, .. }, _)) => return Err(Error::Protocol(why)),
            other => return Err(Error::Protocol(format!("{other:?}"))),
        }
    }
}
