//! Slots that two ends use in turn: the sender knows which are free because the receiver reports how many messages it
//! has taken, each time these are half as many as there are slots.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, socket};

use super::byte_stream::send_error;
use super::waiting::{Attempt, Patience, wait_for};
use crate::contract::facts_of;
use crate::{Facts, SendError, Spec, Wait};

/// Total size in bytes of a direction's slots, unless a capacity is requested or this size would give too few slots.
const DEFAULT_BYTES: usize = 1 << 20;

/// Minimum number of slots. With fewer, the two ends could not work at the same time.
const FEWEST_SLOTS: usize = 4;
/// Maximum number of slots. More notices might not fit into the socket's buffer, and the sender never waits for room
/// there. Also, a memfd in flight counts as an open file.
const MOST_SLOTS: usize = 64;

/// The layout of a direction's slots. Both ends compute the same layout from the same spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of slots, which is the maximum number of messages in flight.
    pub(crate) slots: usize,
    /// Distance in bytes between slots, a multiple of the page size.
    pub(crate) slot_bytes: usize,
    /// Largest message in bytes.
    pub(crate) max: usize,
}

impl Layout {
    /// Computes the layout for messages of the spec's size that follow a header of `header` bytes.
    pub(crate) fn of(spec: &Spec, header: usize) -> Self {
        let page = crossway_sys::shm::page_len();
        let slot_bytes = (header + spec.max_message).max(1).next_multiple_of(page);
        let bytes = spec.capacity_bytes.unwrap_or(DEFAULT_BYTES);
        let slots = (bytes / slot_bytes).clamp(FEWEST_SLOTS, MOST_SLOTS);
        Layout { slots, slot_bytes, max: spec.max_message }
    }

    /// The facts of a half with this layout.
    pub(crate) fn facts(self) -> Facts {
        facts_of([("max_message_bytes", self.max), ("queue_messages", self.slots)])
    }
}

/// The sender's count of its slots.
#[derive(Debug)]
pub(crate) struct Slots {
    count: u64,
    sent: u64,
    taken: u64,
}

impl Slots {
    /// All slots are free.
    pub(crate) fn new(layout: Layout) -> Self {
        Slots { count: layout.slots as u64, sent: 0, taken: 0 }
    }

    /// Whether no slot is free.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.sent - self.taken >= self.count
    }

    /// The number of the next message, from 0.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.sent
    }

    /// The index of its slot.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        (self.sent % self.count) as usize
    }

    /// The next message was sent.
    #[inline]
    pub(crate) fn used(&mut self) {
        self.sent += 1;
    }

    /// The receiver reports that it has taken so many messages. An error if that is impossible: the channel is unusable.
    #[inline]
    pub(crate) fn note(&mut self, taken: u64) -> Result<(), SendError> {
        if !(self.taken..=self.sent).contains(&taken) {
            return Err(SendError::PeerClosed);
        }
        self.taken = taken;
        Ok(())
    }

    /// Waits until a slot is free, for reports that arrive on a socket.
    #[inline]
    pub(crate) fn wait_for_free(
        &mut self,
        socket: BorrowedFd<'_>,
        wait: Wait,
        patience: Patience,
    ) -> Result<(), SendError> {
        while self.is_full() {
            let taken = wait_for(&mut Acknowledgement(socket), wait, patience);
            self.note(taken.map_err(send_error)?)?;
        }
        Ok(())
    }
}

/// The receiver's count of what it has taken and reported.
#[derive(Debug)]
pub(crate) struct Reports {
    slots: u64,
    taken: u64,
    reported: u64,
}

impl Reports {
    /// Nothing was taken.
    pub(crate) fn new(layout: Layout) -> Self {
        Reports { slots: layout.slots as u64, taken: 0, reported: 0 }
    }

    /// The number of the next message, from 0.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.taken
    }

    /// The index of its slot.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        (self.taken % self.slots) as usize
    }

    /// The next message was taken. `report` gets what is to be reported, if it is time for that.
    #[inline]
    pub(crate) fn taken(&mut self, report: impl FnOnce(u64)) {
        self.taken += 1;
        if self.taken - self.reported >= self.slots / 2 {
            report(self.taken);
            self.reported = self.taken;
        }
    }

    /// The same; the sender looks for reports on a socket.
    #[inline]
    pub(crate) fn taken_over(&mut self, socket: &impl AsFd) {
        self.taken(|taken| {
            // Fails only if the sender has ended. The socket's buffer has room for two.
            let _ = socket::send(socket, &taken.to_ne_bytes(), false);
        });
    }
}

/// Waiting for an acknowledgement on a socket: how many messages were taken so far.
struct Acknowledgement<'a>(BorrowedFd<'a>);

impl Attempt for Acknowledgement<'_> {
    type Out = u64;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<u64, Errno> {
        let mut taken = [0; 8];
        match socket::recv(self.0, &mut taken, nonblocking)? {
            8 => Ok(u64::from_ne_bytes(taken)),
            _ => Err(Errno::PIPE),
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.0, Interest::Readable, Some(until)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_when_all_slots_are_used_and_refuses_an_impossible_report() {
        let mut slots = Slots::new(Layout { slots: 4, slot_bytes: 4096, max: 64 });
        for number in 0..4 {
            assert!(!slots.is_full() && slots.next() == number);
            slots.used();
        }
        assert!(slots.is_full() && slots.number() == 4);
        slots.note(2).unwrap();
        assert!(!slots.is_full() && slots.next() == 0);
        for impossible in [1, 5] {
            assert!(matches!(slots.note(impossible), Err(SendError::PeerClosed)), "{impossible}");
        }
    }

    #[test]
    fn a_receiver_reports_each_time_it_has_taken_half_of_the_slots() {
        let mut reports = Reports::new(Layout { slots: 4, slot_bytes: 4096, max: 64 });
        let mut seen = Vec::new();
        (0..7).for_each(|_| reports.taken(|taken| seen.push(taken)));
        assert_eq!(seen, [2, 4, 6]);
        assert_eq!((reports.number(), reports.next()), (7, 3));
    }

    #[test]
    fn the_slots_fit_the_capacity_within_bounds() {
        let of = |max_message, capacity_bytes| {
            let layout = Layout::of(&Spec { max_message, capacity_bytes, ..Spec::default() }, 64);
            (layout.slots, layout.slot_bytes)
        };
        let page = crossway_sys::shm::page_len();
        assert_eq!(of(64, None), ((DEFAULT_BYTES / page).min(MOST_SLOTS), page));
        let larger = 64 * 1024 + page;
        assert_eq!(of(64 * 1024, None), (DEFAULT_BYTES / larger, larger));
        assert_eq!(of(64 * 1024, Some(1)), (FEWEST_SLOTS, larger));
        assert_eq!(of(page - 64, Some(10 * page)), (10, page));
        assert_eq!(of(16 << 20, None).0, FEWEST_SLOTS);
    }
}
