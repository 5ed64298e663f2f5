//! A connected program: its control connection and its region of shared words.

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
    /// `None` once the program has closed it.
    pub(super) control: Option<OwnedFd>,
    pub(super) credentials: Option<Credentials>,
    region: Option<(SharedWords, OwnedFd)>,
    slots: u32,
    free: Vec<u32>,
    next: u32,
    /// Number of descriptors sent with the last answer that it may not have received.
    pub(super) in_flight: usize,
    /// It has sent a request before receiving its last answer: the request is read when it has received the answer.
    pub(super) held: bool,
    /// No further requests are accepted; its entry is kept until its answers have been received or discarded.
    pub(super) ended: bool,
    /// Set if it occupies one of the connections reserved for operators, with the reason.
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

    /// Whether it has sent its hello.
    pub(super) const fn is_greeted(&self) -> bool {
        self.region.is_some()
    }

    /// Whether it has received all answers.
    pub(super) fn has_received(&self) -> bool {
        // If the descriptor cannot be queried, assume that it has.
        self.control.as_ref().is_none_or(|control| socket::is_all_received(control).unwrap_or(true))
    }

    /// Creates its region and returns the descriptor for the program.
    pub(super) fn greet(&mut self, slots: u32) -> Result<OwnedFd, OsError> {
        let (region, fd) = SharedWords::create("tipcd-slots", slots as usize * slot::WORDS)?;
        let theirs = fd.try_clone().map_err(|e| OsError::new("dup", "slots", e))?;
        (self.region, self.slots) = (Some((region, fd)), slots);
        Ok(theirs)
    }

    /// The descriptor of its region for another program, with its number of slots.
    pub(super) fn share_region(&self) -> Option<(OwnedFd, u32)> {
        let (_, fd) = self.region.as_ref()?;
        Some((fd.try_clone().ok()?, self.slots))
    }

    /// Number of its sockets.
    pub(super) fn sockets(&self) -> usize {
        self.next as usize - self.free.len()
    }

    /// Allocates a slot, with all words 0; `None` if the program has the maximum number of sockets.
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

    /// Reads a word written by the program. It may hold any value, so the caller must check it.
    pub(super) fn load(&self, slot: u32, word: usize) -> u64 {
        self.region.as_ref().map_or(0, |(region, _)| {
            region.word(slot as usize * slot::WORDS + word).load(Ordering::Acquire)
        })
    }

    /// The program's count of messages taken from a slot's descriptor. It may be any value, so the caller must check it.
    pub(super) fn consumed(&self, slot: u32) -> u64 {
        self.load(slot, slot::CONSUMED)
    }
}
