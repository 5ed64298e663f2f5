//! `userfaultfd`: the receiver reads memory that is not there and sleeps in the page fault; the
//! sender resolves it, by copying pages out of its own memory into the receiver's (UFFDIO_COPY).
//! This is how virtual machines get their memory after they have moved.
//!
//! A message has whole pages, of which the first begins with its header. A message of up to a page
//! costs one system call at the sender (`ioctl`), a longer one two, because the page with the
//! header comes last. The receiver makes one (`madvise`), which removes the pages, and a page fault
//! if it waits. Each end makes one more for an acknowledgement, which the receiver sends each time
//! it has taken half as many messages as there are slots.
//!
//! The kernel knows no time limit for a page fault. So a receiver with a deadline looks from time
//! to time whether the page is there.
//!
//! The sender holds the only descriptor of the receiver's memory. When the sender ends, the kernel
//! closes it and lets the receiver read zeros. This descriptor gives its holder power over the
//! memory of the receiver, so each end must trust the other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_ring::layout::{self, HEADER, MAX_PAYLOAD, payload_len};
use crossway_sys::poll::{Interest, is_hung_up, wait_ready};
use crossway_sys::shm::page_len;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::userfault::{Filler, REMEDY, Window};
use crossway_sys::{Errno, OsError, fdpass};

use crate::building_blocks::byte_stream::recv_error;
use crate::building_blocks::complete::no_second_channel;
use crate::building_blocks::in_place::{Put, Take};
use crate::building_blocks::message_socket::check_limit;
use crate::building_blocks::slots::{Layout, Reports, Slots};
use crate::building_blocks::waiting::{Attempt, Patience, Stop, wait_for};
use crate::self_test::exchange_a_byte;
use crate::{
    Caps, Carrier, Deadline, Facts, Family, Listener, Mechanism, Offer, OpenError, Probe,
    RecvError, SendError, Spec, Transport, Wait,
};

/// The mechanism `userfaultfd`.
#[derive(Debug)]
pub struct Userfaultfd;

/// The times between two looks of a receiver with a deadline: from the first, doubled up to the
/// last.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(10)];

/// A receiver that does not wait asks the kernel this often whether the sender is alive.
const ASK_EVERY: u32 = 64;

/// The sending half: a message in its own memory, and the descriptor of the receiver's.
#[derive(Debug)]
pub struct UserfaultfdTx {
    filler: Filler,
    /// Header and message, as the receiver will find them.
    pages: Vec<u8>,
    socket: OwnedFd,
    layout: Layout,
    wait: Wait,
    slots: Slots,
}

impl UserfaultfdTx {
    fn new(filler: Filler, socket: OwnedFd, layout: Layout, wait: Wait) -> Self {
        let pages = vec![0; layout.slot_bytes];
        UserfaultfdTx { filler, pages, socket, layout, wait, slots: Slots::new(layout) }
    }
}

impl Put for UserfaultfdTx {
    #[inline]
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if len > self.layout.max {
            return Err(SendError::TooLarge { len, max: self.layout.max });
        }
        self.slots.wait_for_free(self.socket.as_fd(), self.wait, patience)?;
        self.pages[..HEADER]
            .copy_from_slice(&layout::header(self.slots.number(), len).to_ne_bytes());
        fill(&mut self.pages[HEADER..HEADER + len]);
        let slot = self.slots.next() * self.layout.slot_bytes;
        let (page, whole) = (page_len(), pages_of(len));
        self.filler
            .fill(slot + page, &self.pages[page..whole])
            .and_then(|()| self.filler.fill(slot, &self.pages[..page]))
            .map_err(|errno| match errno {
                // The memory or its process is gone.
                Errno::NOENT | Errno::SRCH => SendError::PeerClosed,
                errno => OsError::new("ioctl", "UFFDIO_COPY", errno).into(),
            })?;
        self.slots.used();
        Ok(())
    }

    fn sizes(&self) -> Facts {
        self.layout.facts()
    }
}

/// Number of bytes in the pages of a message with its header.
#[inline]
fn pages_of(len: usize) -> usize {
    (HEADER + len).next_multiple_of(page_len())
}

/// The receiving half: memory that the sender fills.
#[derive(Debug)]
pub struct UserfaultfdRx {
    window: Window,
    socket: OwnedFd,
    layout: Layout,
    wait: Wait,
    reports: Reports,
    /// Attempts in vain since the last message.
    empties: u32,
    nap: Duration,
}

/// Waiting for the header of the next message; 0 if the sender has ended.
struct Arrival<'a>(&'a mut UserfaultfdRx);

impl Attempt for Arrival<'_> {
    type Out = u64;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<u64, Errno> {
        let rx = &mut *self.0;
        let slot = rx.slot();
        if nonblocking && !rx.window.has(slot)? {
            let asks = rx.empties.is_multiple_of(ASK_EVERY);
            rx.empties = rx.empties.wrapping_add(1);
            // Without a sender, the page is zeros at once.
            if !asks || !is_hung_up(&rx.socket)? {
                return Err(Errno::AGAIN);
            }
        }
        Ok(rx.window.word(slot))
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        let rx = &mut *self.0;
        // The socket is readable only when the sender has ended.
        let nap = Instant::now() + rx.nap;
        wait_ready(&rx.socket, Interest::Readable, Some(nap.min(until)))?;
        rx.nap = (2 * rx.nap).min(NAPS[1]);
        rx.empties = 0;
        Ok(())
    }
}

impl UserfaultfdRx {
    fn new(window: Window, socket: OwnedFd, layout: Layout, wait: Wait) -> Self {
        let (reports, nap) = (Reports::new(layout), NAPS[0]);
        UserfaultfdRx { window, socket, layout, wait, reports, empties: 0, nap }
    }

    /// Offset of the next message in the window.
    #[inline]
    fn slot(&self) -> usize {
        self.reports.next() * self.layout.slot_bytes
    }
}

impl Take for UserfaultfdRx {
    #[inline]
    fn take<R>(
        &mut self,
        room: usize,
        patience: Patience,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let wait = self.wait;
        self.nap = NAPS[0];
        let word = match wait_for(&mut Arrival(self), wait, patience) {
            Ok(0) => return Err(RecvError::PeerClosed),
            Ok(word) => word,
            Err(Stop::Errno(errno)) => return Err(OsError::new("mincore", "", errno).into()),
            Err(stop) => return Err(recv_error(stop)),
        };
        let len = match payload_len(word, self.reports.number()) {
            Some(len) if len <= self.layout.max => len,
            _ => {
                return Err(RecvError::Damaged(format!(
                    "the page of message {} begins with {word:#018x}, which is not the header of a \
                     message of up to {} bytes",
                    self.reports.number(),
                    self.layout.max
                )));
            }
        };
        if len > room {
            return Err(RecvError::TooSmall { need: len, have: room });
        }
        let start = self.slot();
        let result = read(self.window.bytes(start + HEADER..start + HEADER + len));
        self.window
            .empty(start, pages_of(len))
            .map_err(|e| OsError::new("madvise", "MADV_DONTNEED", e))?;
        self.empties = 0;
        self.reports.taken_over(&self.socket);
        Ok(result)
    }

    /// None: a page that appears wakes no poll.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn sizes(&self) -> Facts {
        self.layout.facts()
    }
}

fn layout(spec: &Spec) -> Result<Layout, OpenError> {
    check_limit(Userfaultfd::ID, spec, MAX_PAYLOAD, "request smaller messages")?;
    Ok(Layout::of(spec, HEADER))
}

/// Creates the memory of a receiving half.
fn window(layout: Layout) -> Result<(Window, OwnedFd), OpenError> {
    Ok(Window::new(layout.slots * layout.slot_bytes)?)
}

/// The listening side, which gets the descriptor of the peer's memory only once that has connected.
#[derive(Debug)]
pub struct UserfaultfdListener {
    /// The sockets of the sending and of the receiving half, and the memory.
    parts: Option<(OwnedFd, OwnedFd, Window)>,
    layout: Layout,
    spec: Spec,
}

impl Listener for UserfaultfdListener {
    type Tx = UserfaultfdTx;
    type Rx = UserfaultfdRx;

    fn accept(&mut self, until: Deadline) -> Result<(UserfaultfdTx, UserfaultfdRx), OpenError> {
        let Some((write, ..)) = &self.parts else { return Err(no_second_channel(Userfaultfd::ID)) };
        let until = until.or(Some(Instant::now() + self.spec.open_timeout));
        let start = Instant::now();
        let failed = |e| OsError::new("recvmsg", "descriptor of the peer's memory", e);
        if !wait_ready(write, Interest::Readable, until).map_err(failed)? {
            let waited = start.elapsed();
            return Err(OpenError::TimedOut { mechanism: Userfaultfd::ID, waited });
        }
        let (mut address, mut fds) = ([0; 8], Vec::new());
        fdpass::receive(write, &mut address, &mut fds, true).map_err(failed)?;
        let fd = fds.pop().ok_or_else(|| failed(Errno::CONNRESET))?;
        let filler = Filler::new(fd, u64::from_ne_bytes(address));
        let Some((write, read, window)) = self.parts.take() else {
            return Err(no_second_channel(Userfaultfd::ID));
        };
        Ok((
            UserfaultfdTx::new(filler, write, self.layout, self.spec.wait),
            UserfaultfdRx::new(window, read, self.layout, self.spec.wait),
        ))
    }
}

impl Mechanism for Userfaultfd {
    const ID: &'static str = "userfaultfd";
    const ABOUT: &'static str = "the receiver sleeps in a page fault, and the sender copies the page \
         into its memory (UFFDIO_COPY)";
    const CARRIER: Carrier = Carrier::new(Family::Other, Transport::Memory).copied_once();
    type Tx = UserfaultfdTx;
    type Rx = UserfaultfdRx;
    type Listener = UserfaultfdListener;

    fn caps() -> Caps {
        Caps { max_message: Some(MAX_PAYLOAD), in_place: true, ..Caps::PLAIN }
    }

    fn probe() -> Probe {
        Probe::of_kernel(exchange_a_byte::<Self>(), REMEDY)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let layout = layout(spec)?;
        let (window, fd) = window(layout)?;
        let (write, their_read) = socket::unix_pair(SocketType::Seqpacket)?;
        let (read, their_write) = socket::unix_pair(SocketType::Seqpacket)?;
        let offer = Offer::new()
            .with_word("address", window.address())
            .with_word("slot_bytes", layout.slot_bytes)
            .with_word("slots", layout.slots)
            .with_fd("memory", fd)
            .with_fd("read", their_read)
            .with_fd("write", their_write);
        let parts = Some((write, read, window));
        Ok((UserfaultfdListener { parts, layout, spec: spec.clone() }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let layout = layout(spec)?;
        let size: [usize; 2] =
            [offer.word(Self::ID, "slots")?, offer.word(Self::ID, "slot_bytes")?];
        if size != [layout.slots, layout.slot_bytes] {
            let why = format!(
                "the listening end has {} slots of {} bytes, but this end {} of {}; both ends must be \
                 opened with the same settings",
                size[0], size[1], layout.slots, layout.slot_bytes
            );
            return Err(OpenError::BadOffer { mechanism: Self::ID, why });
        }
        let address: u64 = offer.word(Self::ID, "address")?;
        let mut take = |name| offer.take_fd(Self::ID, name);
        let filler = Filler::new(take("memory")?, address);
        let (read, write) = (take("read")?, take("write")?);
        let (window, fd) = window(layout)?;
        fdpass::send(&read, &window.address().to_ne_bytes(), &[fd.as_fd()])?;
        // Only the sender holds it from now on.
        drop(fd);
        Ok((
            UserfaultfdTx::new(filler, write, layout, spec.wait),
            UserfaultfdRx::new(window, read, layout, spec.wait),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_different_settings_do_not_meet() {
        if let Probe::Missing(missing) = Userfaultfd::probe() {
            return eprintln!("SKIP userfaultfd: {missing}");
        }
        let (_listener, mut offer) = Userfaultfd::listen(&Spec::default()).unwrap();
        let other = Spec { max_message: 1 << 20, ..Spec::default() };
        let refused = Userfaultfd::connect(&other, &mut offer);
        assert!(matches!(refused, Err(OpenError::BadOffer { .. })));
    }
}
