//! What this library knows about the descriptors of the process: one word each.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Number of descriptors in a part of the table. The first part is allocated statically.
const PART: usize = 16_384;
/// Number of parts: enough for the default upper limit of descriptors per process (fs.nr_open).
const PARTS: usize = 64;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing of ours.
    Other = 0,
    /// A TCP socket that this process made and has not connected; the number is the count of forks before.
    Fresh = 1,
    /// A TCP socket that is being connected, and may be moved.
    Connecting = 2,
    /// An end of a UNIX pair in the place of a TCP connection; the number is the aside's, plus 1, or 0 if this process has none.
    Moved = 3,
    /// A TCP socket that listens; the number is its port.
    Listener = 4,
    /// A TCP connection kept aside, which the program does not know. The number is that of its listener's place plus 1, or 0 if
    /// this end was accepted, and the inode is the time at which it was moved, in milliseconds.
    Aside = 5,
    /// A socket that listens, but is none of ours.
    OtherListener = 6,
    /// A connection that stays as it is, by TCP or a UNIX socket, which may be looked at before the program sleeps.
    Plain = 7,
    /// An epoll instance with which such connections, or moved ones, are registered.
    Epoll = 8,
}

/// There is another copy of the descriptor in this process.
pub(crate) const COPIED: u8 = 1;
/// It was registered with epoll before it was connected.
pub(crate) const WATCHED: u8 = 2;
/// One of these registrations is not remembered.
pub(crate) const UNKNOWN_WATCH: u8 = 64;
/// It has an option that a UNIX stream cannot provide.
pub(crate) const SPECIAL: u8 = 4;
/// On a moved descriptor: its stream goes to another host, by TIPC.
pub(crate) const CARRIED: u8 = SPECIAL;
/// Options that a UNIX stream must get, too, may have been set.
pub(crate) const SHAPED: u8 = 128;
/// The program has shut down sending.
pub(crate) const ENDED: u8 = 8;
/// TCP would have been reset: a write after the peer's end was accepted, as TCP accepts the first one, or the reset was reported.
pub(crate) const RESET: u8 = 16;
/// It is the end of the connection that was accepted.
pub(crate) const ACCEPTED: u8 = 32;

/// An entry of the table: in a word, from the lowest bits, kind, flags, number (24 bits) and inode (24 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u64);

const LOW: u64 = 0xff_ffff;

impl Entry {
    pub(crate) const OTHER: Entry = Entry(0);

    pub(crate) fn new(kind: Kind, flags: u8, number: u32, inode: u64) -> Self {
        let number = u64::from(number) & LOW;
        Self(kind as u64 | u64::from(flags) << 8 | number << 16 | (inode & LOW) << 40)
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 & 0xff {
            1 => Kind::Fresh,
            2 => Kind::Connecting,
            3 => Kind::Moved,
            4 => Kind::Listener,
            5 => Kind::Aside,
            6 => Kind::OtherListener,
            7 => Kind::Plain,
            8 => Kind::Epoll,
            _ => Kind::Other,
        }
    }

    pub(crate) fn flags(self) -> u8 {
        (self.0 >> 8) as u8
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    pub(crate) fn number(self) -> u32 {
        (self.0 >> 16 & LOW) as u32
    }

    /// The descriptor of the TCP connection that a moved descriptor stands for, if this process has it.
    pub(crate) fn aside(self) -> Option<c_int> {
        (self.kind() == Kind::Moved && self.number() > 0).then(|| self.number().cast_signed() - 1)
    }

    pub(crate) fn with(self, flags: u8) -> Self {
        Self(self.0 | u64::from(flags) << 8)
    }

    /// The entry with another aside.
    pub(crate) fn with_number(self, number: u32) -> Self {
        Self(self.0 & !(LOW << 16) | (u64::from(number) & LOW) << 16)
    }

    /// For an aside: how long ago this time was, in milliseconds, at most 4 hours.
    pub(crate) fn age_ms(self, now_ms: u64) -> u32 {
        (now_ms.wrapping_sub(self.0 >> 40) & LOW) as u32
    }

    /// Whether the file has this inode, as far as the entry remembers it.
    pub(crate) fn is_of(self, inode: u64) -> bool {
        self.0 >> 40 == inode & LOW
    }
}

static FIRST: [AtomicU64; PART] = [const { AtomicU64::new(0) }; PART];
static OTHERS: [OnceLock<Box<[AtomicU64]>>; PARTS - 1] = [const { OnceLock::new() }; PARTS - 1];
/// Whether the process has, or had, a moved connection.
static HAS_MOVED: AtomicBool = AtomicBool::new(false);
/// The highest descriptor that ever had an entry.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

#[inline]
fn word(fd: c_int) -> Option<&'static AtomicU64> {
    let fd = usize::try_from(fd).ok()?;
    match FIRST.get(fd) {
        Some(word) => Some(word),
        None => OTHERS.get(fd / PART - 1)?.get()?.get(fd % PART),
    }
}

/// The entry of a descriptor.
#[inline]
pub(crate) fn get(fd: c_int) -> Entry {
    word(fd).map_or(Entry::OTHER, |word| Entry(word.load(Ordering::Acquire)))
}

/// The entry of a descriptor that has been moved.
#[inline]
pub(crate) fn moved(fd: c_int) -> Option<Entry> {
    let entry = get(fd);
    (entry.0 & 0xff == Kind::Moved as u64).then_some(entry)
}

/// Writes an entry. Returns false if the descriptor's number is too large for the table.
pub(crate) fn put(fd: c_int, entry: Entry) -> bool {
    let Ok(number) = usize::try_from(fd) else { return false };
    if number >= PART && entry != Entry::OTHER {
        let Some(part) = OTHERS.get(number / PART - 1) else { return false };
        part.get_or_init(|| (0..PART).map(|_| AtomicU64::new(0)).collect());
    }
    let Some(word) = word(fd) else { return entry == Entry::OTHER };
    if entry != Entry::OTHER {
        HIGHEST.fetch_max(fd, Ordering::Relaxed);
    }
    if entry.kind() == Kind::Moved {
        HAS_MOVED.store(true, Ordering::Relaxed);
    }
    word.store(entry.0, Ordering::Release);
    true
}

/// Whether the process has, or had, a moved connection.
#[inline]
pub(crate) fn has_moved() -> bool {
    HAS_MOVED.load(Ordering::Relaxed)
}

/// Replaces an entry if it still is `old`.
pub(crate) fn replace(fd: c_int, old: Entry, new: Entry) -> bool {
    let swap =
        |w: &AtomicU64| w.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
    word(fd).is_some_and(|word| swap(word).is_ok())
}

/// Adds flags to an entry that is not [`Kind::Other`].
pub(crate) fn mark(fd: c_int, flags: u8) {
    let Some(word) = word(fd) else { return };
    let mut now = word.load(Ordering::Relaxed);
    while now & 0xff != 0 {
        let new = Entry(now).with(flags).0;
        match word.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Adds flags to the entry of a moved descriptor, and to those of its copies.
pub(crate) fn mark_all(fd: c_int, flags: u8) {
    let entry = get(fd);
    mark(fd, flags);
    if entry.has(COPIED) {
        of_kind(Kind::Moved, 0, c_int::MAX)
            .filter(|(_, other)| other.0 >> 40 == entry.0 >> 40)
            .for_each(|(copy, _)| mark(copy, flags));
    }
}

/// The descriptors from `first` to `last`, both included, that have an entry of this kind.
pub(crate) fn of_kind(
    kind: Kind,
    first: c_int,
    last: c_int,
) -> impl Iterator<Item = (c_int, Entry)> {
    known(first, last).filter(move |(_, entry)| entry.kind() == kind)
}

/// The descriptors from `first` to `last`, both included, that have an entry.
pub(crate) fn known(first: c_int, last: c_int) -> impl Iterator<Item = (c_int, Entry)> {
    let last = last.min(HIGHEST.load(Ordering::Relaxed));
    (first.max(0)..=last).map(|fd| (fd, get(fd))).filter(|(_, entry)| *entry != Entry::OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_returns_what_was_put_into_it() {
        let entry = Entry::new(Kind::Moved, ACCEPTED | COPIED, 8193, 0x0123_4567_89ab);
        assert_eq!((entry.kind(), entry.flags()), (Kind::Moved, ACCEPTED | COPIED));
        assert_eq!(entry.aside(), Some(8192));
        assert!(entry.is_of(0x0123_4567_89ab) && !entry.is_of(0x0123_4567_89ac));
        assert_eq!(entry.with_number(0).aside(), None);
        assert_eq!(Entry::new(Kind::Aside, 0, 0, 0xff_ffff).age_ms(0x100_0004), 5);
        assert!(entry.with(ENDED).has(ENDED) && !entry.has(ENDED));
    }

    #[test]
    fn descriptors_above_the_first_part_have_entries_too() {
        let high = 5 * PART as c_int + 7;
        assert_eq!(get(high), Entry::OTHER);
        let entry = Entry::new(Kind::Listener, 0, 80, 0);
        assert!(put(high, entry) && put(3, entry));
        assert_eq!(get(high), entry);
        assert_eq!(of_kind(Kind::Listener, 0, c_int::MAX).count(), 2);
        mark(high, COPIED);
        assert!(!replace(high, entry, Entry::OTHER) && get(high).has(COPIED));
        assert!(put(high, Entry::OTHER) && put(3, Entry::OTHER));
        mark(high, COPIED);
        assert_eq!(get(high), Entry::OTHER);
        assert!(!put(-1, entry) && !put(c_int::MAX, entry));
    }
}
