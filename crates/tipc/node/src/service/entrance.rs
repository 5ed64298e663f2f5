//! Decides which programs are admitted and which are refused with a reason, and how long connections are kept.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::socket::{self, Credentials};
use crossway_sys::{Errno, fdpass};
use crossway_tipc_client::protocol::control::{Request, Writer};
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_proto::time::Nanos;

use super::Service;
use super::client::Client;
use super::request::Answer;
use super::shares::is_operator;
use super::token::{Place, Token};
use crate::notice::Notice;

/// Maximum number of programs admitted in a row before other work is done.
const LET_IN_AT_ONCE: usize = 32;

/// Maximum number of descriptors in an answer.
const ANSWER_FDS_MAX: usize = 2;

/// Minimum interval between two notices of refused programs.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Counts programs that were refused, for a notice at intervals.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    /// Total number since the start.
    pub(super) count: u64,
    told: u64,
    last: Option<(Option<Credentials>, Refusal)>,
    /// The earliest time of the next notice.
    next: Nanos,
}

impl TurnedAway {
    pub(super) fn note(&mut self, program: Option<Credentials>, why: Refusal) {
        self.count += 1;
        self.last = Some((program, why));
    }
}

impl Service {
    /// Admits waiting programs.
    pub(super) fn let_in(&mut self, epoll: &Epoll) {
        for _ in 0..LET_IN_AT_ONCE {
            let Some(control) = self.listening.next() else { return };
            let program = socket::peer_credentials(&control).ok();
            let scarce = self.is_scarce(&control).then_some(Refusal::Descriptors);
            let refusal = self.shares.refuses(program);
            let crowded = scarce.or_else(|| self.is_full().then_some(Refusal::Places));
            let kept_place = match (refusal, crowded) {
                (None, None) => None,
                (None, Some(why)) if is_operator(program) && self.make_way(epoll) => Some(why),
                (Some(why), _) | (None, Some(why)) => {
                    self.turned_away.note(program, why);
                    // There is room for one answer, or no program to read it.
                    let answer = Writer::answer(why.errno().raw_os_error()).finish();
                    let _ = fdpass::try_send(&control, &answer, &[]);
                    continue;
                }
            };
            let place = self.clients.insert(|_| Client::new(control, program, kept_place));
            self.shares.enter(program);
            if kept_place.is_some() {
                self.in_kept_places.push_back(place);
            }
            let watched = match self.clients.get(place).and_then(|c| c.control.as_ref()) {
                Some(control) => epoll
                    .add(control, Token::Client(place).encode(), Trigger::WhileReadable)
                    .is_ok(),
                None => false,
            };
            if !watched {
                self.forget_client(place);
            }
        }
    }

    /// Whether the maximum number of programs is connected, not counting those on connections reserved for operators.
    fn is_full(&self) -> bool {
        self.clients.len() - self.in_kept_places.len() >= self.limits.clients
    }

    /// Whether a descriptor is one of those with the highest numbers, which are reserved for operators.
    pub(super) fn is_scarce(&self, fd: &OwnedFd) -> bool {
        usize::try_from(fd.as_raw_fd()).is_ok_and(|number| number >= self.shares.first_kept())
    }

    /// Makes sure that a reserved connection is free for an operator: if all are in use, closes the one that has been
    /// idle longest, whose program can reconnect. Returns whether one is free.
    fn make_way(&mut self, epoll: &Epoll) -> bool {
        if self.in_kept_places.len() >= self.limits.operators
            && let Some(oldest) = self.in_kept_places.front().copied()
        {
            self.leave(epoll, oldest);
        }
        self.in_kept_places.len() < self.limits.operators
    }

    /// Returns the reason if a program's request must be refused because connections or descriptors are exhausted. If a
    /// program on a reserved connection needs a normal one and one has become free, gives it that.
    pub(super) fn refusal(&mut self, place: Place, request: &Request<'_>) -> Option<Refusal> {
        let client = self.clients.get(place)?;
        let program = client.credentials;
        if let Some(why) = client.kept_place {
            if let Some(at) = self.in_kept_places.iter().position(|kept| *kept == place) {
                self.in_kept_places.remove(at);
                self.in_kept_places.push_back(place);
            }
            // A reserved connection may not be used for sockets, unless a normal one has become free.
            if matches!(request, Request::Open { .. } | Request::Adopt) {
                if why != Refusal::Places || self.is_full() {
                    return Some(why);
                }
                self.in_kept_places.pop_back();
                self.clients.get_mut(place)?.kept_place = None;
            }
        }
        let carries_descriptors = matches!(
            request,
            Request::Hello { .. }
                | Request::Open { .. }
                | Request::Adopt
                | Request::Lanes { .. }
                | Request::LaneDown { .. }
                | Request::Outlet { .. }
                | Request::Traffic
                | Request::Administer { .. }
        );
        if !carries_descriptors || self.shares.may_send(program, ANSWER_FDS_MAX) {
            return None;
        }
        self.release_idle_clients(program);
        if self.shares.may_send(program, ANSWER_FDS_MAX) {
            return None;
        }
        self.turned_away.note(program, Refusal::InFlight);
        Some(Refusal::InFlight)
    }

    /// Updates the count of descriptors in flight: a program that has received its last answer, and sent no request
    /// since, has none.
    fn release_idle_clients(&mut self, program: Option<Credentials>) {
        let shares = &mut self.shares;
        for client in self.clients.iter_mut() {
            let alike = client.credentials.map(|c| c.uid) == program.map(|c| c.uid);
            if client.in_flight > 0 && (alike || !is_operator(program)) && client.has_received() {
                shares.released(client.credentials, std::mem::take(&mut client.in_flight));
            }
        }
    }

    /// Whether a program's next request may be read: not before the program has received its last answer.
    pub(super) fn may_ask(&mut self, epoll: &Epoll, place: Place) -> bool {
        let Some(client) = self.clients.get_mut(place) else { return false };
        let Some(control) = &client.control else { return false };
        let report = if client.has_received() {
            self.shares.released(client.credentials, std::mem::take(&mut client.in_flight));
            if client.ended {
                self.forget_control(place);
                return false;
            }
            Trigger::WhileReadable
        } else {
            Trigger::Changes
        };
        let hold = report == Trigger::Changes;
        if client.held != hold {
            // Its reception of the answer is reported as room in the descriptor.
            if epoll.change(control, Token::Client(place).encode(), report).is_err() {
                self.forget_control(place);
                return false;
            }
            client.held = hold;
        }
        !hold
    }

    /// Sends an answer.
    pub(super) fn hand_over(&mut self, epoll: &Epoll, place: Place, answer: &Answer) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let Some(control) = &client.control else { return };
        match answer.send(control) {
            Ok(()) => {
                client.in_flight += answer.fds.len();
                self.shares.sent(client.credentials, answer.fds.len());
            }
            // More of this user's descriptors are in flight than the system allows, for whatever reason. They are lost with the answer.
            Err(Errno::TOOMANYREFS) => {
                self.turned_away.note(client.credentials, Refusal::InFlight);
                if Answer::error(Refusal::InFlight.errno()).send(control).is_err() {
                    self.leave(epoll, place);
                }
            }
            Err(_) => self.leave(epoll, place),
        }
    }

    /// Closes a control connection, but keeps its entry while answers with descriptors may still be in flight. The
    /// program's sockets, which another program may share, remain.
    pub(super) fn leave(&mut self, epoll: &Epoll, place: Place) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let Some(control) = &client.control else { return };
        if client.has_received() {
            return self.forget_control(place);
        }
        // Descriptors that it has not received are still in flight, whoever closes what. If its entry were freed, it could reconnect again and
        // again.
        client.ended = true;
        socket::shutdown_send(control);
        socket::shutdown_recv(control);
        self.in_kept_places.retain(|kept| *kept != place);
        let watched = epoll.change(control, Token::Client(place).encode(), Trigger::Changes);
        match watched {
            Ok(()) => client.held = true,
            Err(_) => self.forget_control(place),
        }
    }

    /// Closes a control connection.
    fn forget_control(&mut self, place: Place) {
        let Some(client) = self.clients.get_mut(place) else { return };
        client.control = None;
        self.note_dead_producer(place);
        self.in_kept_places.retain(|kept| *kept != place);
        self.forget_client_if_idle(place);
    }

    /// Removes a program that has neither a control connection nor sockets.
    pub(super) fn forget_client_if_idle(&mut self, place: Place) {
        if self.clients.get(place).is_some_and(|c| c.control.is_none() && c.sockets() == 0) {
            self.forget_client(place);
        }
    }

    fn forget_client(&mut self, place: Place) {
        let Some(client) = self.clients.remove(place) else { return };
        self.in_kept_places.retain(|kept| *kept != place);
        self.shares.released(client.credentials, client.in_flight);
        self.shares.leave(client.credentials);
    }

    /// Returns a notice of the programs refused since the last notice, unless that notice is too recent.
    pub(crate) fn poll_turned_away(&mut self, now: Nanos) -> Option<Notice> {
        if now < self.turned_away.next {
            return None;
        }
        let (program, why) = self.turned_away.last.take()?;
        let count = self.turned_away.count - self.turned_away.told;
        self.turned_away.told = self.turned_away.count;
        self.turned_away.next = now + NOTICE_INTERVAL;
        Some(Notice::TurnedAway {
            program,
            why,
            count,
            largest_process: self.shares.largest_process(),
            largest_user: self.shares.largest_user(),
        })
    }
}
