//! The interface to C: the functions that programs call ([`calls`], [`options`], [`sending`], [`receiving`], [`messages`],
//! [`waiting`], [`selecting`], [`descriptors`]), what they ask about memory and report of events ([`lent`], [`events`]), and the
//! corresponding functions of the C library ([`real`]).
#![allow(unsafe_code)]

mod calls;
mod descriptors;
mod events;
mod lent;
mod messages;
mod options;
mod real;
mod receiving;
mod selecting;
mod sending;
mod system;
mod waiting;

crossway_sys::time64_functions! {
    use {
        messages::{recvmmsg, recvmsg}, options::{fcntl64, getsockopt, ioctl, setsockopt},
        selecting::{pselect, select}, sending::{sendmmsg, sendmsg},
        waiting::{__ppoll_chk, epoll_pwait2, ppoll}
    }
    with epoll_pwait2
}

pub(crate) use crossway_sys::held_signals::{HeldSignals, without_signals};
pub(crate) use crossway_sys::real::{borrow, close_really};
pub(crate) use system::{open_descriptors, unwatch, watch};

/// Runs when the library is loaded, before the program starts.
extern "C" fn start() {
    crossway_sys::real::c_library::find_all();
    real::find_all();
    crate::moving::prepare();
    crate::spin::prepare();
    let _ = crate::process::owns_memory();
    crate::moving::adopt_inherited();
    crate::via::stay();
    // SAFETY: functions that may run at any fork: they take no lock and allocate nothing.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
}

/// Runs when the program exits. A child of vfork has its parent's memory, which must stay as it is.
extern "C" fn end() {
    if crate::process::owns_memory() {
        crate::spin::explain();
        crossway_run::rendezvous::leave();
    }
}

extern "C" fn before_fork() {
    crate::process::count_fork();
}

extern "C" fn in_child() {
    crate::spin::forget();
    crate::moving::listens_still();
}

// SAFETY: the loader calls each function in these sections once, with arguments that a function without parameters ignores.

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
