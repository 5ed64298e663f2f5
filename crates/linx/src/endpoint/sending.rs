//! Sending signals.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossway_sys::OsError;
use crossway_sys::poll::{Interest, any_ready};

use super::Endpoint;
use crate::channel::{Outgoing, Sent};
use crate::{Error, Filter, Signal, Spid};

/// While an endpoint waits for room, it tries again after this time even if it is not woken.
const TRY_AGAIN: Duration = Duration::from_millis(50);

impl Endpoint {
    /// Sends a signal; waits for room if the receiver is slow.
    ///
    /// # Errors
    /// [`Error::Gone`] if the receiver has ended, [`Error::Unknown`] if it never existed, [`Error::NoChannel`] if its
    /// process has no descriptors left, [`Error::Limit`] if this process has none left or a limit of channels is
    /// reached, [`Error::NodeGone`]. The signal is freed in any case.
    #[inline]
    pub fn send(&mut self, signal: Signal, to: Spid) -> Result<(), Error> {
        self.send_until(signal, to, None)
    }

    /// Like [`Endpoint::send`], but waits for room only until the deadline.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`], and [`Error::TimedOut`] if there was no room; nothing was sent in that case.
    #[inline]
    pub fn send_until(
        &mut self,
        signal: Signal,
        to: Spid,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        self.transmit_signal(signal, self.spid, to, false, until)
    }

    /// Sends a signal out of band: in the receiver's queue, it is placed in front of all ordinary signals and behind
    /// earlier out-of-band signals.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`].
    pub fn send_out_of_band(&mut self, signal: Signal, to: Spid) -> Result<(), Error> {
        self.transmit_signal(signal, self.spid, to, true, None)
    }

    /// Sends a signal that appears to come from another endpoint of the same user.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`], and [`Error::NotPermitted`] for an endpoint of another user or node.
    pub fn send_as(&mut self, signal: Signal, from: Spid, to: Spid) -> Result<(), Error> {
        if from != self.spid && to != self.spid && !self.may_send_as.contains(&(from, to)) {
            self.route(to)?;
            self.vouch(from, to)?;
            self.may_send_as.insert((from, to));
        }
        self.transmit_signal(signal, from, to, false, None)
    }

    /// Sends a signal with a copy of `payload`, for payloads that are not in a signal.
    ///
    /// # Errors
    /// Those of [`Endpoint::send_until`] and [`Signal::new`].
    #[inline]
    pub fn send_copy(
        &mut self,
        number: u32,
        payload: &[u8],
        to: Spid,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        crate::signal::check(number, payload.len())?;
        let from = self.spid;
        let out =
            Outgoing { from, to, out_of_band: false, number, payload, block: None, frame: None };
        let outcome = self.transmit(&out, until);
        self.show()?;
        outcome.map(drop)
    }

    /// Waits until all channels have sent everything that they have accepted. After a send with a deadline, part of its
    /// signal may still be waiting in the channel.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the deadline has passed, [`Error::NodeGone`] if the node has ended.
    pub fn flush(&mut self, until: Option<Instant>) -> Result<(), Error> {
        while !self.unsent.is_empty() {
            self.flush_some()?;
            let Some(number) = self.unsent.iter().next().copied() else { break };
            if until.is_some_and(|until| until <= Instant::now()) {
                self.show()?;
                return Err(Error::TimedOut);
            }
            self.wait_for_room(number, until)?;
        }
        self.show()
    }

    #[inline]
    fn transmit_signal(
        &mut self,
        mut signal: Signal,
        from: Spid,
        to: Spid,
        out_of_band: bool,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let mut out = Outgoing::of(&mut signal, from, to, out_of_band);
        if out.block.is_some() && !self.is_untraced() {
            // This is reported after it was sent, and at that time it must still belong to this endpoint.
            out.block = None;
        }
        let outcome = self.transmit(&out, until);
        if matches!(outcome, Ok(Sent::Lent)) {
            signal.lend();
        } else {
            self.free(signal);
        }
        self.show()?;
        outcome.map(drop)
    }

    /// Sends a signal; returns whether the channel accepted it or its block was passed on.
    #[inline]
    fn transmit(&mut self, out: &Outgoing<'_>, until: Option<Instant>) -> Result<Sent, Error> {
        if out.to == self.spid {
            return self.send_to_itself(out).map(|()| Sent::Taken);
        }
        let number = match self.last_route {
            Some((to, number)) if to == out.to => number,
            _ => self.route(out.to)?,
        };
        // The first attempt may wait within the call itself, unless that could take longer than the deadline.
        let mut patient = until.is_none();
        loop {
            let Some(way) = self.ways.get_mut(&number) else {
                return Err(Error::Gone { spid: out.to });
            };
            match way.channel.send(out, patient) {
                Ok(sent @ (Sent::Taken | Sent::Lent)) => {
                    let over_link = way.peer.is_none();
                    if way.channel.holds_back() {
                        self.unsent.insert(number);
                        self.send_rest(number, out.to, until)?;
                    }
                    self.traffic.count_sent(over_link, out.size());
                    self.trace_sent(out);
                    return Ok(sent);
                }
                Ok(Sent::Full) => {}
                Err(broken) => {
                    // What the peer sent before it ended must still be received.
                    if matches!(broken, crate::channel::Broken::Ended) {
                        self.hear_all(&Filter::ANY, false)?;
                        self.check_lost(out.to)?;
                    } else {
                        self.channel_ended(number, broken);
                    }
                    return Err(Error::Gone { spid: out.to });
                }
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Error::TimedOut);
            }
            self.wait_for_room(number, until)?;
            // The notice of its end may have arrived meanwhile; a channel to the node continues for other endpoints.
            if !self.routes.contains_key(&out.to) {
                self.check_lost(out.to)?;
                return Err(Error::Gone { spid: out.to });
            }
            patient = until.is_none();
        }
    }

    /// Waits until the channel has sent the rest of a signal, because the program may not make another call for a long
    /// time. If the deadline passes first, later calls of this endpoint send the rest.
    #[cold]
    fn send_rest(&mut self, number: u32, to: Spid, until: Option<Instant>) -> Result<(), Error> {
        while self.unsent.contains(&number) && until.is_none_or(|until| until > Instant::now()) {
            self.wait_for_room(number, until)?;
            self.flush_some()?;
        }
        if self.ways.contains_key(&number) {
            return Ok(());
        }
        self.check_lost(to)?;
        Err(Error::Gone { spid: to })
    }

    fn send_to_itself(&mut self, out: &Outgoing<'_>) -> Result<(), Error> {
        let mut bytes = self.assembly.buffer(out.size());
        bytes.extend_from_slice(&out.number.to_ne_bytes());
        bytes.extend_from_slice(out.payload);
        self.mailbox.arrive(Signal::received(bytes, out.from, out.out_of_band));
        self.traffic.count_sent(false, out.size());
        self.trace_sent(out);
        Ok(())
    }

    /// Returns the number of the channel to an endpoint; creates one if necessary.
    pub(super) fn route(&mut self, to: Spid) -> Result<u32, Error> {
        let number = match self.routes.get(&to) {
            Some(number) => *number,
            None => {
                self.check_lost(to)?;
                self.connect(to)?
            }
        };
        self.last_route = Some((to, number));
        Ok(number)
    }

    /// Sleeps until a channel may have room, but no longer than [`TRY_AGAIN`], and takes in arrivals meanwhile. Two
    /// endpoints that send to each other therefore block each other only when both their queues are full.
    fn wait_for_room(&mut self, number: u32, until: Option<Instant>) -> Result<(), Error> {
        let soon = Instant::now() + TRY_AGAIN;
        let until = Some(until.map_or(soon, |until| until.min(soon)));
        let Some(way) = self.ways.get_mut(&number) else { return Ok(()) };
        match way.channel.ask_for_room() {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            Err(broken) => {
                self.channel_ended(number, broken);
                return Ok(());
            }
        }
        self.hush()?;
        let full = self.mailbox.is_full();
        if !full && !self.arm_hot()? {
            // Something has arrived that must be taken in first.
            self.drain_hot(&Filter::ANY)?;
            return Ok(());
        }
        let Some(way) = self.ways.get(&number) else { return Ok(()) };
        let mut fds = vec![(self.control.as_fd(), Interest::Readable)];
        if full {
            // Nothing more can be taken in, so arrivals must not wake this endpoint.
            if way.channel.room_fd().is_none() {
                fds.push((way.channel.read_fd(), Interest::Readable));
            }
        } else {
            fds.push((self.epoll.as_fd(), Interest::Readable));
        }
        if let Some(fd) = way.channel.room_fd() {
            fds.push((fd, Interest::Writable));
        }
        any_ready(&fds, until).map_err(|errno| OsError::new("poll", "LINX endpoint", errno))?;
        if full {
            self.hear_all(&Filter::ANY, false)?;
            if let Some(way) = self.ways.get_mut(&number)
                && way.channel.room_fd().is_none()
            {
                let _ = way.channel.fill(&mut self.assembly, false);
                self.make_hot(number);
            }
        } else {
            self.look(Some(Instant::now()))?;
        }
        if self.node_gone {
            return Err(Error::NodeGone);
        }
        Ok(())
    }

    /// Sends the bytes that channels hold back, as far as there is room.
    pub(super) fn flush_some(&mut self) -> Result<(), Error> {
        let waiting: Vec<u32> = self.unsent.iter().copied().collect();
        for number in waiting {
            let Some(way) = self.ways.get_mut(&number) else {
                self.unsent.remove(&number);
                continue;
            };
            match way.channel.flush(false) {
                Ok(true) => {
                    self.unsent.remove(&number);
                }
                Ok(false) => {}
                Err(broken) => self.channel_ended(number, broken),
            }
        }
        Ok(())
    }
}
