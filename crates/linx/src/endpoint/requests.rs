//! Requests from an endpoint to its node.

use std::time::{Duration, Instant};

use crossway_sys::clock::monotonic_ns;

use super::Endpoint;
use crate::limits::{ATTACHES, HUNTS, LONGEST_PATH};
use crate::mailbox::RequestKind;
use crate::signal::{ATTACH, HUNT, TIMEOUT};
use crate::view::{Condition, EndpointInfo, EndpointKind};
use crate::wire::local::{Event, Refusal, Request};
use crate::{Error, Filter, Reference, Signal, Spid};

/// Converts a refusal by the node to an error. `why` is the node's explanation; `of` is the endpoint that the request
/// was about.
pub(crate) fn refused(refusal: Refusal, why: String, of: Option<Spid>) -> Error {
    match (refusal, of) {
        (Refusal::Gone, Some(spid)) => Error::Gone { spid },
        (Refusal::Unknown, Some(spid)) => Error::Unknown { number: spid.get() },
        (Refusal::NotPermitted, _) => Error::NotPermitted(why),
        (Refusal::Limit, _) => Error::Limit(why),
        _ => Error::Protocol(why),
    }
}

impl Endpoint {
    /// Hunts for an endpoint by its name, or by a path: names of links, followed by the endpoint's name. The answer is
    /// the signal `answer`, or a signal with number [`HUNT`] if `answer` is `None`; it appears to come from the
    /// endpoint found. It arrives as soon as such an endpoint exists, which may be much later.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::Limit`], [`Error::NodeGone`].
    pub fn hunt(&mut self, path: &str, answer: Option<Signal>) -> Result<Reference, Error> {
        self.hunt_for(path, answer, None)
    }

    /// Like [`Endpoint::hunt`], but the hunt ends without an answer when `owner` closes. The answer still goes to this
    /// endpoint.
    ///
    /// # Errors
    /// Those of [`Endpoint::hunt`].
    pub fn hunt_for(
        &mut self,
        path: &str,
        answer: Option<Signal>,
        owner: Option<Spid>,
    ) -> Result<Reference, Error> {
        if path.len() > LONGEST_PATH {
            return Err(Error::BadName { name: path.to_owned() });
        }
        for name in path.split('/') {
            crate::check_name(name)?;
        }
        self.check_limit(RequestKind::Hunt, HUNTS, "hunts")?;
        let reference = self.mailbox.hunt(answer.unwrap_or_else(|| Signal::bare(HUNT)));
        let request = Request::Hunt { id: reference.0, owner, path: path.to_owned() };
        self.ask_for(reference, RequestKind::Hunt, &request)
    }

    /// Cancels a hunt; its answer will not be received.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the answer was received, or the hunt was cancelled before; [`Error::NodeGone`].
    pub fn cancel_hunt(&mut self, hunt: Reference) -> Result<(), Error> {
        self.give_up(hunt, RequestKind::Hunt, &Request::CancelHunt { id: hunt.0 })
    }

    /// Hunts for a path and waits for the answer: a convenience for programs that have nothing else to do meanwhile.
    ///
    /// # Errors
    /// Those of [`Endpoint::hunt`] and [`Endpoint::receive`]; [`Error::TimedOut`].
    pub fn hunt_and_wait(&mut self, path: &str, until: Option<Instant>) -> Result<Spid, Error> {
        let found = self.wait_for_answer(path, until);
        self.show()?;
        found
    }

    fn wait_for_answer(&mut self, path: &str, until: Option<Instant>) -> Result<Spid, Error> {
        let hunt = self.hunt(path, None)?;
        // The answers of other hunts may have the same number, so this one is identified by its reference.
        loop {
            self.expire();
            if let Some(signal) = self.mailbox.take_answer(hunt) {
                self.traffic.count_received(signal.is_remote(), signal.size());
                self.trace_received(&signal);
                return signal.sender().ok_or(Error::TimedOut);
            }
            if self.node_gone {
                return Err(Error::NodeGone);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                self.cancel_hunt(hunt)?;
                return Err(Error::TimedOut);
            }
            if self.mailbox.is_full() {
                return Err(Error::QueueFull { signals: self.mailbox.len() });
            }
            if !self.drain_hot(&Filter::ANY)? {
                self.look(until)?;
            }
        }
    }

    /// Requests a signal for the end of an endpoint. An endpoint ends when it is closed, when its process or node dies,
    /// or when it cannot be reached any more. The signal is `signal`, or one with number [`ATTACH`] if `signal` is
    /// `None`; it appears to come from the endpoint that ended. Each attach results in exactly one signal, immediately
    /// if the endpoint has already ended.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::NodeGone`].
    pub fn attach(&mut self, to: Spid, signal: Option<Signal>) -> Result<Reference, Error> {
        self.check_limit(RequestKind::Attach, ATTACHES, "attaches")?;
        let reference = self.mailbox.attach(signal.unwrap_or_else(|| Signal::bare(ATTACH)));
        let request = Request::Attach { id: reference.0, spid: to };
        self.ask_for(reference, RequestKind::Attach, &request)
    }

    /// Cancels an attach: its signal will not be received, even if it was queued already.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the signal was received, or the attach was cancelled before; [`Error::NodeGone`].
    pub fn detach(&mut self, attach: Reference) -> Result<(), Error> {
        self.give_up(attach, RequestKind::Attach, &Request::Detach { id: attach.0 })
    }

    /// Requests a signal after some time: `signal`, or one with number [`TIMEOUT`] if `signal` is `None`. It appears to
    /// come from this endpoint itself.
    ///
    /// # Errors
    /// [`Error::Limit`] if too many time-outs are pending.
    pub fn request_timeout(
        &mut self,
        after: Duration,
        signal: Option<Signal>,
    ) -> Result<Reference, Error> {
        self.check_limit(RequestKind::Timeout, HUNTS, "time-outs")?;
        let signal = signal.unwrap_or_else(|| Signal::bare(TIMEOUT));
        let timeout = self.mailbox.timeout(instant_ns(after), signal);
        self.show()?;
        Ok(timeout)
    }

    /// Changes a pending time-out to expire after `after` from now.
    ///
    /// # Errors
    /// [`Error::NotPending`] if it has expired or was cancelled.
    pub fn change_timeout(&mut self, timeout: Reference, after: Duration) -> Result<(), Error> {
        self.mailbox.change_timeout(timeout, instant_ns(after))?;
        self.show()
    }

    /// Cancels a time-out: its signal will not be received, even if it was queued already.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the signal was received, or the time-out was cancelled before.
    pub fn cancel_timeout(&mut self, timeout: Reference) -> Result<(), Error> {
        self.mailbox.cancel(timeout, RequestKind::Timeout)?;
        self.show()
    }

    /// Requests a signal with number [`NEW_LINK`](crate::signal::NEW_LINK) for the first link that came up later than
    /// the token's link, or for any link if the token is 0. The signal's payload is the new link's token in 8 bytes,
    /// followed by its name with a NUL byte at the end. With that token in the next request, no link is missed or
    /// reported twice.
    ///
    /// # Errors
    /// [`Error::Limit`] if too many such requests are pending; [`Error::NodeGone`].
    pub fn request_new_link(&mut self, token: u64) -> Result<Reference, Error> {
        self.check_limit(RequestKind::NewLink, HUNTS, "requests for links")?;
        let reference = self.mailbox.new_link();
        let request = Request::NewLink { id: reference.0, token };
        self.ask_for(reference, RequestKind::NewLink, &request)
    }

    /// Cancels a request for a new link.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the signal was received, or the request was cancelled before; [`Error::NodeGone`].
    pub fn cancel_new_link(&mut self, request: Reference) -> Result<(), Error> {
        self.give_up(request, RequestKind::NewLink, &Request::CancelNewLink { id: request.0 })
    }

    /// Returns information about an endpoint: its name (with the path of links to it if it is remote), its process and
    /// more.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Unknown`], [`Error::NodeGone`].
    pub fn info(&mut self, spid: Spid) -> Result<EndpointInfo, Error> {
        match self.ask(&Request::Name { spid }, spid)? {
            Event::NameIs(row) => Ok(EndpointInfo::new(row, None)),
            other => Err(Error::Protocol(format!("{other:?}"))),
        }
    }

    /// Returns the state of an endpoint of this node, including the numbers of signals that it has sent and received.
    ///
    /// Only the endpoint's own program knows this state. The endpoint reports it if it is waiting in a receive or makes
    /// another call within 100 ms.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Unknown`], [`Error::NotHere`] for links and for endpoints of other nodes,
    /// [`Error::TimedOut`] if the endpoint did not report, [`Error::NodeGone`].
    pub fn condition(&mut self, spid: Spid) -> Result<Condition, Error> {
        match self.ask(&Request::Condition { spid }, spid)? {
            Event::Row { row, report } => {
                let info = EndpointInfo::new(row, report);
                match (info.kind, info.condition) {
                    (EndpointKind::Local, Some(condition)) => Ok(condition),
                    (EndpointKind::Local, None) => Err(Error::TimedOut),
                    _ => Err(Error::NotHere { spid }),
                }
            }
            other => Err(Error::Protocol(format!("{other:?}"))),
        }
    }

    fn check_limit(&self, kind: RequestKind, most: usize, what: &str) -> Result<(), Error> {
        if self.mailbox.pending(kind) < most {
            return Ok(());
        }
        Err(Error::Limit(format!(
            "this endpoint has reached the limit of {most} pending {what}; cancel some first"
        )))
    }

    /// Sends a request with a new reference; the answer arrives later.
    fn ask_for(
        &mut self,
        reference: Reference,
        kind: RequestKind,
        request: &Request,
    ) -> Result<Reference, Error> {
        match self.control.say(request) {
            Ok(()) => Ok(reference),
            Err(error) => {
                self.mailbox.cancel(reference, kind)?;
                Err(error)
            }
        }
    }

    fn give_up(
        &mut self,
        reference: Reference,
        kind: RequestKind,
        request: &Request,
    ) -> Result<(), Error> {
        if self.mailbox.cancel(reference, kind)? {
            self.control.say(request)?;
        }
        self.show()
    }

    /// Requests a channel to an endpoint and waits for it; returns the channel's number.
    pub(super) fn connect(&mut self, to: Spid) -> Result<u32, Error> {
        let request = Request::Connect { spid: to, transport: self.transport };
        self.control.say(&request)?;
        loop {
            self.hear_answer(to)?;
            if let Some(number) = self.routes.get(&to).copied() {
                self.show()?;
                return Ok(number);
            }
            if self.starved == Some(to) {
                self.check_starved()?;
            }
        }
    }

    /// Asks the node whether this endpoint may send as `from` to `to`.
    pub(super) fn vouch(&mut self, from: Spid, to: Spid) -> Result<(), Error> {
        match self.ask(&Request::Vouch { from, to }, from)? {
            Event::End => Ok(()),
            other => Err(Error::Protocol(format!("{other:?}"))),
        }
    }

    /// Sends a request that concerns the endpoint `about`, and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request, about: Spid) -> Result<Event, Error> {
        self.control.say(request)?;
        loop {
            if let Some(answer) = self.hear_answer(about)? {
                self.show()?;
                return Ok(answer);
            }
        }
    }

    /// Waits for the next event from the node and handles it. Returns the event if it answers the request; if the node
    /// refused the request, which concerned the endpoint `about`, returns an error.
    fn hear_answer(&mut self, about: Spid) -> Result<Option<Event>, Error> {
        if self.node_gone {
            return Err(Error::NodeGone);
        }
        let Some((event, fds)) = self.control.hear(false)? else { return Ok(None) };
        match self.handle(event, fds, &Filter::ANY, false)? {
            Some(Event::Refused { refusal, why }) => Err(refused(refusal, why, Some(about))),
            answer => Ok(answer),
        }
    }
}

fn instant_ns(after: Duration) -> u64 {
    monotonic_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
}
