//! Where the two ends of a new TCP connection find each other: a table in memory that all programs of this user share which run
//! with this library.
//!
//! A listener's process notes the port. A program that connects to a noted port first announces that (*connecting*), then writes
//! the connection's addresses (*waiting*) and waits for a short time. The program that accepts the connection finds it by its
//! addresses and takes it (*claimed*), connects a UNIX stream to the other one, and decides (*agreed*). Until then, either can
//! withdraw by changing the state, and then both stay with TCP.
//!
//! Every step is one exchange of a word that contains the state and a count of the slot's uses, so that no process has to be
//! alive for another one to go on.

mod listeners;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossway_sys::clock::monotonic_ns;
use crossway_sys::lease::private_folder;
use crossway_sys::proc;
use crossway_sys::words::{SharedWords, remove_unused};

use crate::wishes::{self, Family};

/// Connections that can be decided at once, and listeners that can be noted.
const SLOTS: usize = 256;
const LISTENERS: usize = 256;

// The layout, in words. Its version is in the file's name.
const FILE: &str = "run-3.table";
const SLOT_STATES: usize = 0;
const LISTENER_STATES: usize = SLOT_STATES + SLOTS;
const SLOT_CONTENTS: usize = LISTENER_STATES + LISTENERS;
const SLOT_LEN: usize = 16;
const LISTENER_CONTENTS: usize = SLOT_CONTENTS + SLOTS * SLOT_LEN;
const LISTENER_LEN: usize = 4;
/// How many slots, and places of listeners, were ever in use. The first free one is taken, so a search ends early.
const SLOTS_EVER: usize = LISTENER_CONTENTS + LISTENERS * LISTENER_LEN;
const LISTENERS_EVER: usize = SLOTS_EVER + 1;
const WORDS: usize = LISTENERS_EVER + 1;

// The words of a slot.
const NETWORK: usize = 0;
const SECRET: usize = 2;
const MAILBOX: usize = 3;
const ENDS: usize = 4; // six words: the connecting end and the accepting end
const FAMILY: usize = 10;
// The words of a listener.
const OF_NETWORK: usize = 0;
const NOT_BEFORE: usize = 1;
const MISSES: usize = 2;
const SHORT_ONES: usize = 3;

/// Whether a mapped file is a table, also of another version of it.
pub fn is_table(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = name.strip_prefix("run-").and_then(|name| name.strip_suffix(".table"));
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    version.is_some_and(|version| version.parse::<u32>().is_ok())
        && folder.is_some_and(|name| name == "crossway" || name.starts_with("crossway-"))
}

/// A moved connection that lives less long than this was hardly worth the effort.
pub const SHORT_LIFE_MS: u32 = 5;
/// After so many of them in a row, a listener's connections are not moved for a while.
const SHORT_ONES_MOST: u64 = 4;
const SHORT_ONES_PAUSE_NS: u64 = 200_000_000;

/// A slot that has been used for this long belongs to a program that was killed or hangs in connect.
const STALE_MS: u64 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Free = 0,
    Writing = 1,
    Connecting = 2,
    Waiting = 3,
    Claimed = 4,
    Agreed = 5,
}

/// A slot's word, from the lowest bits: state, port, the time of the announcement in milliseconds (24 bits), count of uses. The
/// time is part of the word, so that nobody takes a slot for abandoned whose new user has not written its contents yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u64);

impl Mark {
    fn is(self, state: State) -> bool {
        self.0 & 0xff == state as u64
    }

    fn port(self) -> u16 {
        (self.0 >> 8) as u16
    }

    fn age_ms(self, now_ms: u64) -> u64 {
        now_ms.wrapping_sub(self.0 >> 24) & 0xff_ffff
    }

    fn to(self, state: State) -> Self {
        Self(self.0 & !0xff | state as u64)
    }

    /// The next use of the slot.
    fn next(self, port: u16, now_ms: u64) -> Self {
        let uses = (self.0 >> 48).wrapping_add(1);
        Self(State::Writing as u64 | u64::from(port) << 8 | (now_ms & 0xff_ffff) << 24 | uses << 48)
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    words: SharedWords,
    user: u32,
    path: PathBuf,
}

static TABLE: OnceLock<Option<Table>> = OnceLock::new();

/// The table of this user; `None` if it cannot be used, or TCP connections are not to be moved. Before more than a look at it,
/// ask [`Table::is_of_this_user`].
#[inline]
pub fn table() -> Option<&'static Table> {
    TABLE.get_or_init(open).as_ref()
}

fn open() -> Option<Table> {
    if !wishes::wants(Family::Tcp) {
        return None;
    }
    let path = private_folder().ok()?.join(FILE);
    let user = proc::effective_user();
    let words = SharedWords::in_file(&path, WORDS).ok()?;
    Some(Table { words, user, path })
}

/// Leaves the table of this user, whose file is removed if no other process has it. Later, this process finds an empty one.
pub fn leave() {
    if let Some(Some(table)) = TABLE.get() {
        table.forget_all();
        if table.words.leave().is_ok() {
            remove_unused(&table.path);
        }
    }
}

/// The two ends of a connection in the order connecting, accepting, as words.
fn as_words(connecting: SocketAddr, accepting: SocketAddr) -> [u64; 6] {
    let mut words = [0; 6];
    for (n, end) in [connecting, accepting].into_iter().enumerate() {
        let ip = match end.ip() {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        let bits = Ipv6Addr::to_bits(ip);
        words[3 * n] = (bits >> 64) as u64;
        words[3 * n + 1] = bits as u64;
        words[3 * n + 2] = end.port().into();
    }
    words
}

/// What one program wants the other one to know about their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The network namespace.
    pub network: u64,
    /// Proves that the other program has read this table.
    pub secret: u64,
    /// The abstract name, of 5 bytes, at which the connecting program expects the UNIX stream.
    pub mailbox: [u8; 5],
    /// Whether the connecting end is an IPv6 socket.
    pub six: bool,
}

/// A connecting program's use of a slot; freed on drop.
#[derive(Debug)]
pub struct Offer<'a> {
    table: &'a Table,
    slot: usize,
    mark: Mark,
    /// The place of the listener.
    pub listener: usize,
}

/// An accepting program's use of a slot.
#[derive(Debug)]
pub struct Claim<'a> {
    table: &'a Table,
    slot: usize,
    mark: Mark,
    /// What the connecting program offers.
    pub note: Note,
}

/// The result of a search for a connection.
#[derive(Debug)]
pub enum Search<'a> {
    /// Its connecting program offers to move it.
    Found(Claim<'a>),
    /// It may be among those that are being connected at this moment.
    Announced,
    /// Its connecting program does not run with this library, or does not offer it.
    None,
}

impl Table {
    /// Whether the program still belongs to the user whose table this is. One that has changed its user must not take part in
    /// the former user's connections, nor attract them.
    pub fn is_of_this_user(&self) -> bool {
        if proc::effective_user() == self.user {
            return true;
        }
        self.forget_all();
        false
    }

    #[inline]
    fn ever(&self, word: usize, most: usize) -> usize {
        let ever = self.words.word(word).load(Ordering::Acquire);
        usize::try_from(ever).map_or(most, |ever| ever.min(most))
    }

    fn state(&self, slot: usize) -> &AtomicU64 {
        self.words.word(SLOT_STATES + slot)
    }

    fn content(&self, slot: usize, word: usize) -> &AtomicU64 {
        self.words.word(SLOT_CONTENTS + slot * SLOT_LEN + word)
    }

    fn listener(&self, at: usize, word: usize) -> &AtomicU64 {
        self.words.word(LISTENER_CONTENTS + at * LISTENER_LEN + word)
    }

    fn swap(&self, slot: usize, from: Mark, to: Mark) -> bool {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.state(slot).compare_exchange(from.0, to.0, order.0, order.1).is_ok()
    }

    /// Announces a connection to a listener; `None` if the listener is in another network, was too slow to accept earlier
    /// ones, or there is no free slot.
    pub fn announce(&self, listener: usize, port: u16, note: &Note) -> Option<Offer<'_>> {
        if self.listener(listener, OF_NETWORK).load(Ordering::Relaxed) != note.network
            || self.is_paused(listener)
        {
            return None;
        }
        let now_ms = monotonic_ns() / 1_000_000;
        for slot in 0..SLOTS {
            let before = Mark(self.state(slot).load(Ordering::Acquire));
            let is_free = before.is(State::Free) || before.age_ms(now_ms) > STALE_MS;
            let mark = before.next(port, now_ms);
            if !is_free || !self.swap(slot, before, mark) {
                continue;
            }
            self.words.word(SLOTS_EVER).fetch_max(slot as u64 + 1, Ordering::AcqRel);
            self.content(slot, NETWORK).store(note.network, Ordering::Relaxed);
            self.content(slot, SECRET).store(note.secret, Ordering::Relaxed);
            let mut name = [0; 8];
            name[..5].copy_from_slice(&note.mailbox);
            self.content(slot, MAILBOX).store(u64::from_ne_bytes(name), Ordering::Relaxed);
            self.content(slot, FAMILY).store(note.six.into(), Ordering::Relaxed);
            let connecting = mark.to(State::Connecting);
            // Ordered before the connection request, which is a system call.
            if !self.swap(slot, mark, connecting) {
                return None;
            }
            return Some(Offer { table: self, slot, mark: connecting, listener });
        }
        None
    }

    /// Whether a connection to this port is offered or announced. Costs one pass over the slots in use.
    #[inline]
    pub fn expects(&self, port: u16) -> bool {
        (0..self.ever(SLOTS_EVER, SLOTS)).any(|slot| {
            let mark = Mark(self.state(slot).load(Ordering::Acquire));
            mark.port() == port && !mark.is(State::Free)
        })
    }

    /// Searches for the offer of a connection that this process has accepted, and claims it. An announcement counts for at
    /// most `limit`: after that, its program probably waits in connect.
    pub fn claim(
        &self,
        network: u64,
        connecting: SocketAddr,
        accepting: SocketAddr,
        limit: Duration,
    ) -> Search<'_> {
        let wanted = as_words(connecting, accepting);
        let now_ms = monotonic_ns() / 1_000_000;
        let mut announced = false;
        for slot in 0..self.ever(SLOTS_EVER, SLOTS) {
            let mark = Mark(self.state(slot).load(Ordering::Acquire));
            if mark.port() != accepting.port() || mark.is(State::Free) {
                continue;
            }
            let word = |word| self.content(slot, word).load(Ordering::Relaxed);
            if mark.is(State::Waiting) {
                let same = word(NETWORK) == network
                    && wanted.iter().enumerate().all(|(n, end)| word(ENDS + n) == *end);
                if !same {
                    continue;
                }
                let mut mailbox = [0; 5];
                mailbox.copy_from_slice(&word(MAILBOX).to_ne_bytes()[..5]);
                let (secret, six) = (word(SECRET), word(FAMILY) != 0);
                let note = Note { network, secret, mailbox, six };
                let claimed = mark.to(State::Claimed);
                // The exchange also proves that what was read before it belonged to this use of the slot. Afterwards,
                // the connecting program may withdraw, and another one may use the slot.
                if self.swap(slot, mark, claimed) {
                    return Search::Found(Claim { table: self, slot, mark: claimed, note });
                }
            } else if mark.is(State::Connecting) || mark.is(State::Writing) {
                announced |= u128::from(mark.age_ms(now_ms)) < limit.as_millis();
            }
        }
        if announced { Search::Announced } else { Search::None }
    }
}

impl Offer<'_> {
    /// Writes the addresses of the connection, which is established now. Returns false if the slot was taken away.
    pub fn wait(&mut self, connecting: SocketAddr, accepting: SocketAddr) -> bool {
        let writing = self.mark.to(State::Writing);
        if !self.table.swap(self.slot, self.mark, writing) {
            return false;
        }
        for (n, word) in as_words(connecting, accepting).into_iter().enumerate() {
            self.table.content(self.slot, ENDS + n).store(word, Ordering::Relaxed);
        }
        self.mark = writing.to(State::Waiting);
        self.table.swap(self.slot, writing, self.mark)
    }

    /// Whether the accepting program has decided that the connection is moved.
    pub fn is_agreed(&self) -> bool {
        Mark(self.table.state(self.slot).load(Ordering::Acquire)) == self.mark.to(State::Agreed)
    }

    /// Withdraws the offer. Returns false if the accepting program has already decided that the connection is moved.
    pub fn withdraw(&mut self) -> bool {
        for state in [State::Waiting, State::Claimed] {
            if self.table.swap(self.slot, self.mark.to(state), self.mark.to(State::Free)) {
                return true;
            }
        }
        !self.is_agreed()
    }

    /// Notes whether the listener accepted in time. One that did not is not waited for again for a while, which doubles.
    pub fn judge(&self, in_time: bool) {
        let misses = self.table.listener(self.listener, MISSES);
        if in_time {
            if misses.load(Ordering::Relaxed) != 0 {
                misses.store(0, Ordering::Relaxed);
            }
            return;
        }
        let before = misses.fetch_add(1, Ordering::Relaxed);
        let pause_ns = 20_000_000_u64 << before.min(12);
        let until = monotonic_ns().saturating_add(pause_ns);
        self.table.listener(self.listener, NOT_BEFORE).store(until, Ordering::Relaxed);
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        for state in
            [State::Connecting, State::Writing, State::Waiting, State::Claimed, State::Agreed]
        {
            if self.table.swap(self.slot, self.mark.to(state), self.mark.to(State::Free)) {
                return;
            }
        }
    }
}

impl Claim<'_> {
    /// Decides that the connection is moved. Returns false if the connecting program has withdrawn.
    pub fn agree(&self) -> bool {
        self.table.swap(self.slot, self.mark, self.mark.to(State::Agreed))
    }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
