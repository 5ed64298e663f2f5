//! A connected program: its control connection, and the shared memory that contains the state of its sockets.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crossway_sys::OsError;
use crossway_sys::socket::{self, Credentials};
use crossway_sys::words::SharedWords;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::slot::{self, State};

/// A program that uses the node. It exists as long as its control connection or one of its sockets is open.
#[derive(Debug)]
pub(super) struct Client {
    /// The control connection; `None` after the program has closed it.
    pub(super) control: Option<OwnedFd>,
    pub(super) credentials: Option<Credentials>,
    region: Option<(SharedWords, OwnedFd)>,
    slots: u32,
    free: Vec<u32>,
    next: u32,
    /// Number of descriptors in answers that the program may not have received yet.
    pub(super) in_flight: usize,
    /// Whether the program has sent a request before receiving the last answer. The request is read when that answer
    /// has been received.
    pub(super) held: bool,
    /// Whether no further requests are accepted. The program's entry is kept until its answers have been received or
    /// discarded.
    pub(super) ended: bool,
    /// The reason why the program did not get a normal connection, if it occupies a connection reserved for operators.
    pub(super) kept_place: Option<Refusal>,
}

impl Client {
    pub(super) fn new(
        control: OwnedFd,
        credentials: Option<Credentials>,
        kept_place: Option<Refusal>,
    ) -> Self {
        Self {
            control: Some(control),
            credentials,
            region: None,
            slots: 0,
            free: Vec::new(),
            next: 0,
            in_flight: 0,
            held: false,
            ended: false,
            kept_place,
        }
    }

    /// Whether the program has sent its hello, the first request on a control connection.
    pub(super) const fn is_greeted(&self) -> bool {
        self.region.is_some()
    }

    /// Whether the program has received all answers.
    pub(super) fn has_received(&self) -> bool {
        // If the descriptor cannot be queried, assume that it has.
        self.control.as_ref().is_none_or(|control| socket::is_all_received(control).unwrap_or(true))
    }

    /// Creates the shared memory for this number of slots, one per socket, and returns the descriptor for the program.
    pub(super) fn greet(&mut self, slots: u32) -> Result<OwnedFd, OsError> {
        let (region, fd) = SharedWords::create("tipcd-slots", slots as usize * slot::WORDS)?;
        let theirs = fd.try_clone().map_err(|e| OsError::new("dup", "slots", e))?;
        (self.region, self.slots) = (Some((region, fd)), slots);
        Ok(theirs)
    }

    /// Returns a duplicate of the descriptor of the shared memory, to be passed to another program, and the number of
    /// slots; `None` if there is no memory yet or no free descriptor.
    pub(super) fn share_region(&self) -> Option<(OwnedFd, u32)> {
        let (_, fd) = self.region.as_ref()?;
        Some((fd.try_clone().ok()?, self.slots))
    }

    /// Number of sockets of this program.
    pub(super) fn sockets(&self) -> usize {
        self.next as usize - self.free.len()
    }

    /// Allocates a slot and sets all its words to 0. Returns `None` if the program has the maximum number of sockets.
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.next < self.slots => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        for word in 0..slot::WORDS {
            self.store(slot, word, 0);
        }
        Some(slot)
    }

    pub(super) fn free_slot(&mut self, slot: u32) {
        self.free.push(slot);
    }

    pub(super) fn store(&self, slot: u32, word: usize, value: u64) {
        if let Some((region, _)) = &self.region {
            region.word(slot as usize * slot::WORDS + word).store(value, Ordering::Release);
        }
    }

    pub(super) fn set_state(&self, slot: u32, state: State) {
        self.store(slot, slot::STATE, state.encode());
    }

    /// Reads a word that the program writes in a slot. It may hold any value, so the caller must check it.
    pub(super) fn load(&self, slot: u32, word: usize) -> u64 {
        self.region.as_ref().map_or(0, |(region, _)| {
            region.word(slot as usize * slot::WORDS + word).load(Ordering::Acquire)
        })
    }

    /// Returns the program's own count of the messages that it has taken from a slot's descriptor. It may be any value,
    /// so the caller must check it.
    pub(super) fn consumed(&self, slot: u32) -> u64 {
        self.load(slot, slot::CONSUMED)
    }
}
