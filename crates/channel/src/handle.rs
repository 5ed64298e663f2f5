//! Controlling and observing channels, from inside and outside their process.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::poll::{Interest, wait_ready};

use crate::directory::Directory;
use crate::error::Error;
use crate::event::{Event, Reason};
use crate::link::Link;
use crate::message::{self, Message, Outbox, Packet};
use crate::policy::Policy;
use crate::protocol::Role;
use crate::status::Status;
use crate::transport::Transport;

/// Controls and observes a channel.
#[derive(Clone)]
pub struct Handle(Arc<Link>);

impl Handle {
    pub(crate) fn new(link: Arc<Link>) -> Handle {
        Handle(link)
    }
}

/// The reason why a switch was not completed.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The switch was not complete by the deadline; it continues.
    #[error("the switch to {to} was not complete at the deadline; it continues")]
    TimedOut {
        /// The new transport.
        to: Transport,
    },
    /// One of the ends could not open the transport; the channel keeps the one in use.
    #[error("the channel keeps its transport, because {to} could not be opened: {why}")]
    Refused {
        /// The transport that could not be opened.
        to: Transport,
        /// The error, as text, as in the log.
        why: String,
    },
    /// The channel is closed, or its peer has ended.
    #[error("the channel is closed")]
    Closed,
}

impl Handle {
    /// Returns the channel's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the channel's id, the same at both ends.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the transport in use; during a switch, the old one.
    pub fn transport(&self) -> Transport {
        self.0.lock().transport
    }

    /// Returns the number of switches so far, including refused ones.
    pub fn epoch(&self) -> u32 {
        self.0.lock().switch.epoch()
    }

    /// Whether this end is closed or its peer has ended.
    pub fn is_over(&self) -> bool {
        self.0.lock().over
    }

    /// Waits until this end is closed or its peer has ended; returns false at the deadline. Between hosts, an end whose
    /// two halves were dropped is closed as soon as its peer has received every message. A program that exits earlier
    /// leaves the last messages to its kernel, which loses them if the connection breaks.
    pub fn wait_until_over(&self, until: Deadline) -> bool {
        loop {
            let state = self.0.lock();
            if state.over {
                return true;
            }
            if !self.0.wait(state, until).1 {
                return self.is_over();
            }
        }
    }

    /// Requests a switch to a transport. It begins as soon as no other switch is in progress, and the log records its
    /// outcome. The policy may later switch to another transport, unless this one is pinned.
    pub fn ask_for(&self, transport: Transport) {
        self.0.wish(transport);
    }

    /// Switches to a transport, and waits until both directions use it. Meanwhile, each program must either keep
    /// receiving or not be inside a call on the channel: a program that sends and does not receive blocks the switch in
    /// the same way as it blocks its peer.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn switch_to(&self, to: Transport, until: Deadline) -> Result<(), SwitchError> {
        let link = &self.0;
        let (mut epoch, mut asked) = (self.epoch(), false);
        loop {
            if self.is_settled_on(to) {
                return Ok(());
            }
            if link.role == Role::Leader && !asked {
                let begun = link.start(to, Reason::Asked);
                let begun = begun.map_err(|e| SwitchError::Refused { to, why: e.to_string() })?;
                asked = begun;
            } else if !asked {
                link.wish(to);
                asked = true;
            }
            let state = link.lock();
            if asked && state.switch.is_settled() && state.switch.epoch() != epoch {
                if state.transport == to {
                    return Ok(());
                }
                if link.role == Role::Leader {
                    return Err(SwitchError::Refused { to, why: state.why_refused(to) });
                }
                epoch = state.switch.epoch();
            }
            if state.over {
                return Err(SwitchError::Closed);
            }
            if !asked && state.switch.is_settled() && !state.is_releasing() {
                // The switch that was in the way has just ended.
                epoch = state.switch.epoch();
                continue;
            }
            if !link.wait(state, until).1 {
                return Err(SwitchError::TimedOut { to });
            }
        }
    }

    fn is_settled_on(&self, transport: Transport) -> bool {
        let state = self.0.lock();
        state.switch.is_settled() && state.transport == transport
    }

    /// Replaces the policy. Unless [`Policy::dry_run`] is set, the channel immediately leaves a transport that is no
    /// longer allowed. [`Policy::pollable`] cannot be changed.
    pub fn set_policy(&self, policy: Policy) {
        let mut state = self.0.lock();
        let pollable = state.policy.pollable;
        state.policy = Policy { pollable, ..policy };
        if self.0.role == Role::Follower {
            state.say_policy();
        }
        drop(state);
        self.0.call_policy();
    }

    /// Subscribes to all further events of the channel.
    pub fn events(&self) -> mpsc::Receiver<Event> {
        self.0.events()
    }

    /// Returns the last 64 events, oldest first.
    pub fn log(&self) -> Vec<Event> {
        self.0.log_so_far()
    }

    /// Returns the state of the channel, as `crossway channel top` shows it.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

/// Returns the state of the channels of all listeners on `name`, or on every name in the directory if it is `None`, as
/// reported by their processes. Processes that do not answer within `limit` are left out.
pub fn status(
    directory: &Directory,
    name: Option<&str>,
    limit: Duration,
) -> Result<Vec<Status>, Error> {
    let mut all = Vec::new();
    for (_, socket) in directory.connect_all(name)? {
        if let Some(Message::Status(status)) = ask(&socket, &Message::AskStatus, limit) {
            all.extend(status);
        }
    }
    // A process that listens on a name twice tells of each channel twice.
    all.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    all.dedup_by_key(|status| status.id);
    Ok(all)
}

/// Asks all channels of a name to use a transport; returns the number of channels asked. Channels of processes that do
/// not answer within `limit` are not counted.
pub fn ask_for(
    directory: &Directory,
    name: &str,
    transport: Transport,
    limit: Duration,
) -> Result<usize, Error> {
    let question = Message::AskSwitch { name: name.to_owned(), transport };
    let mut asked = 0;
    for (_, socket) in directory.connect_all(Some(name))? {
        if let Some(Message::Asked(count)) = ask(&socket, &question, limit) {
            asked += count;
        }
    }
    Ok(asked)
}

fn ask(socket: &OwnedFd, question: &Message, limit: Duration) -> Option<Message> {
    Outbox::default().send(socket, question, Vec::new());
    let came = wait_ready(socket, Interest::Readable, Some(Instant::now() + limit));
    match (came, message::receive(socket, true)) {
        (Ok(true), Packet::Message(message, _)) => Some(message),
        _ => None,
    }
}
