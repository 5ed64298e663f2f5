//! What steers and watches a channel from inside and outside of its process.

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

/// Steers and watches a channel.
#[derive(Clone)]
pub struct Handle(Arc<Link>);

impl Handle {
    pub(crate) fn new(link: Arc<Link>) -> Handle {
        Handle(link)
    }
}

/// A switch that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It was not over until the deadline; it goes on.
    #[error("the switch to {to} was not over until the deadline")]
    TimedOut {
        /// Where it leads.
        to: Transport,
    },
    /// One of the ends could not open the transport; the channel keeps the one in use.
    #[error("the channel keeps its transport, because {to} could not be opened: {why}")]
    Refused {
        /// Where it should have led.
        to: Transport,
        /// The last words of the log.
        why: String,
    },
    /// The channel is closed, or its peer is gone.
    #[error("the channel is closed")]
    Closed,
}

impl Handle {
    /// The channel's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The channel's number, the same at both ends.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The transport in use; while a switch goes on, the old one.
    pub fn transport(&self) -> Transport {
        self.0.lock().transport
    }

    /// Switches so far, refused ones included.
    pub fn epoch(&self) -> u32 {
        self.0.lock().switch.epoch()
    }

    /// Whether this end has closed or lost its peer.
    pub fn is_over(&self) -> bool {
        self.0.lock().over
    }

    /// Asks for a transport. The switch begins as soon as no other goes on; the log tells of its end. Unless it is pinned, the policy
    /// may leave it again.
    pub fn ask_for(&self, transport: Transport) {
        self.0.wish(transport);
    }

    /// Switches, and waits until both directions are on the new transport. For that, both programs must receive or be elsewhere: one that
    /// sends without receiving blocks a switch as it blocks its peer.
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
                    let why = "see the log".to_owned();
                    return Err(SwitchError::Refused { to, why });
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

    /// Replaces the policy; the channel leaves at once what it may not use any more. [`Policy::pollable`] stays as it was.
    pub fn set_policy(&self, policy: Policy) {
        let mut state = self.0.lock();
        let pollable = state.policy.pollable;
        state.policy = Policy { pollable, ..policy };
        if self.0.role == Role::Follower {
            let transports = state.own_transports();
            state.say(Message::Policy { transports });
        }
        drop(state);
        self.0.call_policy();
    }

    /// Subscribes to what happens from now on.
    pub fn events(&self) -> mpsc::Receiver<Event> {
        self.0.events()
    }

    /// What has happened, the oldest first; the last 64 entries.
    pub fn log(&self) -> Vec<Event> {
        self.0.log_so_far()
    }

    /// The channel from outside.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

/// The state of the channels of all listeners in a directory, as reported by their processes; a process that does not answer within `limit` is left out.
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

/// Asks the channels of a name to use a transport; returns how many were asked.
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
