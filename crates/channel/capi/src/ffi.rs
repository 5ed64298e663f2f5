//! The functions of the C interface.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossway_channel::{
    Channel, Deadline, Handle, Listener, MAX_LOSSY_MESSAGE, Options, Policy, Receiver, RecvError,
    SendError, Sender, SwitchError, Transport,
};
use crossway_sys::Errno;

use crate::failure::{self, failed, failed_as_usual, no_channel, open_failed};

/// A listener, as C programs see it.
pub struct CchannelListener(Listener);

/// A channel, as C programs see it.
pub struct Cchannel {
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    handle: Handle,
}

/// The options of a channel; zeroes stand for the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CchannelOptions {
    max_message: u64,
    pollable: u32,
    cpu_budget_percent: u32,
    pin: *const c_char,
    lossy: u32,
}

fn deadline(timeout_ms: i64) -> Deadline {
    let ms = u64::try_from(timeout_ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// Converts a C string. NULL and invalid UTF-8 are errors.
///
/// # Safety
/// `pointer` is NULL or points to a NUL-terminated string.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, c_int> {
    if pointer.is_null() {
        return Err(failed(Errno::FAULT, "`name` is NULL"));
    }
    // SAFETY: a NUL-terminated string, as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| failed(Errno::INVAL, "`name` or `options.pin` is not UTF-8"))
}

/// Converts C options; NULL stands for the defaults. An invalid `pin` is an error.
///
/// # Safety
/// `pointer` is NULL or points to valid options; their `pin` is NULL or points to a NUL-terminated string.
unsafe fn options(pointer: *const CchannelOptions) -> Result<Options, c_int> {
    let mut options = Options::default();
    // SAFETY: as the caller promises.
    let Some(asked) = (unsafe { pointer.as_ref() }) else { return Ok(options) };
    let mut policy = Policy { pollable: asked.pollable != 0, ..Policy::default() };
    policy.lossy |= asked.lossy != 0;
    match usize::try_from(asked.max_message) {
        Ok(max @ 1..) => options.max_message = max,
        _ if policy.lossy => options.max_message = MAX_LOSSY_MESSAGE,
        _ => {}
    }
    if asked.cpu_budget_percent > 0 {
        policy.cpu_budget = f64::from(asked.cpu_budget_percent) / 100.0;
    }
    if !asked.pin.is_null() {
        // SAFETY: a NUL-terminated string, as the caller promises.
        policy.pin = Some(transport(unsafe { text(asked.pin) }?)?);
    }
    options.policy = policy;
    Ok(options)
}

fn transport(name: &str) -> Result<Transport, c_int> {
    name.parse().map_err(|error| failed(Errno::INVAL, error))
}

/// Stores a new object's address in `out`; returns 0 or a negative errno.
///
/// # Safety
/// `out` is NULL or can be written to.
unsafe fn give<T>(out: *mut *mut T, value: impl FnOnce() -> Result<T, c_int>) -> c_int {
    if out.is_null() {
        return failed(Errno::FAULT, "`out` is NULL; pass the address of a pointer");
    }
    match value() {
        Ok(value) => {
            // SAFETY: can be written to, as the caller promises.
            unsafe { out.write(Box::into_raw(Box::new(value))) };
            0
        }
        Err(errno) => errno,
    }
}

fn channel(channel: Channel) -> Cchannel {
    let handle = channel.handle();
    let (sender, receiver) = channel.split();
    Cchannel { sender: Mutex::new(sender), receiver: Mutex::new(receiver), handle }
}

/// Listens on a name.
///
/// # Safety
/// `name` is a NUL-terminated string; `wanted` is NULL or points to options; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_listen(
    name: *const c_char,
    wanted: *const CchannelOptions,
    out: *mut *mut CchannelListener,
) -> c_int {
    // SAFETY: as the caller promises, here and below.
    unsafe {
        give(out, || {
            let listener = options(wanted)?.listen(text(name)?);
            listener.map(CchannelListener).map_err(|error| open_failed(&error))
        })
    }
}

/// Accepts the next channel of a listener.
///
/// # Safety
/// `listener` comes from `cchannel_listen`; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_accept(
    listener: *const CchannelListener,
    timeout_ms: i64,
    out: *mut *mut Cchannel,
) -> c_int {
    // SAFETY: as the caller promises, here and below.
    unsafe {
        give(out, || {
            let listener = listener
                .as_ref()
                .ok_or_else(|| failed_as_usual(Errno::BADF, c"the listener is NULL"))?;
            let accepted = listener.0.accept(deadline(timeout_ms));
            accepted.map(channel).map_err(|error| open_failed(&error))
        })
    }
}

/// Stops listening; the channels that were accepted stay open.
///
/// # Safety
/// `listener` is NULL or comes from `cchannel_listen`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_listener_close(listener: *mut CchannelListener) {
    if !listener.is_null() {
        // SAFETY: made by `give`, and the caller's last use of it.
        drop(unsafe { Box::from_raw(listener) });
    }
}

/// Connects to a name.
///
/// # Safety
/// `name` is a NUL-terminated string; `wanted` is NULL or points to options; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_connect(
    name: *const c_char,
    wanted: *const CchannelOptions,
    timeout_ms: i64,
    out: *mut *mut Cchannel,
) -> c_int {
    // SAFETY: as the caller promises, here and below.
    unsafe {
        give(out, || {
            let connected = options(wanted)?.connect(text(name)?, deadline(timeout_ms));
            connected.map(channel).map_err(|error| open_failed(&error))
        })
    }
}

/// Sends a message.
///
/// # Safety
/// `channel` is NULL or open; `bytes` points to `length` bytes, or `length` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_send(
    channel: *const Cchannel,
    bytes: *const c_void,
    length: usize,
    timeout_ms: i64,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return no_channel() };
    let message = if length == 0 {
        &[]
    } else if bytes.is_null() {
        return failed_as_usual(Errno::FAULT, c"the message is NULL, but its length is not 0");
    } else {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }
    };
    let mut sender = channel.sender.lock().unwrap_or_else(PoisonError::into_inner);
    let sent = if timeout_ms == 0 {
        sender.try_send(message)
    } else {
        sender.send(message, deadline(timeout_ms))
    };
    match sent {
        Ok(()) => 0,
        Err(SendError::Full) => failed_as_usual(Errno::AGAIN, c"there is no room for the message"),
        Err(SendError::TimedOut) => {
            failed_as_usual(Errno::TIMEDOUT, c"no room became free before the timeout")
        }
        Err(error @ SendError::TooLarge { .. }) => failed(Errno::MSGSIZE, error),
        Err(error @ SendError::PeerClosed) => failed(Errno::PIPE, error),
        Err(error @ SendError::Os(_)) => failed(Errno::IO, error),
    }
}

/// Receives a message; returns its length or a negative errno.
///
/// # Safety
/// `channel` is NULL or open; `buffer` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_recv(
    channel: *const Cchannel,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: i64,
) -> i64 {
    // SAFETY: as the caller promises.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return no_channel().into() };
    let buffer = if size == 0 {
        &mut []
    } else if buffer.is_null() {
        let why = c"the buffer is NULL, but its size is not 0";
        return failed_as_usual(Errno::FAULT, why).into();
    } else {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size) }
    };
    let mut receiver = channel.receiver.lock().unwrap_or_else(PoisonError::into_inner);
    let received = if timeout_ms == 0 {
        receiver.try_recv(buffer)
    } else {
        receiver.recv(buffer, deadline(timeout_ms))
    };
    let errno = match received {
        Ok(length) => return i64::try_from(length).unwrap_or(i64::MAX),
        Err(RecvError::Empty) => failed_as_usual(Errno::AGAIN, c"no message is waiting"),
        Err(RecvError::TimedOut) => {
            failed_as_usual(Errno::TIMEDOUT, c"no message arrived before the timeout")
        }
        Err(error @ RecvError::TooSmall { .. }) => failed(Errno::MSGSIZE, error),
        Err(error @ RecvError::Closed) => failed(Errno::SHUTDOWN, error),
        Err(error @ RecvError::PeerDied) => failed(Errno::CONNRESET, error),
        Err(error @ RecvError::Damaged(_)) => failed(Errno::PROTO, error),
        Err(error @ RecvError::Os(_)) => failed(Errno::IO, error),
    };
    errno.into()
}

/// Returns a descriptor that polls readable while a message waits; a negative errno unless the channel was opened
/// `pollable`.
///
/// # Safety
/// `channel` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_poll_fd(channel: *const Cchannel) -> c_int {
    // SAFETY: as the caller promises.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return no_channel() };
    let receiver = channel.receiver.lock().unwrap_or_else(PoisonError::into_inner);
    receiver.poll_fd().map_or_else(
        || {
            let why = "the channel has no descriptor to poll; set `pollable` in its options when opening it";
            failed(Errno::OPNOTSUPP, why)
        },
        |fd| fd.as_raw_fd(),
    )
}

/// Returns the name of the transport in use; `closed` if `channel` is NULL.
///
/// # Safety
/// `channel` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_transport(channel: *const Cchannel) -> *const c_char {
    // SAFETY: as the caller promises.
    let transport = unsafe { channel.as_ref() }.map(|channel| channel.handle.transport());
    let name = match transport {
        Some(Transport::ShmSpin) => c"shm-spin",
        Some(Transport::ShmFutex) => c"shm-futex",
        Some(Transport::ShmEventfd) => c"shm-eventfd",
        Some(Transport::Tcp) => c"tcp",
        Some(Transport::Udp) => c"udp",
        Some(Transport::Tipc) => c"tipc",
        Some(Transport::UdsSeqpacket) => c"uds-seqpacket",
        Some(Transport::Parked) => c"parked",
        None => c"closed",
    };
    name.as_ptr()
}

/// Switches to a transport.
///
/// # Safety
/// `channel` is NULL or open; `name` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_switch(
    channel: *const Cchannel,
    name: *const c_char,
    timeout_ms: i64,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return no_channel() };
    // SAFETY: as the caller promises.
    let to = match unsafe { text(name) }.and_then(transport) {
        Ok(to) => to,
        Err(errno) => return errno,
    };
    match channel.handle.switch_to(to, deadline(timeout_ms)) {
        Ok(()) => 0,
        Err(error @ SwitchError::TimedOut { .. }) => failed(Errno::TIMEDOUT, error),
        Err(error @ SwitchError::Refused { .. }) => failed(Errno::OPNOTSUPP, error),
        Err(error @ SwitchError::Closed) => failed(Errno::PIPE, error),
    }
}

/// Closes a channel. The peer first receives everything that was sent, then learns of the close.
///
/// # Safety
/// `channel` is NULL or open, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cchannel_close(channel: *mut Cchannel) {
    if !channel.is_null() {
        // SAFETY: made by `give`, and the caller's last use of it.
        drop(unsafe { Box::from_raw(channel) });
    }
}

/// Returns the reason for the calling thread's last failure, as text; the empty string before the first failure. The
/// text is valid until the thread's next call fails.
#[unsafe(no_mangle)]
pub extern "C" fn cchannel_error() -> *const c_char {
    failure::reason()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::negative;
    use crossway_channel::Directory;
    use std::ptr::{null, null_mut};

    #[test]
    fn every_failure_sets_its_own_reason() {
        let dir = tempfile::tempdir().unwrap();
        let soon = Some(Instant::now() + Duration::from_secs(30));
        // One transport, because a switch would make room.
        let policy = Policy { pin: Some(Transport::UdsSeqpacket), ..Policy::default() };
        let options = || Options {
            directory: Directory::at(dir.path()),
            policy: policy.clone(),
            ..Options::default()
        };
        let listener = options().listen("reasons").unwrap();
        let connected = options().connect("reasons", soon).unwrap();
        let (accepted, idle) = (channel(listener.accept(soon).unwrap()), channel(connected));
        let message = [0u8; 4096];
        let (bytes, length) = (message.as_ptr().cast(), message.len());
        let mut buffer = [0u8; 8];
        let place = buffer.as_mut_ptr().cast();
        // SAFETY: the text is copied before the next call.
        let reason = || unsafe { CStr::from_ptr(cchannel_error()) }.to_str().unwrap().to_owned();
        let check = |result: i64, errno: Errno, why: &str| {
            assert_eq!(result, i64::from(negative(errno)), "{}", reason());
            assert!(reason().contains(why), "{}", reason());
        };
        assert_eq!(reason(), "");
        // SAFETY: both channels are open, and NULL is what is tested.
        unsafe {
            check(cchannel_recv(null(), place, 8, 0), Errno::BADF, "channel is NULL");
            check(cchannel_recv(&idle, null_mut(), 8, 0), Errno::FAULT, "buffer is NULL");
            check(cchannel_recv(&idle, place, 8, 0), Errno::AGAIN, "no message is waiting");
            check(cchannel_recv(&idle, place, 8, 1), Errno::TIMEDOUT, "no message arrived");
            check(cchannel_send(&idle, null(), 1, 0).into(), Errno::FAULT, "message is NULL");
            let full = loop {
                match cchannel_send(&idle, bytes, length, 0) {
                    0 => {}
                    errno => break errno,
                }
            };
            check(full.into(), Errno::AGAIN, "no room");
            check(cchannel_send(&idle, bytes, length, 1).into(), Errno::TIMEDOUT, "became free");
            check(cchannel_recv(&accepted, place, 8, -1), Errno::MSGSIZE, "4096 bytes");
            check(cchannel_send(null(), bytes, 1, 0).into(), Errno::BADF, "channel is NULL");
            let mut out = null_mut();
            check(cchannel_accept(null(), 0, &mut out).into(), Errno::BADF, "listener is NULL");
            check(cchannel_poll_fd(&idle).into(), Errno::OPNOTSUPP, "set `pollable`");
            check(cchannel_poll_fd(null()).into(), Errno::BADF, "channel is NULL");
            check(cchannel_switch(&idle, null(), 0).into(), Errno::FAULT, "`name` is NULL");
        }
    }
}
