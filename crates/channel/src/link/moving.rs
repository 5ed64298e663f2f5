//! Moving the listening end to a process that cannot take over its connections, because the process is on another host
//! or the channel is between hosts.
//!
//! ```text
//!   old process                connecting end             new process
//!      |  <- switch to no transport ->  |                      |
//!      |  Moving ---------------------> |                      |
//!      |  <----------------------- Gone |                      |
//!      |  Handed, what it holds -----------------------------> |
//!                                       | Rejoin ------------> |
//!                                       | <----------- Welcome |
//!                                       | Rejoined ----------> |
//!                                       |  <- switch to one -> |
//! ```
//!
//! `Gone` is the last packet to the old process; once the new one has answered with `Welcome`, `Rejoined` is the first
//! packet of the new control connection. Packets that the connecting end would send between these two are queued, so
//! that none is lost with the old connection. The new process starts nothing before it has received `Rejoined`. If a
//! connection breaks before that, the connecting end simply makes another one.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::time::Duration;

use super::{Abroad, Link, Moving, State};
use crate::event::{EventKind, Reason};
use crate::fault;
use crate::message::{Message, Outbox, Rejoin, Welcome};
use crate::net::wire::Wire;
use crate::net::{Reader, Writer, write_now};
use crate::page::Page;
use crate::protocol::Role;
use crate::transport::Transport;
use crossway_sys::kernel::boot_id;
use crossway_sys::socket;

/// The minimum time for which the ends look for each other.
pub(super) const FIRST_CONNECTION: Duration = Duration::from_secs(5);

impl Link {
    /// Returns how long the ends look for each other during a move.
    pub(crate) fn patience_in_a_move(&self) -> Duration {
        let resume = self.network.as_ref().map_or(Duration::ZERO, |network| network.resume);
        resume.max(FIRST_CONNECTION)
    }

    /// Old process: tells the connecting end of a parked channel to look for another process, which is on another host
    /// if `far` is true.
    pub(crate) fn part(&self, state: &mut State, far: bool) {
        if state.moving == Moving::No {
            state.moving = Moving::Leaving(None);
            state.wire.send(&Message::Moving { far }, Vec::new());
            fault::point("Moving");
        }
        self.call();
    }

    /// Old process: returns the connecting end's answer, if it has arrived.
    pub(crate) fn answer(state: &State) -> Option<Result<(), String>> {
        match &state.moving {
            Moving::Leaving(answer) => answer.clone(),
            _ => None,
        }
    }

    pub(super) fn is_answered(&self, state: &mut State, answer: Result<(), String>) {
        if let Moving::Leaving(place @ None) = &mut state.moving {
            *place = Some(answer);
            self.changed.notify_all();
        }
    }

    /// Connecting end: handles [`Message::Moving`], which says that the listening end moves to another process, on
    /// another host if `far` is true.
    pub(super) fn is_left(&self, state: &mut State, far: bool) {
        if far && self.network.is_none() {
            let why = "its program has no settings for other hosts; set CROSSWAY_CHANNEL_HOSTS or \
                       CROSSWAY_CHANNEL_TIPC for it";
            return state.wire.send(&Message::Stays(why.to_owned()), Vec::new());
        }
        if state.moving == Moving::No {
            state.wire.send(&Message::Gone, Vec::new());
            fault::point("Gone");
            state.moving = Moving::Searching;
            self.call();
        }
    }

    /// Handles the end of the control connection within a host. Returns true if it was expected, because the channel is
    /// being moved.
    pub(crate) fn detach(&self) -> bool {
        let mut state = self.lock();
        let moves = matches!(state.moving, Moving::Searching | Moving::Awaiting(_));
        if moves && !state.wire.is_net() {
            state.wire = Wire::none();
        }
        moves
    }

    /// Connecting end: returns the question for processes that may have the channel now.
    pub(crate) fn question(&self, transports: Vec<Transport>, near: &[u64]) -> Rejoin {
        let (id, secret) = (self.id, self.marks.random());
        Rejoin { id, secret, transports, near: near.to_vec() }
    }

    /// Connecting end: continues with the new process, which has accepted the question. `peer_pid` is 0 on another
    /// host.
    pub(crate) fn rejoin(
        &self,
        wire: Wire,
        welcome: Welcome,
        abroad: Option<Abroad>,
        peer_pid: u32,
    ) {
        let mut state = self.lock();
        if state.over || state.moving != Moving::Searching {
            return;
        }
        fault::point("Answered");
        state.moving = Moving::No;
        state.moves += 1;
        state.wire = wire;
        (state.abroad, state.peer_pid) = (abroad, peer_pid);
        state.peer_allows = welcome.transports;
        state.say(Message::Rejoined);
        if state.policy.cpu_budget < 1.0 {
            state.say_policy();
        }
        for message in std::mem::take(&mut state.queued) {
            state.say(message);
        }
        fault::point("Rejoined");
        drop(state);
        self.call();
    }

    /// New process: whether this process waits for the connecting end.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.role == Role::Leader && matches!(self.lock().moving, Moving::Awaiting(_))
    }

    /// New process: checks that a question is about this channel, and that the ends have a transport in common.
    fn check_question(&self, rejoin: &Rejoin, ours: &[Transport]) -> Result<(), String> {
        if rejoin.secret != self.marks.random() {
            return Err("the request is about another channel".to_owned());
        }
        if !ours.iter().any(|transport| rejoin.transports.contains(transport)) {
            return Err("the policies of the two ends have no transport in common".to_owned());
        }
        Ok(())
    }

    /// New process: answers the connecting end, which is on this host.
    pub(crate) fn rejoin_near(&self, rejoin: Rejoin, socket: OwnedFd, mut fds: Vec<OwnedFd>) {
        let ours = self.lock().policy.transports();
        let answer = self.check_question(&rejoin, &ours).and_then(|()| {
            let page = fds.pop().ok_or("no shared page came with the request")?;
            let page = Page::open(page).map_err(|error| error.to_string())?;
            let page =
                page.ok_or("the descriptor that came with the request is not a sealed page")?;
            let wrote_nonce = page.write_nonce(true).map_err(|error| error.to_string())?;
            let read_nonce = page.nonce(false);
            Ok((page, Welcome { read_nonce, wrote_nonce, boot_id: boot_id(), transports: ours }))
        });
        let (page, welcome) = match answer {
            Ok(answer) => answer,
            Err(why) => {
                return Outbox::default().send(&socket, &Message::Refused(why), Vec::new());
            }
        };
        let peer_pid = socket::peer_credentials(&socket).map_or(0, |peer| peer.pid);
        let mut wire = Wire::unix(socket);
        wire.send(&Message::Welcome(welcome), Vec::new());
        *self.page.write().unwrap_or_else(PoisonError::into_inner) = page;
        let mut state = self.lock();
        (state.wire, state.abroad, state.peer_pid) = (wire, None, peer_pid);
        state.peer_allows = rejoin.transports;
        fault::point("Welcomed");
    }

    /// New process: answers the connecting end, which is on another host.
    pub(crate) fn rejoin_far(&self, rejoin: Rejoin, mut writer: Writer, reader: Reader) {
        let Some(network) = self.network.clone() else { return };
        let transport = reader.stream().transport();
        let ours = self.lock().policy.transports_between(transport);
        if let Err(why) = self.check_question(&rejoin, &ours) {
            return write_now(&mut writer, &Message::Refused(why));
        }
        let peer = format!("{transport} {}", reader.stream().peer());
        let welcome =
            Welcome { read_nonce: 0, wrote_nonce: 0, boot_id: boot_id(), transports: ours };
        write_now(&mut writer, &Message::Welcome(welcome));
        let mut state = self.lock();
        state.wire = Wire::net(writer, reader);
        state.abroad = Some(Abroad { network, transport, peer, place: None });
        state.peer_pid = 0;
        state.peer_allows = rejoin.transports;
        fault::point("Welcomed");
    }

    /// New process: ends the move, since the connecting end has confirmed that it found this process. From here on, the
    /// channel is like any other.
    pub(super) fn is_found(&self, state: &mut State) {
        let Moving::Awaiting(since) = state.moving else { return };
        state.moving = Moving::No;
        let took_us = since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
        self.log(state, EventKind::Resumed { took_us });
        let first = match &state.abroad {
            Some(abroad) => abroad.transport,
            None => self.shape.first(state.policy.pollable).0,
        };
        state.wished = Some((first, Reason::PeerMoved { far: state.abroad.is_some() }));
        fault::point("Found");
        self.call_policy();
    }

    /// Control thread: does what is due in a move. Returns whether one is in progress.
    pub(super) fn attend_move(&self) -> bool {
        let state = self.lock();
        match state.moving {
            Moving::No | Moving::Leaving(_) => false,
            Moving::Awaiting(since) => {
                drop(state);
                if since.elapsed() >= self.patience_in_a_move() {
                    self.lost(None);
                }
                true
            }
            Moving::Searching => {
                self.search(state, self.patience_in_a_move());
                true
            }
        }
    }
}
