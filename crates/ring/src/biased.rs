//! A lock around a value that one thread, the owner, uses all the time and other threads, the visitors, use
//! occasionally.
//!
//! The owner takes the lock ("enters") with a store and a load, and releases it ("leaves") with a store: no atomic
//! read-modify-write and, where the kernel has `membarrier`, no fence. A visitor enters only while the owner is outside
//! and pays for both sides with a heavy fence. The two are threads of one process, so it is the fence for one process:
//! the one for several sometimes leaves out a CPU ([`Reach`]), and owner and visitor would meet. The word that informs
//! the owner of a visitor also carries flags, so that checking for both costs one load.

use std::sync::Arc;

use crossway_sys::fence::{self as fences, Reach};

use crate::sync::{AtomicU32, Mutex, Ordering, UnsafeCell, fence};

/// A visitor is inside, or about to enter.
const VISITED: u32 = 1 << 31;

#[derive(Debug)]
struct Shared<T> {
    owner_inside: AtomicU32,
    /// [`VISITED`] and the flags.
    word: AtomicU32,
    asymmetric: bool,
    /// Admits one visitor at a time; an owner that must wait for a visitor waits for this lock.
    visits: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed by the owner while it is inside, or by the visitor that holds `visits` while the owner
// is outside: never by two threads at a time, so that it only has to be Send.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The handle of the favoured thread; there is exactly one.
#[derive(Debug)]
pub struct Owner<T>(Arc<Shared<T>>);

/// The handle for occasional access.
#[derive(Debug)]
pub struct Visitor<T>(Arc<Shared<T>>);

impl<T> Clone for Visitor<T> {
    fn clone(&self) -> Self {
        Visitor(Arc::clone(&self.0))
    }
}

/// The flags that visitors have raised for the owner.
#[derive(Clone, Copy, Debug)]
pub struct Flags<'a>(&'a AtomicU32);

impl Flags<'_> {
    /// The flags that are raised now.
    #[inline]
    pub fn raised(self) -> u32 {
        self.0.load(Ordering::Acquire) & !VISITED
    }

    /// Lowers some of the flags.
    pub fn lower(self, flags: u32) {
        self.0.fetch_and(!(flags & !VISITED), Ordering::AcqRel);
    }
}

/// Creates the two handles of a shared value.
pub fn biased<T>(value: T) -> (Owner<T>, Visitor<T>) {
    let shared = Arc::new(Shared {
        owner_inside: AtomicU32::new(0),
        word: AtomicU32::new(0),
        asymmetric: !cfg!(loom) && fences::register(Reach::Process),
        visits: Mutex::new(()),
        value: UnsafeCell::new(value),
    });
    (Owner(Arc::clone(&shared)), Visitor(shared))
}

/// Marks the owner as outside when dropped, also after a panic.
struct Inside<'a>(&'a AtomicU32);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<T> Owner<T> {
    /// Calls `work` with the value and the flags. Waits first if a visitor is inside.
    #[inline]
    pub fn with<R>(&mut self, work: impl FnOnce(&mut T, Flags<'_>) -> R) -> R {
        let shared = &*self.0;
        let inside = loop {
            shared.owner_inside.store(1, Ordering::Relaxed);
            // Either the visitor sees that we are inside, or we see the visitor.
            if shared.asymmetric {
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
            } else {
                fence(Ordering::SeqCst);
            }
            if shared.word.load(Ordering::Acquire) & VISITED == 0 {
                break Inside(&shared.owner_inside);
            }
            shared.give_way();
        };
        // SAFETY: there is one owner, borrowed mutably; a visitor finds `owner_inside` set from here until `inside` is
        // dropped.
        let result =
            shared.value.with_mut(|value| work(unsafe { &mut *value }, Flags(&shared.word)));
        drop(inside);
        result
    }
}

impl<T> Shared<T> {
    #[cold]
    fn give_way(&self) {
        self.owner_inside.store(0, Ordering::Release);
        drop(self.visits.lock());
    }
}

/// Marks the visitor as outside when dropped, also after a panic.
struct Visiting<'a>(&'a AtomicU32);

impl Drop for Visiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!VISITED, Ordering::Release);
    }
}

impl<T> Visitor<T> {
    /// Calls `work` with the value if the owner is outside; returns `None` if the owner is inside or the heavy fence
    /// fails. Waits for another visitor to leave.
    pub fn try_visit<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let shared = &*self.0;
        // An owner that is inside anyway is not disturbed. Whether one that seems to be outside is, is decided below.
        if shared.owner_inside.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let _turn = match shared.visits.lock() {
            Ok(turn) => turn,
            // The value stays usable even if a visitor panicked.
            Err(poisoned) => poisoned.into_inner(),
        };
        shared.word.fetch_or(VISITED, Ordering::SeqCst);
        let visiting = Visiting(&shared.word);
        if shared.asymmetric {
            fences::heavy(Reach::Process).ok()?;
        } else {
            fence(Ordering::SeqCst);
        }
        if shared.owner_inside.load(Ordering::Acquire) != 0 {
            return None;
        }
        // SAFETY: the owner was outside after VISITED was set, and it does not enter while that is set; other visitors
        // wait for `visits`.
        let result = shared.value.with_mut(|value| work(unsafe { &mut *value }));
        drop(visiting);
        Some(result)
    }

    /// Raises flags, which the owner sees when it enters next.
    pub fn raise(&self, flags: u32) {
        self.0.word.fetch_or(flags & !VISITED, Ordering::AcqRel);
    }

    /// Lowers flags.
    pub fn lower(&self, flags: u32) {
        self.0.word.fetch_and(!(flags & !VISITED), Ordering::AcqRel);
    }

    /// The flags that are raised now.
    pub fn raised(&self) -> u32 {
        self.0.word.load(Ordering::Acquire) & !VISITED
    }

    /// Whether the owner was dropped and this is the only visitor left.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn owner_and_visitors_never_meet() {
        let (mut owner, visitor) = biased((0_u64, 0_u64));
        const TURNS: u64 = 200_000;
        let other = std::thread::spawn(move || {
            let mut visits = 0;
            while visits < 200 || !visitor.is_alone() {
                let seen = visitor.try_visit(|value| {
                    assert_eq!(value.0, value.1);
                    value.0 += 1;
                    value.1 += 1;
                });
                visits += u64::from(seen.is_some());
            }
            (visits, visitor.try_visit(|value| *value).expect("nobody is inside"))
        });
        for _ in 0..TURNS {
            owner.with(|value, _| {
                value.0 += 1;
                std::hint::black_box(&mut *value);
                value.1 += 1;
            });
        }
        drop(owner);
        let (visits, value) = other.join().unwrap();
        assert_eq!(value, (TURNS + visits, TURNS + visits));
    }

    #[test]
    fn a_visitor_is_turned_away_while_the_owner_is_inside_and_its_flags_arrive() {
        let (mut owner, visitor) = biased(1);
        visitor.raise(4);
        owner.with(|_, flags| {
            assert_eq!(visitor.try_visit(|_| ()), None);
            assert_eq!(flags.raised(), 4);
            visitor.raise(2);
            assert_eq!(flags.raised(), 6);
            flags.lower(4);
        });
        assert_eq!(visitor.raised(), 2);
        visitor.lower(2);
        assert_eq!(visitor.try_visit(|value| *value), Some(1));
        owner.with(|_, flags| assert_eq!(flags.raised(), 0));
    }
}
