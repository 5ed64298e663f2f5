//! Waiting without sleeping: before a call of the program sleeps until a connection has something for it, the call is repeated
//! without sleeping for a moment, because waking a process takes longer than most answers do. Only with a CPU budget.
//!
//! How long a wait may be active is learnt for each descriptor, as KVM does for a halted processor: it grows while answers come
//! within [`LONGEST_LOOK`], and shrinks to nothing while they do not. The budget bounds what the process spends on all of them.

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossway_run::explain::{self, Program};
use crossway_run::wishes::{self, Budget, Family, LONGEST_LOOK};
use crossway_sys::clock::monotonic_ns;
use crossway_sys::proc;
use crossway_sys::socket::twin;

use crate::ffi::HeldSignals;
use crate::table::{self, Entry, Kind};
use crate::{ffi, process};

/// The first active wait: about what waking a process costs.
const SHORTEST: Duration = Duration::from_micros(10);
/// The budget holds over this time, so that a burst of answers can be awaited actively.
const WINDOW: Duration = Duration::from_millis(100);
/// Two looks further apart than this: something else has run on this CPU.
const INTERRUPTED: Duration = Duration::from_micros(50);
/// For so long nothing is awaited actively then.
const RESPITE: Duration = Duration::from_millis(10);

/// Thousandth parts of a CPU; 0 if all waits sleep.
static BUDGET: AtomicU32 = AtomicU32::new(0);
static TCP: AtomicBool = AtomicBool::new(false);
static UNIX: AtomicBool = AtomicBool::new(false);
/// Whether the process has, or had, a connection that can be looked at.
static SEEN: AtomicBool = AtomicBool::new(false);
/// How long the next wait for a descriptor may be active, in nanoseconds. Descriptors that share a place disturb each other.
static SPANS: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];
/// What is left of the budget, as of [`COUNTED`], in nanoseconds.
static LEFT: AtomicI64 = AtomicI64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
/// Until when nothing is awaited actively.
static RESTS: AtomicU64 = AtomicU64::new(0);
/// Waits that ended before the process slept, waits that slept, and the time that was spent.
static SPARED: AtomicU64 = AtomicU64::new(0);
static SLEPT: AtomicU64 = AtomicU64::new(0);
static SPENT: AtomicU64 = AtomicU64::new(0);
/// Whether the process is a fork, whose connections may all be its parent's.
static FORKED: AtomicBool = AtomicBool::new(false);

const fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Reads the environment before the program can change it.
pub(crate) fn prepare() {
    BUDGET.store(Budget::of_environment().permille(), Ordering::Relaxed);
    TCP.store(wishes::wants(Family::Tcp), Ordering::Relaxed);
    UNIX.store(wishes::wants(Family::Unix), Ordering::Relaxed);
}

/// Whether the user grants CPU time for waiting.
#[inline]
pub(crate) fn is_on() -> bool {
    BUDGET.load(Ordering::Relaxed) > 0
}

/// Notes that the process has a connection that can be looked at.
pub(crate) fn see() {
    SEEN.store(true, Ordering::Relaxed);
}

/// Whether calls that wait may look first. Until then, what the program passes to them is for the kernel alone, which refuses
/// a bad pointer with EFAULT.
#[inline]
pub(crate) fn may_look() -> bool {
    is_on() && SEEN.load(Ordering::Relaxed)
}

/// The entry of a connection that stays as it is: whether it may be looked at.
pub(crate) fn plain(family: Family) -> Entry {
    let wanted = match family {
        Family::Tcp => &TCP,
        Family::Unix => &UNIX,
    };
    let looks = is_on() && wanted.load(Ordering::Relaxed);
    if !looks {
        return Entry::OTHER;
    }
    see();
    Entry::new(Kind::Plain, 0, 0, 0)
}

/// Notes a connection of which nothing is known yet.
pub(crate) fn note(fd: c_int) {
    if !is_on() || table::get(fd) != Entry::OTHER {
        return;
    }
    let Some(socket) = ffi::borrow(fd) else { return };
    let entry = if proc::is_unix_socket(socket) {
        plain(Family::Unix)
    } else if twin::is_tcp(socket) && !twin::is_listening(socket) {
        plain(Family::Tcp)
    } else {
        Entry::OTHER
    };
    if entry != Entry::OTHER {
        table::put(fd, entry);
    }
}

/// Notes that such a connection, or a moved one, is registered with an epoll instance.
pub(crate) fn note_epoll(epoll: c_int) {
    // Asking who owns the memory is a system call.
    if is_on() && table::get(epoll) == Entry::OTHER && process::owns_memory() {
        table::put(epoll, Entry::new(Kind::Epoll, 0, 0, 0));
    }
}

/// Whether a descriptor is a connection that can be awaited actively.
#[inline]
pub(crate) fn is_connection(fd: c_int) -> bool {
    matches!(table::get(fd).kind(), Kind::Moved | Kind::Plain)
}

/// The budget's share of a time.
fn share(time: u64) -> i64 {
    (time.saturating_mul(BUDGET.load(Ordering::Relaxed).into()) / 1000).cast_signed()
}

/// What is left of the budget.
fn left(now: u64) -> u64 {
    let counted = COUNTED.load(Ordering::Relaxed);
    let passed = now.saturating_sub(counted);
    // Seldom enough that the division's remainder does not matter.
    let is_due = passed > 1_000_000 || counted == 0;
    if is_due
        && COUNTED.compare_exchange(counted, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let most = share(ns(WINDOW));
        let gained = share(passed.min(ns(WINDOW)));
        let _ = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_add(gained).min(most))
        });
    }
    u64::try_from(LEFT.load(Ordering::Relaxed)).unwrap_or(0)
}

fn spend(time: u64) {
    LEFT.fetch_sub(time.cast_signed(), Ordering::Relaxed);
    SPENT.fetch_add(time, Ordering::Relaxed);
}

/// How long the next wait may be active after one that took `took` in all.
fn next_span(span: u64, took: u64) -> u64 {
    if took <= ns(LONGEST_LOOK) {
        (span * 2).clamp(ns(SHORTEST), ns(LONGEST_LOOK))
    } else if span / 2 < ns(SHORTEST) {
        0
    } else {
        span / 2
    }
}

/// Waits for `fd`, for which a look has just been in vain: looks again for a moment (`look` returns `None` while there is
/// nothing), for at most `limit`, and then sleeps with `sleep`, which is passed the time that was spent looking and, if that
/// was any, the signals that were held back meanwhile.
pub(crate) fn wait<T>(
    fd: c_int,
    limit: Option<Duration>,
    mut look: impl FnMut() -> Option<T>,
    sleep: impl FnOnce(Duration, Option<HeldSignals>) -> T,
) -> T {
    let place = &SPANS[fd.unsigned_abs() as usize % SPANS.len()];
    let learnt = u64::from(place.load(Ordering::Relaxed));
    let begin = monotonic_ns();
    let span = if learnt == 0 || begin < RESTS.load(Ordering::Relaxed) {
        0
    } else {
        learnt.min(left(begin)).min(limit.map_or(u64::MAX, ns))
    };
    let signals = (span > 0).then(HeldSignals::hold);
    let mut now = begin;
    while now - begin < span {
        // What else wants this CPU, perhaps the peer, must not wait for a process that only waits.
        std::thread::yield_now();
        let found = look();
        let before = std::mem::replace(&mut now, monotonic_ns());
        if let Some(found) = found {
            spend(now - begin);
            SPARED.fetch_add(1, Ordering::Relaxed);
            return found;
        }
        if now - before > ns(INTERRUPTED) {
            RESTS.store(now + ns(RESPITE), Ordering::Relaxed);
            break;
        }
    }
    let spent = now - begin;
    if spent > 0 {
        spend(spent);
    }
    let outcome = sleep(Duration::from_nanos(spent), signals);
    SLEPT.fetch_add(1, Ordering::Relaxed);
    place.store(next_span(learnt, monotonic_ns() - begin) as u32, Ordering::Relaxed);
    outcome
}

/// Says what active waiting has spared and cost, if the user asks for it, of each program that had a connection.
pub(crate) fn explain() {
    if !may_look() || !explain::is_wanted() {
        return;
    }
    let (spared, slept) = (SPARED.load(Ordering::Relaxed), SLEPT.load(Ordering::Relaxed));
    if spared + slept == 0 && FORKED.load(Ordering::Relaxed) {
        return;
    }
    let budget = f64::from(BUDGET.load(Ordering::Relaxed)) / 10.0;
    let spent = SPENT.load(Ordering::Relaxed) as f64 / 1e6;
    explain::sum_up(Program::own, &Sum { spared, all: spared + slept, spent, budget });
}

/// What a process has spared and spent.
struct Sum {
    spared: u64,
    all: u64,
    /// Milliseconds.
    spent: f64,
    /// Per cent of the time.
    budget: f64,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum { spared, all, spent, budget } = self;
        if *all == 0 {
            // Each answer was there before the program looked for it.
            return f.write_str("0 of 0 waits: the program never had to wait");
        }
        write!(
            f,
            "{spared} of {all} waits ended before the program slept; looking took {spent:.1} ms, at most {budget}% of the time"
        )
    }
}

/// Forgets what the parent of a forked process has waited for.
pub(crate) fn forget() {
    FORKED.store(true, Ordering::Relaxed);
    for counter in [&SPARED, &SLEPT, &SPENT] {
        counter.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_part_grows_with_short_waits_and_ends_with_long_ones() {
        let (short, long) = (ns(LONGEST_LOOK) / 4, ns(LONGEST_LOOK) * 4);
        let mut span = next_span(0, short);
        assert_eq!(span, ns(SHORTEST));
        for _ in 0..10 {
            span = next_span(span, short);
        }
        assert_eq!(span, ns(LONGEST_LOOK));
        for _ in 0..10 {
            span = next_span(span, long);
        }
        assert_eq!(span, 0);
    }

    #[test]
    fn a_program_that_never_waited_says_so() {
        let sum = |spared, all| Sum { spared, all, spent: 1.5, budget: 20.0 }.to_string();
        assert_eq!(sum(0, 0), "0 of 0 waits: the program never had to wait");
        assert_eq!(
            sum(1, 3),
            "1 of 3 waits ended before the program slept; looking took 1.5 ms, at most 20% of the time"
        );
    }

    #[test]
    fn the_budget_bounds_what_is_spent() {
        BUDGET.store(100, Ordering::Relaxed);
        // A descriptor on which nothing ever arrives, and which is said to be worth the wait each time.
        let begin = monotonic_ns();
        let mut spent = 0;
        while monotonic_ns() - begin < ns(WINDOW) * 3 {
            SPANS[7].store(ns(LONGEST_LOOK) as u32, Ordering::Relaxed);
            RESTS.store(0, Ordering::Relaxed);
            spent += wait(7, None, || None, |looked, _| looked).as_nanos() as u64;
        }
        let passed = monotonic_ns() - begin;
        let most = share(passed + ns(WINDOW)).unsigned_abs() + ns(LONGEST_LOOK);
        assert!(spent > 0, "nothing was awaited actively");
        // The last wait can be interrupted for as long as other programs like.
        assert!(spent <= most * 2, "{spent} of {most} ns");
        let found = wait(7, Some(LONGEST_LOOK), || Some(3), |_, _| 4);
        assert!(matches!(found, 3 | 4), "{found}");
    }
}
