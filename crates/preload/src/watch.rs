//! Registrations with epoll of sockets that are not connected yet. They refer to the TCP socket, so they are made again for the
//! stream that takes its place.

use std::ffi::c_int;
use std::sync::Mutex;

use crate::ffi;

/// What a program asked of an epoll instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) epoll: c_int,
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// Registrations that are remembered at once; a socket with one that is not is not moved.
const MOST: usize = 1024;
static WATCHES: Mutex<Vec<(c_int, Watch)>> = Mutex::new(Vec::new());

/// Runs `what` on the registrations, unless another thread has them: in a child of a fork, perhaps for ever.
fn with<T>(what: impl FnOnce(&mut Vec<(c_int, Watch)>) -> T) -> Option<T> {
    ffi::without_signals(|| WATCHES.try_lock().ok().map(|mut watches| what(&mut watches)))
}

/// Remembers that a socket was registered. Returns false if it cannot be moved then, because it is registered twice, or nothing
/// can be remembered.
pub(crate) fn add(fd: c_int, watch: Watch) -> bool {
    let added = with(|watches| {
        let known = watches.iter().any(|(at, _)| *at == fd);
        if known || watches.len() >= MOST {
            watches.retain(|(at, _)| *at != fd);
            return false;
        }
        watches.push((fd, watch));
        true
    });
    added == Some(true)
}

/// Remembers that a registration was changed.
pub(crate) fn change(fd: c_int, watch: Watch) {
    with(|watches| {
        for (_, known) in watches.iter_mut().filter(|(at, of)| *at == fd && of.epoll == watch.epoll)
        {
            *known = watch;
        }
    });
}

/// The registration of a socket, if it is remembered.
pub(crate) fn find(fd: c_int) -> Option<Watch> {
    with(|watches| watches.iter().find(|(at, _)| *at == fd).map(|(_, watch)| *watch)).flatten()
}

/// Forgets the registration of a socket that has been connected or closed.
pub(crate) fn forget(fd: c_int) {
    with(|watches| watches.retain(|(at, _)| *at != fd));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_registration_per_socket_is_remembered() {
        let watch = Watch { epoll: 5, events: 1, data: 77 };
        assert!(add(70_000, watch));
        assert_eq!(find(70_000), Some(watch));
        change(70_000, Watch { epoll: 6, events: 4, data: 0 });
        assert_eq!(find(70_000), Some(watch), "of another instance");
        change(70_000, Watch { events: 4, ..watch });
        assert_eq!(find(70_000).map(|watch| watch.events), Some(4));
        assert!(!add(70_000, Watch { epoll: 6, ..watch }));
        assert_eq!(find(70_000), None, "twice");
        forget(70_000);
    }
}
