//! Arrivals at an endpoint: events from the node, and signals.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::{CONTROL, Endpoint, TIMER, WAKE, Way};
use crate::channel::{Broken, Came, Channel, Filled};
use crate::limits::REPORTED_FILTER;
use crate::mailbox::RequestKind;
use crate::signal::NEW_LINK;
use crate::wire::local::{Event, Report, Request};
use crate::{Error, Filter, Numbers, Reference, Signal, Spid};

/// The filter to report to the node if it asks while the endpoint is not in a receive.
const NOTHING: Filter<'static> = Filter::ANY;

impl Endpoint {
    /// Checks all descriptors once, waiting until the deadline for one to be ready; returns whether something may have
    /// arrived.
    pub(super) fn look(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        self.look_as(&NOTHING, until, false)
    }

    /// Does the same as [`Endpoint::look`], during a receive with this filter.
    pub(super) fn look_for(
        &mut self,
        filter: &Filter<'_>,
        until: Option<Instant>,
    ) -> Result<bool, Error> {
        self.look_as(filter, until, true)
    }

    fn look_as(
        &mut self,
        filter: &Filter<'_>,
        until: Option<Instant>,
        receiving: bool,
    ) -> Result<bool, Error> {
        self.since_look = 0;
        self.likely.reads = 0;
        let waits = until.is_none_or(|until| until > Instant::now());
        if waits {
            self.hush()?;
            if !self.arm_hot()? {
                return Ok(true);
            }
        }
        let mut tokens = [0; super::BATCH];
        let mut count = 0;
        {
            let ready = self.epoll.wait(until).map_err(|errno| {
                crossway_sys::OsError::new("epoll_wait", "LINX endpoint", errno)
            })?;
            for (to, ready) in tokens.iter_mut().zip(ready) {
                *to = ready.token;
                count += 1;
            }
        }
        for token in &tokens[..count] {
            match *token {
                CONTROL => self.hear_all(filter, receiving)?,
                WAKE | TIMER => {}
                token => self.fill(token as u32 - 1, receiving)?,
            }
        }
        Ok(tokens[..count].iter().any(|token| !matches!(*token, WAKE | TIMER)))
    }

    /// Makes all channels in `hot` report arrivals; returns false if something has already arrived on one.
    pub(super) fn arm_hot(&mut self) -> Result<bool, Error> {
        while let Some(number) = self.hot.front().copied() {
            let armed = match self.ways.get_mut(&number) {
                None => Ok(true),
                Some(way) => way.channel.arm(),
            };
            match armed {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                // Handled by the next check.
                Err(broken) => {
                    self.channel_ended(number, broken);
                    return Ok(false);
                }
            }
            self.hot.pop_front();
            if let Some(way) = self.ways.get_mut(&number) {
                way.is_hot = false;
            }
        }
        Ok(true)
    }

    pub(super) fn make_hot(&mut self, number: u32) {
        if let Some(way) = self.ways.get_mut(&number)
            && !way.is_hot
        {
            way.is_hot = true;
            self.hot.push_back(number);
        }
    }

    /// Takes signals out of the first channel in `hot` that has any, up to one that the filter accepts; returns whether
    /// there were any.
    #[inline]
    pub(super) fn drain_hot(&mut self, filter: &Filter<'_>) -> Result<bool, Error> {
        let mut any = false;
        for _ in 0..self.hot.len() {
            let Some(number) = self.hot.front().copied() else { break };
            let had = self.mailbox.len();
            self.take_in(number, false, Some(filter));
            any |= self.mailbox.len() > had;
            // It is the next channel's turn.
            if !self.hot.is_empty() {
                self.hot.rotate_left(1);
            }
            if any {
                break;
            }
        }
        Ok(any)
    }

    /// Reads from a channel whose descriptor has become readable. `receiving` says whether this happens in a receive.
    fn fill(&mut self, number: u32, receiving: bool) -> Result<(), Error> {
        let Some(way) = self.ways.get_mut(&number) else { return Ok(()) };
        if let Channel::Ring(_) = way.channel {
            // The descriptor reports it only once, so the channel must be checked before the next sleep, whatever
            // happens to it now.
            self.make_hot(number);
            self.take_in(number, receiving, None);
            return Ok(());
        }
        if self.mailbox.is_full() {
            return Ok(());
        }
        match way.channel.fill(&mut self.assembly, false) {
            Ok(Filled::Something) => {
                self.likely.channel = Some(number);
                self.make_hot(number);
                self.take_in(number, receiving, None);
            }
            Ok(Filled::Nothing) => {}
            Err(broken) => self.channel_ended(number, broken),
        }
        Ok(())
    }

    /// Moves signals from a channel to the queue, up to the first one that the filter accepts. With `patient`, waits
    /// briefly for the rest of a large signal that has begun to arrive.
    pub(super) fn take_in(&mut self, number: u32, patient: bool, filter: Option<&Filter<'_>>) {
        while !self.mailbox.is_full()
            && let Some(way) = self.ways.get_mut(&number)
        {
            match way.channel.next(&mut self.assembly) {
                Ok(Some(came)) => {
                    let enough = match (&came, filter) {
                        (Came::Signal(signal), Some(filter)) => filter.takes(signal),
                        _ => false,
                    };
                    self.accept(number, came);
                    if enough {
                        return;
                    }
                }
                Ok(None) if patient && self.mailbox.len() == 0 && way.channel.is_amid_signal() => {
                    match way.channel.fill(&mut self.assembly, true) {
                        Ok(Filled::Something) => {}
                        Ok(Filled::Nothing) => return,
                        Err(broken) => return self.channel_ended(number, broken),
                    }
                }
                Ok(None) => return,
                Err(broken) => return self.channel_ended(number, broken),
            }
        }
    }

    /// Queues an arrival from a channel, if the channel's peer is allowed to send it.
    fn accept(&mut self, number: u32, came: Came) {
        match came {
            Came::Signal(signal) => {
                let Some(way) = self.ways.get(&number) else { return };
                let from = signal.sender();
                if way.peer.is_none() {
                    return self.mailbox.arrive(signal.over_link());
                }
                if from == way.peer {
                    return self.mailbox.arrive(signal);
                }
                let Some(from) = from else { return };
                if !way.vouched.contains(&from) {
                    // The node announces this before the peer is allowed to send.
                    let _ = self.hear_all(&NOTHING, false);
                }
                match self.ways.get(&number) {
                    Some(way) if way.vouched.contains(&from) => self.mailbox.arrive(signal),
                    _ => self.channel_ended(
                        number,
                        Broken::Damaged("a signal has a sender that may not use this channel"),
                    ),
                }
            }
            Came::Gone { id, spid } => {
                let relay = self.ways.get(&number).is_some_and(|way| way.peer.is_none());
                if relay {
                    self.mailbox.gone(Reference(id), spid);
                }
            }
        }
    }

    /// Removes a channel that is no longer usable.
    pub(super) fn channel_ended(&mut self, number: u32, broken: Broken) {
        let Some(way) = self.ways.remove(&number) else { return };
        let other =
            || way.peer.map_or_else(|| "a link".to_owned(), |spid| format!("endpoint {spid}"));
        match broken {
            Broken::Ended => {}
            Broken::Damaged(why) => {
                tracing::warn!("{}: closing the channel to {}: {why}", self.name, other());
            }
            Broken::Os(error) => {
                tracing::warn!("{}: closing the channel to {}: {error}", self.name, other());
            }
        }
        let _ = self.epoll.remove(way.channel.read_fd());
        self.assembly.forget(number);
        self.hot.retain(|hot| *hot != number);
        self.unsent.remove(&number);
        // The route stays, so that an endpoint that has ended is not requested again before the node has reported its
        // end.
        if self.last_route.is_some_and(|(_, of)| of == number) {
            self.last_route = None;
        }
    }

    /// Reads everything that remains in a dead peer's channel, so that its signals come before the notice of its end.
    /// The queue's limit does not apply, because no more than the capacity of a channel can remain.
    fn read_out(&mut self, number: u32) {
        loop {
            let Some(way) = self.ways.get_mut(&number) else { return };
            match way.channel.next(&mut self.assembly) {
                Ok(Some(came)) => {
                    self.accept(number, came);
                    continue;
                }
                Ok(None) => {}
                Err(broken) => return self.channel_ended(number, broken),
            }
            match &way.channel {
                Channel::Ring(_) => return,
                Channel::Stream(_) => match way.channel.fill(&mut self.assembly, false) {
                    Ok(Filled::Something) => {}
                    Ok(Filled::Nothing) => return,
                    Err(broken) => return self.channel_ended(number, broken),
                },
            }
        }
    }

    /// Reads everything that remains in all channels; returns whether there was anything.
    pub(super) fn read_out_all(&mut self) -> bool {
        let had = self.mailbox.len();
        let all: Vec<u32> = self.ways.keys().copied().collect();
        for number in all {
            self.read_out(number);
        }
        self.mailbox.len() > had
    }

    /// Handles all events from the node, in a receive with this filter or (`receiving` is false) in another call.
    pub(super) fn hear_all(&mut self, filter: &Filter<'_>, receiving: bool) -> Result<(), Error> {
        loop {
            match self.control.hear(true) {
                Ok(None) => return Ok(()),
                Ok(Some((event, fds))) => {
                    if let Some(event) = self.handle(event, fds, filter, receiving)? {
                        return Err(Error::Protocol(format!(
                            "an answer without a request: {event:?}"
                        )));
                    }
                }
                Err(Error::NodeGone) => {
                    self.node_gone = true;
                    let _ = self.epoll.remove(&self.control);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles an event; returns the event if it answers a request. The last two arguments are those of `hear_all`.
    pub(super) fn handle(
        &mut self,
        event: Event,
        fds: Vec<OwnedFd>,
        filter: &Filter<'_>,
        receiving: bool,
    ) -> Result<Option<Event>, Error> {
        match event {
            Event::Found { id, spid } => self.mailbox.found(Reference(id), spid),
            Event::Gone { id, spid } => {
                self.read_out_of(spid);
                self.mailbox.gone(Reference(id), spid);
            }
            Event::PeerGone { spid } => {
                self.read_out_of(spid);
                self.routes.remove(&spid).inspect(|number| {
                    // A relay also serves other peers.
                    if self.ways.get(number).is_some_and(|way| way.peer == Some(spid)) {
                        self.channel_ended(*number, Broken::Ended);
                    }
                });
                self.may_send_as.retain(|(from, to)| *from != spid && *to != spid);
                self.last_route = None;
                self.lost.remove(&spid);
            }
            Event::NoChannel { spid } => self.lose_channel(spid),
            Event::Channel { spid, channel } => self.add_channel(spid, channel, fds)?,
            Event::Vouched { peer, from } => {
                let number = self.routes.get(&peer);
                if let Some(way) = number.and_then(|number| self.ways.get_mut(number)) {
                    way.vouched.insert(from);
                }
            }
            Event::Ask { serial } => {
                let report = self.report(filter, receiving);
                self.control.say(&Request::Report { serial, report })?;
            }
            Event::LinkUp { id, token, name } => {
                let mut payload = token.to_ne_bytes().to_vec();
                payload.extend_from_slice(name.as_bytes());
                payload.push(0);
                let signal = Signal::with_payload(NEW_LINK, &payload)?.from(self.spid);
                self.mailbox.link_up(Reference(id), signal);
            }
            Event::Trace { generation, payload } => {
                self.trace.join(generation, payload as usize, fds)?;
                return Ok(Some(Event::Trace { generation, payload }));
            }
            answer => return Ok(Some(answer)),
        }
        Ok(None)
    }

    /// Reads the remaining signals of a dead endpoint.
    fn read_out_of(&mut self, spid: Spid) {
        let direct = self.routes.get(&spid).copied();
        let relays: Vec<u32> = match direct {
            Some(number) => vec![number],
            None => {
                let relay = |(number, way): (&u32, &Way)| way.peer.is_none().then_some(*number);
                self.ways.iter().filter_map(relay).collect()
            }
        };
        for number in relays {
            self.read_out(number);
        }
    }

    fn report(&self, filter: &Filter<'_>, receiving: bool) -> Report {
        let (kind, numbers) = match filter.numbers {
            Numbers::Any => (0, &[][..]),
            Numbers::Only(numbers) => (1, numbers),
            Numbers::Except(numbers) => (2, numbers),
        };
        Report {
            receiving,
            filter: kind,
            numbers: numbers.iter().copied().take(REPORTED_FILTER).collect(),
            from: filter.from,
            queued: self.mailbox.len() as u64,
            queued_bytes: self.mailbox.bytes() as u64,
            traffic: self.traffic,
            dropped: self.mailbox.dropped,
            timeouts: self.mailbox.pending(RequestKind::Timeout) as u32,
        }
    }
}
