//! The table of those descriptors of the process that are TIPC sockets.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use std::time::Duration;

use crossway_sys::spin::{self, Attempts};
use crossway_tipc_client::SocketKind;

use crate::socket::Handle;

/// How long a reader waits for a writer that was interrupted in the middle of its few stores.
const WRITTEN_BY_THEN: Duration = Duration::from_micros(2500);
/// Number of descriptors in a part of the table. The first part is allocated statically.
const PART: usize = 4096;
/// Number of parts: enough for the default upper limit of descriptors per process (fs.nr_open).
const PARTS: usize = 256;

/// The entry of a descriptor. Readers acquire no lock: `turn` is odd while a thread writes, and changes with every
/// write.
struct Entry {
    turn: AtomicU32,
    /// The socket's kind, with the index of its region in the upper 24 bits; 0 if the descriptor is not a TIPC socket.
    what: AtomicU32,
    slot: AtomicU32,
    token: AtomicU64,
}

impl Entry {
    const fn empty() -> Self {
        Self {
            turn: AtomicU32::new(0),
            what: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            token: AtomicU64::new(0),
        }
    }

    #[cold]
    fn read(&self, fd: c_int) -> Option<Handle> {
        // A writer has signals blocked and does not wait. In a child forked during a write, the write is never
        // completed.
        let mut attempts = Attempts::lasting(WRITTEN_BY_THEN);
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let what = self.what.load(Ordering::Relaxed);
            let slot = self.slot.load(Ordering::Relaxed);
            let token = self.token.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if turn.is_multiple_of(2) && turn == self.turn.load(Ordering::Relaxed) {
                let kind = SocketKind::from_number(what & 0xff)?;
                return Some(Handle { fd, kind, region: what >> 8, slot, token });
            }
            if !attempts.go_on() {
                return None;
            }
        }
    }

    fn write(&self, handle: Option<&Handle>) {
        let mut turn = self.turn.load(Ordering::Relaxed);
        loop {
            if turn.is_multiple_of(2) {
                let taken = self.turn.compare_exchange(
                    turn,
                    turn.wrapping_add(1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                match taken {
                    Ok(_) => break,
                    Err(now) => turn = now,
                }
            } else {
                spin::hint();
                turn = self.turn.load(Ordering::Relaxed);
            }
        }
        fence(Ordering::Release);
        let what = handle.map_or(0, |h| h.kind as u32 | h.region << 8);
        let before = self.what.swap(what, Ordering::Relaxed);
        self.slot.store(handle.map_or(0, |h| h.slot), Ordering::Relaxed);
        self.token.store(handle.map_or(0, |h| h.token), Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(2), Ordering::Release);
        match (before, what) {
            (0, 0) => {}
            (0, _) => {
                COUNT.fetch_add(1, Ordering::Relaxed);
            }
            (_, 0) => {
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

static FIRST: [Entry; PART] = [const { Entry::empty() }; PART];
static OTHERS: [OnceLock<Box<[Entry]>>; PARTS - 1] = [const { OnceLock::new() }; PARTS - 1];
static COUNT: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn entry(fd: c_int) -> Option<&'static Entry> {
    let fd = usize::try_from(fd).ok()?;
    match FIRST.get(fd) {
        Some(entry) => Some(entry),
        None => OTHERS.get(fd / PART - 1)?.get()?.get(fd % PART),
    }
}

/// The socket of a descriptor, if it is a TIPC socket.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<Handle> {
    let entry = entry(fd)?;
    if entry.what.load(Ordering::Acquire) == 0 { None } else { entry.read(fd) }
}

/// Returns whether no descriptor of the process is a TIPC socket.
#[inline]
pub(crate) fn is_empty() -> bool {
    COUNT.load(Ordering::Relaxed) == 0
}

/// Registers a socket. Returns false if its descriptor's number is too large. Must be called with signals blocked.
pub(crate) fn put(handle: &Handle) -> bool {
    let Ok(fd) = usize::try_from(handle.fd) else { return false };
    if fd >= PART {
        let Some(part) = OTHERS.get(fd / PART - 1) else { return false };
        part.get_or_init(|| (0..PART).map(|_| Entry::empty()).collect());
    }
    let Some(entry) = entry(handle.fd) else { return false };
    entry.write(Some(handle));
    true
}

/// Unregisters a descriptor. Must be called with signals blocked.
pub(crate) fn forget(fd: c_int) {
    if let Some(entry) = entry(fd) {
        entry.write(None);
    }
}

/// The sockets whose descriptors are in this range, both ends included.
pub(crate) fn in_range(first: c_int, last: c_int) -> impl Iterator<Item = Handle> {
    let end = c_int::try_from(PART * PARTS).unwrap_or(c_int::MAX);
    let nothing = is_empty();
    (first.max(0)..=last.min(end)).take_while(move |_| !nothing).filter_map(find)
}
