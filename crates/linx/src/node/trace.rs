//! The node's part in a trace: it starts and ends the trace, gives its socket to programs, and reports hunts, attaches
//! and the messages of links.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use crossway_sys::socket::{self, Credentials, SocketType};
use crossway_sys::words::SharedWords;
use crossway_sys::{OsError, proc};

use super::Node;
use crate::Spid;
use crate::limits::LEAST_SIGNAL;
use crate::registry::LinkId;
use crate::registry::Refused;
use crate::trace::MOST_PAYLOAD;
use crate::trace::record::{EventKind, Record, Way};
use crate::trace::tap::{LOST, Tap, WATCHED};
use crate::wire::link::{self, Message};
use crate::wire::local::{Event, Refusal, Request};

/// Desired room in bytes for unread records; the system's limit may allow less.
const ROOM: usize = 4 << 20;

/// A running trace.
struct Running {
    tap: Tap,
    sink: OwnedFd,
    lost: OwnedFd,
    payload: usize,
    /// The process id of the tool that reads the trace.
    reader: u32,
}

/// The running trace, if there is one, and the shared memory through which programs notice a trace.
pub(super) struct Tracing {
    words: SharedWords,
    memory: OwnedFd,
    running: Option<Running>,
}

impl Tracing {
    pub(super) fn new() -> Result<Tracing, OsError> {
        let (words, memory) = SharedWords::create_for_readers("crossway-linx-trace", WATCHED)?;
        Ok(Tracing { words, memory, running: None })
    }

    /// Returns a descriptor of the shared memory through which a program notices a trace.
    pub(super) fn memory(&self) -> Result<OwnedFd, OsError> {
        duplicate(&self.memory)
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    fn change(&self) {
        self.words.word(0).fetch_add(1, Ordering::Release);
    }

    fn start(&mut self, payload: usize, reader: u32) -> Result<Vec<OwnedFd>, OsError> {
        let (sink, source) = socket::unix_pair(SocketType::Seqpacket)?;
        // More room is better, but the default is sufficient.
        let _ = socket::set_buffers(sink.as_fd(), ROOM);
        let (words, lost) = SharedWords::create("crossway-linx-lost", LOST)?;
        let tap = Tap::new(duplicate(&sink)?, words, payload);
        let fds = vec![source, duplicate(&lost)?];
        self.running = Some(Running { tap, sink, lost, payload, reader });
        self.change();
        Ok(fds)
    }

    /// Ends the trace.
    pub(super) fn stop(&mut self) {
        if self.running.take().is_some() {
            self.change();
        }
    }

    /// Returns the answer to a program that wants to take part.
    pub(super) fn invitation(&self) -> Result<(Event, Vec<OwnedFd>), OsError> {
        let generation = self.words.word(0).load(Ordering::Acquire);
        let (payload, fds) = match &self.running {
            Some(run) => (run.payload, vec![duplicate(&run.sink)?, duplicate(&run.lost)?]),
            None => (0, Vec::new()),
        };
        Ok((Event::Trace { generation, payload: payload as u32 }, fds))
    }

    fn write(&self, record: &Record<'_>) {
        if let Some(running) = &self.running {
            running.tap.write(record);
        }
    }

    /// Reports the opening or the end of an endpoint.
    pub(super) fn opened_or_closed(&self, event: EventKind, spid: Spid, name: &str) {
        self.write(&Record { event, from: spid.get(), name, ..Record::default() });
    }

    /// Reports a program's request.
    pub(super) fn request(&self, own: Spid, request: &Request) {
        if !self.is_running() {
            return;
        }
        let from = own.get();
        let of = |event, id: u32| Record { event, from, id: id.into(), ..Record::default() };
        match request {
            Request::Hunt { id, path, .. } => {
                self.write(&Record { name: path, ..of(EventKind::Hunt, *id) });
            }
            Request::CancelHunt { id } => self.write(&of(EventKind::CancelHunt, *id)),
            Request::Attach { id, spid } => {
                self.write(&Record { to: spid.get(), ..of(EventKind::Attach, *id) });
            }
            Request::Detach { id } => self.write(&of(EventKind::Detach, *id)),
            _ => {}
        }
    }

    /// Reports the answer to a hunt or an attach.
    pub(super) fn event(&self, to: Spid, event: &Event) {
        let (event, id, from) = match event {
            Event::Found { id, spid } => (EventKind::Found, *id, *spid),
            Event::Gone { id, spid } => (EventKind::Gone, *id, *spid),
            _ => return,
        };
        self.write(&Record {
            event,
            way: Way::Received,
            from: from.get(),
            to: to.get(),
            id: id.into(),
            ..Record::default()
        });
    }

    /// Reports a message of a link. Numbers of endpoints are given as they are in the message.
    pub(super) fn link_message(&self, way: Way, link: &str, message: &Message) {
        let base = |event| Record { event, way, link, ..Record::default() };
        let record = match message {
            Message::Query { id, path } => {
                Record { id: *id, name: path, ..base(EventKind::LinkQuery) }
            }
            Message::Cancel { id } => Record { id: *id, ..base(EventKind::LinkCancel) },
            Message::Publish { spid, name } => {
                Record { from: spid.get(), name, ..base(EventKind::LinkPublish) }
            }
            Message::Unpublish { spid } => {
                Record { from: spid.get(), ..base(EventKind::LinkUnpublish) }
            }
            Message::Answer { id, spid } => {
                Record { id: *id, from: spid.get(), ..base(EventKind::LinkAnswer) }
            }
            Message::Data { from, to, size, flags, piece } => {
                let number = match piece.first_chunk::<LEAST_SIGNAL>() {
                    Some(number) if flags & link::FIRST != 0 => u32::from_be_bytes(*number),
                    _ => 0,
                };
                let (from, to) = (from.get(), to.get());
                let out_of_band = flags & link::OUT_OF_BAND != 0;
                Record { from, to, number, size: *size, out_of_band, ..base(EventKind::LinkData) }
            }
            Message::Credit { to, bytes } => {
                Record { to: to.get(), size: *bytes, ..base(EventKind::LinkCredit) }
            }
        };
        self.write(&record);
    }
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, OsError> {
    fd.try_clone().map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "trace", e))
}

impl Node {
    /// Whether a program may see all signals of the node. Root, the node's user and members of the node's group may.
    fn may_trace(&self, fd: &OwnedFd, credentials: Credentials) -> bool {
        let of_group = |group| {
            credentials.gid == group
                || socket::peer_groups(fd).is_ok_and(|groups| groups.contains(&group))
        };
        credentials.uid == 0
            || credentials.uid == proc::effective_user()
            || self.settings.group.is_some_and(of_group)
    }

    /// Starts a trace for a tool, and returns the tool's descriptors.
    pub(super) fn start_trace(
        &mut self,
        fd: &OwnedFd,
        credentials: Credentials,
        payload: u32,
    ) -> Result<Vec<OwnedFd>, Refused> {
        if !self.may_trace(fd, credentials) {
            let why = "only root, the user who runs the node and the members of the node's group (--group) may trace \
                       the node"
                .to_owned();
            return Err((Refusal::NotPermitted, why));
        }
        if let Some(running) = &self.tracing.running {
            let why = format!(
                "process {} already traces this node; end that trace first",
                running.reader
            );
            return Err((Refusal::Limit, why));
        }
        let payload = (payload as usize).min(MOST_PAYLOAD);
        self.tracing
            .start(payload, credentials.pid)
            .map_err(|error| (Refusal::Limit, format!("the node cannot start a trace: {error}")))
    }

    /// Reports a message of a link, if a trace runs.
    pub(super) fn trace_link(&self, way: Way, id: LinkId, message: &Message) {
        if self.tracing.is_running() {
            let name = self.registry.link(id).map_or("", |link| &link.name);
            self.tracing.link_message(way, name, message);
        }
    }
}
