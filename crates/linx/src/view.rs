//! What a node tells of its endpoints.

use std::path::Path;

use crate::control::Control;
use crate::wire::local::{Event, Report, Request, Row, VERSION};
use crate::{Error, Spid};

/// What an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// A program's on this node.
    Local,
    /// One of another node.
    Remote,
    /// A link that is up.
    Link,
}

/// Which signals an endpoint waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// It does not wait in a receive now, or did not answer in time.
    NotReceiving,
    /// All.
    Any,
    /// Those with one of these numbers.
    Only(Vec<u32>),
    /// Those without one of these numbers.
    Except(Vec<u32>),
}

/// An endpoint's own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// From whom only.
    pub from: Option<Spid>,
    /// Signals in its queue.
    pub queued: u64,
    /// Bytes in its queue.
    pub queued_bytes: u64,
    /// Signals it has sent.
    pub sent: u64,
    /// Signals it has received.
    pub received: u64,
    /// Signals it has dropped because its queue was full.
    pub dropped: u64,
    /// Time-outs it has requested that are not over.
    pub timeouts: u32,
}

/// What is known of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointInfo {
    /// Its number.
    pub spid: Spid,
    /// Its name; with the path of links to it if it is remote.
    pub name: String,
    /// What it is.
    pub kind: EndpointKind,
    /// Its process, 0 if that is not on this host or in another PID namespace.
    pub pid: u32,
    /// Its user, 0 for what is not a program's.
    pub user: u32,
    /// Attaches to it.
    pub attached_from: u32,
    /// Its own attaches.
    pub attached_to: u32,
    /// Its pending hunts.
    pub hunts: u32,
    /// Its channels to other endpoints.
    pub channels: u32,
    /// Its own account; `None` for what is not a program's, and for a program that did not look into its endpoint in time.
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
            sent: report.sent,
            received: report.received,
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

/// All endpoints and links of the node in this directory.
///
/// # Errors
/// [`Error::NoNode`], [`Error::NotPermitted`], [`Error::NodeGone`], [`Error::Protocol`].
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
