//! The interface to C: the functions that programs call ([`calls`], [`options`], [`sending`], [`receiving`],
//! [`descriptors`], [`waiting`], [`direct`]), the corresponding functions of the C library ([`real`]), and a few system
//! calls on a socket's descriptor ([`system`]).
#![allow(unsafe_code)]

mod calls;
mod control_data;
mod descriptors;
mod direct;
mod lent;
mod options;
mod outcome;
mod parts;
mod real;
mod receiving;
mod sending;
mod system;
mod waiting;

crossway_sys::time64_functions! {
    use {
        descriptors::fcntl64, options::{getsockopt, ioctl, setsockopt},
        receiving::{recvmmsg, recvmsg}, sending::{sendmmsg, sendmsg},
        waiting::{__ppoll_chk, ppoll, pselect, select}
    }
}

pub(crate) use crossway_sys::held_signals::without_signals;
pub(crate) use crossway_sys::real::{borrow, close_really};
pub(crate) use parts::Parts;
pub(crate) use system::{
    copy_high, is_nonblocking, receive, receive_descriptor, send, send_filling, wait,
};

/// Runs when the library is loaded, before the program starts.
extern "C" fn start() {
    crossway_sys::real::c_library::find_all();
    real::find_all();
    // Allocate the words of this process now, before a signal handler can interrupt.
    let _ = crate::process::is_borrowed();
    crate::adopt::inherited();
}

// SAFETY: the loader calls each function in this section once, with arguments that a function without parameters ignores.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
