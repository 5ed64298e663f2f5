//! The signals that have arrived for an endpoint, and its pending requests. No I/O, no clock.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::{Error, Filter, Signal, Spid};

/// What happens to signals for an endpoint with a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// New signals stay in their channels, and senders wait until signals are received.
    #[default]
    Block,
    /// The new signal is dropped and counted.
    DropNewest,
    /// The oldest signal is dropped and counted.
    DropOldest,
}

/// The limits of an endpoint's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Maximum number of signals.
    pub signals: usize,
    /// Number of bytes from which the queue is full. The last signal may exceed this limit, so that no signal is
    /// blocked forever.
    pub bytes: usize,
    /// What happens at the limits.
    pub when_full: WhenFull,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            signals: crate::limits::QUEUE_SIGNALS,
            bytes: crate::limits::QUEUE_BYTES,
            when_full: WhenFull::Block,
        }
    }
}

/// Identifies a pending attach, hunt, time-out or request for a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference(pub(crate) u32);

impl Reference {
    /// Returns the reference as a number, for the C interface.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Creates a reference from its number.
    pub fn new(number: u32) -> Reference {
        Reference(number)
    }
}

#[derive(Debug)]
struct Item {
    signal: Signal,
    /// The reference that the signal answers, if any.
    answers: Option<Reference>,
}

#[derive(Debug)]
enum Pending {
    Attach(Signal),
    Hunt(Signal),
    Timeout { at_ns: u64, signal: Signal },
    NewLink,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Attach,
    Hunt,
    Timeout,
    NewLink,
}

impl Pending {
    fn kind(&self) -> RequestKind {
        match self {
            Pending::Attach(_) => RequestKind::Attach,
            Pending::Hunt(_) => RequestKind::Hunt,
            Pending::Timeout { .. } => RequestKind::Timeout,
            Pending::NewLink => RequestKind::NewLink,
        }
    }
}

/// The queue and the pending requests.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: VecDeque<Item>,
    /// Number of signals at the front of the queue that are out of band.
    out_of_band: usize,
    bytes: usize,
    bounds: Queue,
    pending: HashMap<Reference, Pending>,
    timeouts: BTreeMap<(u64, Reference), ()>,
    last: u32,
    pub(crate) dropped: u64,
    counts: [usize; 4],
}

impl Mailbox {
    pub(crate) fn new(bounds: Queue) -> Self {
        Mailbox {
            queue: VecDeque::new(),
            out_of_band: 0,
            bytes: 0,
            bounds,
            pending: HashMap::new(),
            timeouts: BTreeMap::new(),
            last: 0,
            dropped: 0,
            counts: [0; 4],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of pending requests of this kind.
    pub(crate) fn pending(&self, kind: RequestKind) -> usize {
        self.counts[kind as usize]
    }

    /// Whether the queue is full and therefore admits no new signals; always false if signals are dropped instead.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bounds.when_full == WhenFull::Block
            && (self.queue.len() >= self.bounds.signals || self.bytes >= self.bounds.bytes)
    }

    /// Queues a signal that another endpoint sent. If the queue is full, drops a signal unless [`WhenFull::Block`] is
    /// set.
    #[inline]
    pub(crate) fn arrive(&mut self, signal: Signal) {
        let full = self.queue.len() >= self.bounds.signals || self.bytes >= self.bounds.bytes;
        if full {
            match self.bounds.when_full {
                // Signals that were let in before the limit was reached stay.
                WhenFull::Block => {}
                WhenFull::DropNewest => {
                    self.dropped += 1;
                    return;
                }
                WhenFull::DropOldest => {
                    // Answers to the endpoint's own requests must not be displaced by senders.
                    if let Some(at) = self.queue.iter().position(|item| item.answers.is_none()) {
                        self.remove(at);
                        self.dropped += 1;
                    }
                }
            }
        }
        self.push(signal, None);
    }

    fn push(&mut self, signal: Signal, answers: Option<Reference>) {
        self.bytes += signal.size();
        let item = Item { signal, answers };
        if item.signal.is_out_of_band() {
            self.queue.insert(self.out_of_band, item);
            self.out_of_band += 1;
        } else {
            self.queue.push_back(item);
        }
    }

    fn remove(&mut self, at: usize) -> Option<Signal> {
        let item = if at == 0 { self.queue.pop_front()? } else { self.queue.remove(at)? };
        if at < self.out_of_band {
            self.out_of_band -= 1;
        }
        self.bytes -= item.signal.size();
        Some(item.signal)
    }

    /// Takes the first signal that the filter accepts; `None` if there is none.
    #[inline]
    pub(crate) fn take(&mut self, filter: &Filter<'_>) -> Option<Signal> {
        let at = self.queue.iter().position(|item| filter.takes(&item.signal))?;
        self.remove(at)
    }

    /// Whether a request is neither answered nor cancelled, or its answer is still queued.
    #[cfg(test)]
    pub(crate) fn is_pending(&self, reference: Reference) -> bool {
        self.pending.contains_key(&reference)
            || self.queue.iter().any(|item| item.answers == Some(reference))
    }

    /// Takes the signal that answers a reference, if it is queued.
    pub(crate) fn take_answer(&mut self, reference: Reference) -> Option<Signal> {
        let at = self.queue.iter().position(|item| item.answers == Some(reference))?;
        self.remove(at)
    }

    fn add(&mut self, pending: Pending) -> Reference {
        loop {
            self.last = self.last.wrapping_add(1);
            let reference = Reference(self.last);
            if self.last != 0 && !self.pending.contains_key(&reference) {
                self.counts[pending.kind() as usize] += 1;
                self.pending.insert(reference, pending);
                return reference;
            }
        }
    }

    fn settle(&mut self, reference: Reference, kind: RequestKind) -> Option<Pending> {
        if self.pending.get(&reference)?.kind() != kind {
            return None;
        }
        self.counts[kind as usize] -= 1;
        self.pending.remove(&reference)
    }

    /// Adds an attach with the signal that will report the end of the endpoint.
    pub(crate) fn attach(&mut self, signal: Signal) -> Reference {
        self.add(Pending::Attach(signal))
    }

    /// Handles the end of an attached endpoint.
    pub(crate) fn gone(&mut self, reference: Reference, spid: Spid) {
        if let Some(Pending::Attach(signal)) = self.settle(reference, RequestKind::Attach) {
            self.push(signal.from(spid), Some(reference));
        }
    }

    /// Adds a hunt with the signal that will answer it.
    pub(crate) fn hunt(&mut self, signal: Signal) -> Reference {
        self.add(Pending::Hunt(signal))
    }

    /// Handles the answer to a hunt.
    pub(crate) fn found(&mut self, reference: Reference, spid: Spid) {
        if let Some(Pending::Hunt(signal)) = self.settle(reference, RequestKind::Hunt) {
            self.push(signal.from(spid), Some(reference));
        }
    }

    /// Adds a request for the next new link.
    pub(crate) fn new_link(&mut self) -> Reference {
        self.add(Pending::NewLink)
    }

    /// Handles a new link, which `signal` reports.
    pub(crate) fn link_up(&mut self, reference: Reference, signal: Signal) {
        if self.settle(reference, RequestKind::NewLink).is_some() {
            self.push(signal, Some(reference));
        }
    }

    /// Adds a time-out, which queues `signal` at the instant `at_ns`.
    pub(crate) fn timeout(&mut self, at_ns: u64, signal: Signal) -> Reference {
        let reference = self.add(Pending::Timeout { at_ns, signal });
        self.timeouts.insert((at_ns, reference), ());
        reference
    }

    /// Changes the instant of a pending time-out.
    pub(crate) fn change_timeout(&mut self, reference: Reference, to_ns: u64) -> Result<(), Error> {
        match self.pending.get_mut(&reference) {
            Some(Pending::Timeout { at_ns, .. }) => {
                self.timeouts.remove(&(*at_ns, reference));
                *at_ns = to_ns;
                self.timeouts.insert((to_ns, reference), ());
                Ok(())
            }
            _ => Err(Error::NotPending),
        }
    }

    /// Returns the instant of the next time-out; `None` if none is pending.
    #[inline]
    pub(crate) fn next_timeout_ns(&self) -> Option<u64> {
        self.timeouts.first_key_value().map(|((at, _), ())| *at)
    }

    /// Queues the signals of expired time-outs; they come from `own`, the endpoint itself.
    pub(crate) fn expire(&mut self, now_ns: u64, own: Spid) {
        while let Some(entry) = self.timeouts.first_entry() {
            let (at, reference) = *entry.key();
            if at > now_ns {
                return;
            }
            entry.remove();
            if let Some(Pending::Timeout { signal, .. }) =
                self.settle(reference, RequestKind::Timeout)
            {
                self.push(signal.from(own), Some(reference));
            }
        }
    }

    /// Cancels a request. Returns true if it was pending, false if its signal was already queued and has been removed;
    /// fails with [`Error::NotPending`] otherwise.
    pub(crate) fn cancel(
        &mut self,
        reference: Reference,
        kind: RequestKind,
    ) -> Result<bool, Error> {
        if let Some(pending) = self.settle(reference, kind) {
            if let Pending::Timeout { at_ns, .. } = pending {
                self.timeouts.remove(&(at_ns, reference));
            }
            return Ok(true);
        }
        let at = self.queue.iter().position(|item| item.answers == Some(reference));
        self.remove(at.ok_or(Error::NotPending)?);
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
