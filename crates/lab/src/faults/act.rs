//! Performs an act: what a role has to do with its channel while a fault is injected into the role or its peer.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crossway_loops::Loops;
use crossway_mech::erased::{AnyRx, AnyTx};
use crossway_mech::{Boundaries, RecvError, SendError};
use crossway_sys::clock::monotonic_ns;
use crossway_sys::{OsError, shm};

use super::message::{self, Sorter};
use crate::control::{Act, ActResult, ReportedError};
use crate::role::RoleError;

/// A channel that accepts this many messages without becoming full is considered never to become full.
const NEVER_FULL: u64 = 20_000;

/// A receiver stops after this number of messages that are too long for its buffer.
const REFUSALS: u32 = 8;

/// How long a sender waits for room in [`Act::FillThenWait`].
pub(super) const WAIT_FOR_ROOM: Duration = Duration::from_millis(50);

/// Progress of an act, stored where the controller can read it even after the role has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// One of the values in [`phase`].
    pub(super) phase: u64,
    /// Number of messages that the channel accepted for sending.
    pub(super) sent: u64,
    /// Number of received messages that had been sent, each counted once.
    pub(super) received: u64,
    /// Number of all other received messages: wrong content, wrong length, or duplicates.
    pub(super) not_sent: u64,
}

/// Phases of an act.
pub(super) mod phase {
    /// The first call is about to be made.
    pub(crate) const BEGUN: u64 = 1;
    /// The channel is full, or the role holds a message that it has begun to write or read in place.
    pub(crate) const REACHED: u64 = 2;
    /// The channel never became full.
    pub(crate) const NEVER: u64 = 3;
    /// A send failed before the channel was full.
    pub(crate) const FAILED: u64 = 4;
}

/// Creates the file in which a role stores its progress.
pub(super) fn progress_file() -> Result<OwnedFd, OsError> {
    shm::create_sealed("crossway-progress", shm::page_len())
}

impl Progress {
    /// Reads the progress from the file.
    pub(super) fn read(file: &OwnedFd) -> Progress {
        let mut bytes = [0; 32];
        if let Ok(fd) = file.as_fd().try_clone_to_owned() {
            let _ = File::from(fd).read_exact_at(&mut bytes, 0);
        }
        let (words, _) = bytes.as_chunks::<8>();
        let [phase, sent, received, not_sent] = [0, 1, 2, 3].map(|n| u64::from_le_bytes(words[n]));
        Progress { phase, sent, received, not_sent }
    }

    fn write(&self, file: &File) {
        let mut bytes = [0; 32];
        let words = [self.phase, self.sent, self.received, self.not_sent];
        for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *at = word.to_le_bytes();
        }
        let _ = file.write_all_at(&bytes, 0);
    }
}

/// A role that performs an act: its channel, its progress, and the result so far.
struct Actor<'a> {
    tx: &'a mut dyn AnyTx,
    rx: &'a mut dyn AnyRx,
    size: usize,
    file: File,
    progress: Progress,
    seen: ActResult,
}

/// Performs an act on the role's first channel.
pub(crate) fn perform(
    role: &mut Loops,
    act: Act,
    fds: Vec<OwnedFd>,
) -> Result<ActResult, RoleError> {
    let file = fds.into_iter().next().ok_or_else(|| {
        RoleError::Wrong("the order to act has no descriptor for the progress".into())
    })?;
    let size = role.task().inputs.size_bytes as usize;
    let streams = role.caps().boundaries == Boundaries::Stream;
    let (tx, rx) = role.halves(0).ok_or_else(|| {
        RoleError::Wrong("the order to act came before a channel was open".into())
    })?;
    let file = File::from(file);
    let progress = Progress::default();
    let mut actor = Actor { tx, rx, size, file, progress, seen: ActResult::default() };
    actor.phase(phase::BEGUN);
    match act {
        Act::Send { messages, gap_us } => actor.send(messages, gap_us),
        Act::Receive { messages, buffer_bytes } => {
            actor.size = buffer_bytes.map_or(size, |bytes| bytes as usize);
            actor.receive(messages, streams);
        }
        Act::FillUp => {
            if actor.fill_up() {
                actor.send(None, 0);
            }
        }
        Act::FillThenWait => {
            if actor.fill_up() {
                actor.wait_for_room();
            }
        }
        Act::Flush => {
            let begin = monotonic_ns();
            if let Err(error) = actor.tx.flush() {
                actor.record_error("send", &error, matches!(error, SendError::PeerClosed), begin);
            }
        }
        Act::HoldWriting => actor.hold_writing(),
        Act::HoldReading => actor.hold_reading(),
        Act::SendLength { bytes } => actor.send_length(bytes as usize),
    }
    Ok(actor.seen)
}

impl Actor<'_> {
    fn phase(&mut self, phase: u64) {
        self.progress.phase = phase;
        self.progress.write(&self.file);
    }

    /// Stores an error in the result if it is the act's first.
    fn record_error(
        &mut self,
        call: &str,
        error: &dyn std::fmt::Display,
        peer_closed: bool,
        begin_ns: u64,
    ) {
        let at_ns = monotonic_ns();
        let took_ns = at_ns - begin_ns;
        let (call, error) = (call.to_owned(), error.to_string());
        self.seen.error.get_or_insert(ReportedError { call, error, peer_closed, at_ns, took_ns });
    }

    fn record_send_error(&mut self, error: &SendError, begin_ns: u64) {
        self.record_error("send", error, matches!(error, SendError::PeerClosed), begin_ns);
    }

    fn send(&mut self, messages: Option<u64>, gap_us: u32) {
        let mut message = vec![0; self.size];
        let gap = Duration::from_micros(gap_us.into());
        while messages.is_none_or(|messages| self.progress.sent < messages) {
            message::fill(&mut message, self.progress.sent);
            let begin = monotonic_ns();
            if let Err(error) = self.tx.send(&message, None).and_then(|()| self.tx.flush()) {
                return self.record_send_error(&error, begin);
            }
            self.progress.sent += 1;
            self.progress.write(&self.file);
            if !gap.is_zero() {
                std::thread::sleep(gap);
            }
        }
    }

    fn receive(&mut self, messages: Option<u64>, streams: bool) {
        let mut sorter = Sorter::new(self.size);
        let mut buffer = vec![0; self.size];
        let mut refusals = 0;
        while messages.is_none_or(|messages| sorter.received < messages) {
            let begin = monotonic_ns();
            match self.rx.recv(&mut buffer, None) {
                Ok(len) => sorter.take(&buffer[..len]),
                Err(error) => {
                    self.record_error(
                        "receive",
                        &error,
                        matches!(error, RecvError::PeerClosed),
                        begin,
                    );
                    refusals += 1;
                    let goes_on = matches!(error, RecvError::TooSmall { .. }) && !streams;
                    if !goes_on || refusals == REFUSALS {
                        return;
                    }
                }
            }
            self.progress.received = sorter.received;
            self.progress.not_sent = sorter.not_sent;
            self.progress.write(&self.file);
        }
    }

    /// Sends until the channel is full. Returns false if a send fails, or if the channel never becomes full.
    fn fill_up(&mut self) -> bool {
        let mut message = vec![0; self.size];
        while self.progress.sent < NEVER_FULL {
            message::fill(&mut message, self.progress.sent);
            let begin = monotonic_ns();
            match self.tx.try_send(&message) {
                Ok(()) => self.progress.sent += 1,
                Err(SendError::Full) => {
                    self.phase(phase::REACHED);
                    return true;
                }
                Err(error) => {
                    self.record_send_error(&error, begin);
                    self.phase(phase::FAILED);
                    return false;
                }
            }
        }
        self.phase(phase::NEVER);
        false
    }

    fn wait_for_room(&mut self) {
        let mut message = vec![0; self.size];
        message::fill(&mut message, self.progress.sent);
        let begin = monotonic_ns();
        match self.tx.send(&message, Some(Instant::now() + WAIT_FOR_ROOM)) {
            Ok(()) => {
                self.progress.sent += 1;
                self.progress.write(&self.file);
            }
            Err(error) => {
                let in_time = Duration::from_nanos(monotonic_ns() - begin);
                self.seen.deadline_kept = Some(in_time < WAIT_FOR_ROOM + Duration::from_secs(1));
                self.record_send_error(&error, begin);
            }
        }
    }

    fn hold_writing(&mut self) {
        let mut scratch = vec![0; self.size];
        let (size, file, mut progress) = (self.size, &self.file, self.progress);
        let _ = self.tx.send_in_place(size, &mut scratch, &mut |room| {
            message::fill(room, 0);
            progress.phase = phase::REACHED;
            progress.write(file);
            park_for_ever()
        });
    }

    fn hold_reading(&mut self) {
        let mut scratch = vec![0; self.size];
        let (file, mut progress) = (&self.file, self.progress);
        let begin = monotonic_ns();
        let held = self.rx.recv_in_place(&mut scratch, &mut |_| {
            progress.phase = phase::REACHED;
            progress.write(file);
            park_for_ever()
        });
        if let Err(error) = held {
            self.record_error("receive", &error, matches!(error, RecvError::PeerClosed), begin);
        }
    }

    fn send_length(&mut self, len: usize) {
        let mut message = vec![0; len];
        message::fill(&mut message, u64::MAX >> 1);
        let begin = monotonic_ns();
        match self.tx.send(&message, None).and_then(|()| self.tx.flush()) {
            Ok(()) => {
                self.progress.sent += 1;
                self.progress.write(&self.file);
            }
            Err(error) => self.record_send_error(&error, begin),
        }
    }
}

/// Waits until the process is killed.
fn park_for_ever() {
    loop {
        std::thread::park();
    }
}
