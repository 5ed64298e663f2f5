//! One end of a channel: a sender, a receiver and the state that they share. Listening and connecting ends have the
//! same parts.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use crossway_ring::biased::biased;
use crossway_sys::OsError;

use crate::directory::Directory;
use crate::error::{Error, RecvError};
use crate::event::EventKind;
use crate::handle::Handle;
use crate::link::{Abroad, Link, Moving, Parts, flag};
use crate::net::Network;
use crate::net::wire::Wire;
use crate::page::Page;
use crate::policy::Policy;
use crate::protocol::{Marks, Switch};
use crate::receiver::{Poll, Receiver, RxState};
use crate::sender::{Sender, TxState};
use crate::transport::{Halves, Shape, Transport};

/// The parts from which an end of a channel is built.
pub(crate) struct Ends {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) switch: Switch,
    pub(crate) marks: Marks,
    pub(crate) shape: Shape,
    pub(crate) peer_pid: u32,
    pub(crate) directory: Directory,
    pub(crate) page: Page,
    pub(crate) halves: Halves,
    pub(crate) transport: Transport,
    pub(crate) policy: Policy,
    pub(crate) peer_allows: Vec<Transport>,
    pub(crate) peer_budget: f64,
    /// The number of messages sent and the number received before this process took the channel over; zeroes for a new
    /// channel.
    pub(crate) sequences: (u64, u64),
    /// Messages that an earlier process received and did not pass to its program.
    pub(crate) held: VecDeque<Vec<u8>>,
    /// Whether the peer has announced that it sends no more.
    pub(crate) fin: bool,
    /// The peer's host and how it is reached; `None` if the peer is on this host.
    pub(crate) abroad: Option<Abroad>,
    /// The settings for reaching other hosts, if there are any.
    pub(crate) network: Option<Arc<Network>>,
    /// The id of the listener; `None` at the connecting end.
    pub(crate) listener: Option<u64>,
    pub(crate) moving: Moving,
    /// How often the listening end has moved so far to a process that did not take over its connections.
    pub(crate) moves: u32,
}

/// One end of a channel. Messages arrive whole, in order and exactly once in both directions while both ends live,
/// unless both ends allow loss ([`Policy::lossy`]).
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

impl Channel {
    pub(crate) fn new(ends: Ends, wire: Wire) -> Result<Channel, Error> {
        let (tx, rx) = ends.halves;
        let session = tx.session().cloned();
        let (poll, poll_fd) = if ends.policy.pollable {
            let poll = Poll::new()?;
            let fd = poll.as_fd().try_clone_to_owned();
            (Some(poll), Some(fd.map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "epoll", e))?))
        } else {
            (None, None)
        };
        let max = ends.shape.max_message;
        let mut rx =
            RxState::new(rx, ends.sequences.1, max, poll).map_err(|error| match error {
                RecvError::Os(error) => Error::Os(error),
                other => Error::Policy(other.to_string()),
            })?;
        let holds = !ends.held.is_empty();
        (rx.held, rx.fin) = (ends.held, ends.fin);
        rx.show_held();
        let (tx_owner, tx_visitor) = biased(TxState::new(tx, ends.sequences.0));
        let (rx_owner, rx_visitor) = biased(rx);
        let on = ends.transport;
        let link = Link::new(Parts {
            name: ends.name,
            id: ends.id,
            switch: ends.switch,
            marks: ends.marks,
            shape: ends.shape,
            peer_pid: ends.peer_pid,
            directory: ends.directory,
            wire,
            abroad: ends.abroad,
            network: ends.network,
            listener: ends.listener,
            moving: ends.moving,
            moves: ends.moves,
            session,
            page: ends.page,
            tx: tx_visitor,
            rx: rx_visitor,
            transport: on,
            policy: ends.policy,
            peer_allows: ends.peer_allows,
            peer_budget: ends.peer_budget,
        });
        if holds {
            link.rx.raise(flag::HELD);
        }
        if on != Transport::Parked {
            link.log(&mut link.lock(), EventKind::Connected { on });
        }
        Ok(Channel {
            sender: Sender::new(tx_owner, Arc::clone(&link)),
            receiver: Receiver::new(rx_owner, link, poll_fd),
        })
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        self.receiver.link()
    }

    /// Returns a handle to control and observe the channel, which any thread may use.
    pub fn handle(&self) -> Handle {
        Handle::new(self.link())
    }

    /// Returns the sending half.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Returns the receiving half.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Splits the channel into its halves, for use by two threads.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}
