//! Calls that copy or close descriptors.

use std::ffi::{c_int, c_long, c_uint};

use crossway_sys::real::{errno, set_errno};
use crossway_sys::socket::twin;
use libc::FILE;

use super::{borrow, close_really, real, without_signals};
use crate::process::owns_memory;
use crate::table::{self, COPIED, Entry, Kind, WATCHED};
use crate::{moving, process, watch};

/// Whether other threads must not copy or close the descriptor while this one does: what the library knows about it would not
/// be what it has become. A child of vfork has its own descriptors, and its parent's lock.
fn is_guarded(entry: Entry) -> bool {
    matches!(entry.kind(), Kind::Connecting | Kind::Moved | Kind::Listener) && owns_memory()
}

/// Runs a call that copies or closes guarded descriptors.
fn alone<T>(what: impl FnOnce() -> T) -> T {
    without_signals(|| {
        let _locked = process::lock();
        what()
    })
}

/// Forgets a descriptor that `close` closes, and closes its aside unless another descriptor stands for it, too. A child of vfork
/// only closes.
fn forget<T>(fd: c_int, close: impl FnOnce() -> T) -> T {
    let entry = table::get(fd);
    if is_guarded(entry) {
        return alone(|| closing(fd, table::get(fd), close));
    }
    closing(fd, entry, close)
}

/// As [`forget`], with the descriptor's entry, and the lock if that is guarded.
fn closing<T>(fd: c_int, entry: Entry, close: impl FnOnce() -> T) -> T {
    let left = before_close(fd, entry);
    let outcome = close();
    if let Some(left) = left {
        // Unless another thread has got the number meanwhile.
        table::replace(fd, left, Entry::OTHER);
    }
    outcome
}

/// Forgets a descriptor that is about to be closed, as far as others may not need it until then. Returns the entry that
/// remains, if one does.
fn before_close(fd: c_int, entry: Entry) -> Option<Entry> {
    match entry.kind() {
        Kind::Other | Kind::Aside => None,
        // At worst, a child of vfork prevents that its parent's socket is moved.
        Kind::Fresh | Kind::OtherListener | Kind::Plain | Kind::Epoll => {
            table::replace(fd, entry, Entry::OTHER);
            if entry.has(WATCHED) && owns_memory() {
                watch::forget(fd);
            }
            None
        }
        _ => owns_memory().then(|| leaving(fd, entry)),
    }
}

/// Gives up what a descriptor that is about to be closed stands for. Returns the entry that remains until then: a moved one
/// stays known as such, for threads that copy it meanwhile.
fn leaving(fd: c_int, entry: Entry) -> Entry {
    let left = if entry.kind() == Kind::Moved { entry.with_number(0) } else { Entry::OTHER };
    table::put(fd, left);
    leave(entry);
    left
}

/// Forgets a descriptor that is no longer what its entry says: the program has closed it by a call that this library does not
/// see (io_uring, an own system call).
#[cold]
pub(super) fn closed_unseen(fd: c_int, entry: Entry) {
    if entry.kind() == Kind::Connecting || !owns_memory() {
        return;
    }
    alone(|| {
        if table::replace(fd, entry, Entry::OTHER) {
            leave(entry);
        }
    });
    if entry.has(WATCHED) && entry.kind() == Kind::Fresh {
        watch::forget(fd);
    }
}

/// Gives up what an entry that is gone stands for, unless another descriptor stands for it, too: the aside of a moved one, or
/// the note of a listener.
fn leave(entry: Entry) {
    if entry.kind() == Kind::Listener {
        let mut others = table::of_kind(Kind::Listener, 0, c_int::MAX);
        if !others.any(|(_, other)| other.number() == entry.number())
            && let Some(table) = crossway_run::rendezvous::table()
        {
            table.forget_listener(std::process::id(), entry.number() as u16);
        }
    }
    let Some(aside) = entry.aside() else { return };
    let mut others = table::of_kind(Kind::Moved, 0, c_int::MAX);
    if entry.has(COPIED) && others.any(|(_, other)| other.aside() == Some(aside)) {
        return;
    }
    moving::ended(table::get(aside));
    table::put(aside, Entry::OTHER);
    // Before the stream, so that a reset (SO_LINGER) is there when the peer finds the end.
    close_really(aside);
}

/// Whether the program must not reach the descriptor, because it does not know it.
fn is_hidden(fd: c_int) -> bool {
    let is_ours = |at| twin::is_tcp(at) || crossway_run::via::is_connection(at);
    table::get(fd).kind() == Kind::Aside && borrow(fd).is_some_and(is_ours)
}

/// Makes a copy of `old` with `real`. Returns its number.
pub(super) fn copied(old: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if is_guarded(table::get(old)) {
        return alone(|| became(old, real()));
    }
    became(old, real())
}

/// Notes that `new` has become a copy of `old`. Returns `new`.
fn became(old: c_int, new: c_int) -> c_int {
    if new < 0 || old == new {
        return new;
    }
    let entry = table::get(old);
    if !owns_memory() {
        // The program that a child of vfork is about to start gets the copy.
        keep_aside(entry, new);
        return new;
    }
    match entry.kind() {
        Kind::Aside | Kind::Connecting => {
            table::put(new, Entry::OTHER);
        }
        Kind::Other => {
            if table::get(new) != Entry::OTHER {
                table::put(new, Entry::OTHER);
            }
        }
        _ => {
            table::mark(old, COPIED);
            table::put(new, entry.with(COPIED));
            keep_aside(entry, new);
        }
    }
    new
}

/// Notes that exec will close a descriptor, or no longer: the same holds for its aside, unless a copy survives.
pub(super) fn closes_on_exec_now(fd: c_int) {
    let entry = table::get(fd);
    let (Some(aside), Some(at)) = (entry.aside(), borrow(fd)) else { return };
    let keeps = |at| !twin::closes_on_exec(at);
    let survives = keeps(at)
        || (entry.has(COPIED)
            && table::of_kind(Kind::Moved, 0, c_int::MAX)
                .filter(|(_, other)| other.aside() == Some(aside))
                .any(|(copy, _)| borrow(copy).is_some_and(keeps)));
    if let Some(aside) = borrow(aside) {
        twin::set_close_on_exec(aside, !survives);
    }
}

/// Lets exec keep the aside of an entry if it keeps a copy of the descriptor.
fn keep_aside(entry: Entry, copy: c_int) {
    if let (Some(aside), Some(copy)) = (entry.aside().and_then(borrow), borrow(copy))
        && !twin::closes_on_exec(copy)
    {
        twin::set_close_on_exec(aside, false);
    }
}

/// Moves an aside to another number, because the program wants this one.
fn make_room(fd: c_int) {
    if !is_hidden(fd) || !owns_memory() {
        return;
    }
    without_signals(|| {
        let _locked = process::lock();
        let Some(aside) = borrow(fd) else { return };
        let Ok(new) = twin::copy_above(aside, fd, twin::closes_on_exec(aside)) else { return };
        let new = std::os::fd::IntoRawFd::into_raw_fd(new);
        table::put(new, table::get(fd));
        for (moved, entry) in table::of_kind(Kind::Moved, 0, c_int::MAX) {
            if entry.aside() == Some(fd) {
                table::put(moved, entry.with_number(new.unsigned_abs() + 1));
            }
        }
        table::put(fd, Entry::OTHER);
        close_really(fd);
    });
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if is_hidden(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: an integer.
    forget(fd, || unsafe { real::close(fd) })
}

/// A bound of close_range as the number of a descriptor.
fn number(bound: c_uint) -> c_int {
    c_int::try_from(bound).unwrap_or(c_int::MAX)
}

/// Flag of close_range(2): only set close-on-exec (linux/close_range.h).
const CLOSE_RANGE_CLOEXEC: c_int = 4;
/// Flag of close_range(2): first get a table of descriptors of its own.
const CLOSE_RANGE_UNSHARE: c_int = 2;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let outcome = if flags & !CLOSE_RANGE_UNSHARE == 0 && first <= last {
        close_all(first, last, flags)
    } else {
        close_visible(first, last, flags)
    };
    if flags & CLOSE_RANGE_CLOEXEC != 0 && outcome == 0 {
        table::of_kind(Kind::Moved, number(first), number(last))
            .for_each(|(fd, _)| closes_on_exec_now(fd));
    }
    outcome
}

/// Forgets the descriptors of a range, and closes them. Other threads must not copy one between the two.
fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let known = || {
        table::known(number(first), number(last))
            .filter(|(_, entry)| !matches!(entry.kind(), Kind::Aside | Kind::Connecting))
    };
    let close = || {
        let left: Vec<(c_int, Entry)> = known()
            .filter_map(|(fd, entry)| before_close(fd, entry).map(|left| (fd, left)))
            .collect();
        let outcome = close_visible(first, last, flags);
        for (fd, left) in left {
            table::replace(fd, left, Entry::OTHER);
        }
        outcome
    };
    if known().any(|(_, entry)| is_guarded(entry)) { alone(close) } else { close() }
}

/// Calls close_range on all but asides: those that descriptors outside of the range stand for survive.
fn close_visible(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = first;
    let hidden = table::of_kind(Kind::Aside, number(first), number(last)).map(|(fd, _)| fd);
    for aside in hidden.filter(|fd| is_hidden(*fd)).map(c_int::unsigned_abs) {
        if from < aside {
            // SAFETY: integers.
            let outcome = unsafe { real::close_range(from, aside - 1, flags) };
            if outcome < 0 {
                return outcome;
            }
        }
        from = aside + 1;
    }
    if from > last && from > first {
        return 0;
    }
    // SAFETY: integers.
    unsafe { real::close_range(from, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: integers.
    if unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) } < 0 {
        let first = first.max(0);
        super::open_descriptors().into_iter().filter(|fd| *fd >= first).for_each(|fd| {
            // SAFETY: an integer.
            unsafe { close(fd) };
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: an integer.
    copied(fd, || unsafe { real::dup(fd) })
}

/// Replaces `new` by a copy of `old` with `real`.
fn copied_to(old: c_int, new: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let is_open = || old != new && borrow(old).is_some_and(twin::is_open);
    if table::get(new).kind() == Kind::Aside && is_open() {
        make_room(new);
    }
    let replaced = table::get(new);
    if is_guarded(table::get(old)) || is_guarded(replaced) {
        return alone(|| {
            let replaced = if is_open() { table::get(new) } else { Entry::OTHER };
            became(old, closing(new, replaced, real))
        });
    }
    let replaced = if replaced != Entry::OTHER && is_open() { replaced } else { Entry::OTHER };
    became(old, closing(new, replaced, real))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: integers.
    copied_to(old, new, || unsafe { real::dup2(old, new) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: integers.
    copied_to(old, new, || unsafe { real::dup3(old, new, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    if !file.is_null() {
        let before = errno();
        // SAFETY: an open stream, as guaranteed by the caller.
        let fd = unsafe { libc::fileno(file) };
        set_errno(before);
        if is_guarded(table::get(fd)) {
            let left = alone(|| leaving(fd, table::get(fd)));
            // Not while others wait: it may send what it has buffered.
            // SAFETY: guaranteed by the caller.
            let outcome = unsafe { real::fclose(file) };
            let after = errno();
            // Unless another thread has got the number meanwhile, even for a copy of the same stream.
            alone(|| {
                let is_copy = |at| left.kind() == Kind::Moved && left.is_of(twin::inode(at));
                if !borrow(fd).is_some_and(is_copy) {
                    table::replace(fd, left, Entry::OTHER);
                }
            });
            set_errno(after);
            return outcome;
        }
        forget(fd, || ());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::fclose(file) }
}

/// System calls that close or copy descriptors, or set options, do the same as the functions of their names.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: the arguments are those of the function of that name, as guaranteed by the caller.
    unsafe {
        match number {
            libc::SYS_close => close(a as c_int).into(),
            libc::SYS_close_range => close_range(a as c_uint, b as c_uint, c as c_int).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => dup2(a as c_int, b as c_int).into(),
            libc::SYS_dup3 => dup3(a as c_int, b as c_int, c as c_int).into(),
            libc::SYS_setsockopt => {
                let value = d as *const std::ffi::c_void;
                super::options::setsockopt(a as c_int, b as c_int, c as c_int, value, e as u32)
                    .into()
            }
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}
