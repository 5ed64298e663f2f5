//! Traces: every signal, hunt and attach of a node's endpoints, and every message of its links, as records for a
//! capture file.
//!
//! Signals between endpoints of a node do not pass through it, so each endpoint reports its own; the node reports
//! everything else. All records go to one socket, and no program waits for its reader: a record for which there is no
//! room is lost and counted.

pub(crate) mod record;
pub(crate) mod tap;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossway_sys::clock::unix_ns;
use crossway_sys::poll::any_readable;
use crossway_sys::records::Inbox;
use crossway_sys::words::SharedWords;
use crossway_sys::{Errno, OsError};

use crate::control::Control;
use crate::limits::RECORD;
use crate::wire::local::{Event, Request, VERSION};
use crate::{EndpointKind, Error};
pub use record::Traced;
use record::{EventKind, Record};

/// Maximum number of bytes that a trace can keep of each payload.
pub const MOST_PAYLOAD: usize = 32 << 10;

/// A running trace of a node; dropping it ends the trace.
pub struct Trace {
    control: Control,
    source: OwnedFd,
    lost: SharedWords,
    /// Records of the endpoints that were open before the trace began.
    before: VecDeque<Vec<u8>>,
    /// A copy of the last record that was returned from `before`.
    current: Vec<u8>,
    inbox: Inbox,
    /// Number of records in the inbox; `returned` says how many of them were returned.
    received: usize,
    returned: usize,
    invalid: u64,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

impl Trace {
    /// Starts a trace of the node in a directory. It keeps up to `payload` bytes of each signal's payload, but no more
    /// than [`MOST_PAYLOAD`]. Its first records list the endpoints that already exist.
    ///
    /// From now on, every signal that an endpoint sends or receives is reported. A node has one trace at a time.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] unless the caller is root, the node's user or a member of its group; [`Error::Limit`] if
    /// a trace is already running, or this process has no descriptors left; [`Error::NoNode`], [`Error::NodeGone`],
    /// [`Error::Protocol`], [`Error::Os`].
    pub fn start(dir: &Path, payload: usize) -> Result<Trace, Error> {
        let mut trace = Self::on(Control::connect(dir)?, payload)?;
        trace.before.extend(crate::list(dir)?.into_iter().map(|info| {
            let is_link = info.kind == EndpointKind::Link;
            let record = Record {
                event: EventKind::Exists,
                from: info.spid.get(),
                name: if is_link { "" } else { &info.name },
                link: if is_link { &info.name } else { "" },
                ..Record::default()
            };
            record.encode(unix_ns(), 0)
        }));
        Ok(trace)
    }

    /// Like [`Trace::start`], but on an existing connection and without records of existing endpoints.
    pub(crate) fn on(mut control: Control, payload: usize) -> Result<Trace, Error> {
        let payload = payload.min(MOST_PAYLOAD);
        control.say(&Request::StartTrace { version: VERSION, payload: payload as u32 })?;
        let fds = match control.hear(false)? {
            Some((Event::End, fds)) => fds,
            Some((Event::Refused { refusal, why }, _)) => {
                return Err(crate::endpoint::refused(refusal, why, None));
            }
            other => return Err(Error::Protocol(format!("{other:?}"))),
        };
        let mut fds = fds.into_iter();
        let (Some(source), Some(lost)) = (fds.next(), fds.next()) else {
            let why =
                "this process has no descriptors left for a trace; raise its limit (ulimit -n)";
            return Err(Error::Limit(why.to_owned()));
        };
        Ok(Trace {
            before: VecDeque::new(),
            control,
            source,
            lost: SharedWords::open(&lost, tap::LOST)?,
            current: Vec::new(),
            // The longest text of a correct record is a path, which is shorter than that.
            inbox: Inbox::new(payload + RECORD),
            received: 0,
            returned: 0,
            invalid: 0,
        })
    }

    /// Returns the next record; `None` if there is none now.
    ///
    /// # Errors
    /// [`Error::NodeGone`] when the node has ended and all records were returned; [`Error::Os`], [`Error::Protocol`].
    pub fn try_next(&mut self) -> Result<Option<Traced<'_>>, Error> {
        if let Some(record) = self.before.pop_front() {
            self.current = record;
            return Ok(Traced::decode(&self.current).ok());
        }
        loop {
            while self.returned < self.received {
                let at = self.returned;
                self.returned += 1;
                if self.inbox.get(at).is_some_and(|bytes| Traced::decode(bytes).is_ok()) {
                    let bytes = self.inbox.get(at).unwrap_or_default();
                    return Ok(Traced::decode(bytes).ok());
                }
                self.invalid += 1;
            }
            self.returned = 0;
            self.received = match self.inbox.receive(&self.source) {
                Ok(count) => count,
                Err(Errno::AGAIN) => 0,
                Err(errno) => return Err(OsError::new("recvmmsg", "trace", errno).into()),
            };
            if self.inbox.get(0).is_some_and(<[u8]>::is_empty) && self.received > 0 {
                // All programs and the node have closed it.
                return Err(Error::NodeGone);
            }
            if self.received == 0 {
                return match self.control.hear(true)? {
                    None => Ok(None),
                    Some((event, _)) => Err(Error::Protocol(format!("{event:?}"))),
                };
            }
        }
    }

    /// Waits until there may be a record, or the node has ended, or the deadline has passed.
    ///
    /// # Errors
    /// [`Error::Os`] if the system call fails.
    pub fn wait(&self, until: Option<Instant>) -> Result<(), Error> {
        any_readable(&[self.source.as_fd(), self.control.as_fd()], until)
            .map_err(|errno| OsError::new("poll", "trace", errno))?;
        Ok(())
    }

    /// Returns the number of records lost so far because they came faster than they were read.
    pub fn lost(&self) -> u64 {
        self.lost.word(0).load(Ordering::Relaxed)
    }

    /// Returns the number of records left out so far because no correct program reports them.
    pub fn invalid(&self) -> u64 {
        self.invalid
    }
}
