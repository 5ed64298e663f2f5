//! A thread that waits on a lifeline, for channels whose blocking calls cannot wait for two things at once.
//!
//! Each end of the channel holds one socket of a pair. When an end closes, or its process dies in any way, the kernel
//! hangs up the other socket. The calls that carry messages stay plain blocking calls: the thread costs nothing until
//! the peer ends, and then wakes the blocked callers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::OsError;

/// Creates the two ends of a lifeline.
pub fn pair() -> Result<(OwnedFd, OwnedFd), OsError> {
    let (a, b) = UnixStream::pair().map_err(|e| OsError::new("socketpair", "lifeline", e))?;
    Ok((a.into(), b.into()))
}

/// An event that a lifeline reports to one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The peer called [`PeerWatch::confirm`].
    Confirmed,
    /// The peer closed its end or died.
    Ended,
}

/// One watched end. Dropping it notifies the peer.
#[derive(Debug)]
pub struct PeerWatch {
    socket: Arc<UnixStream>,
    closing: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl PeerWatch {
    /// Watches `end`. `on_event` runs in the watching thread and must not block. [`PeerEvent::Ended`] is reported at
    /// most once, as the last event; [`PeerWatch::peer_has_ended`] is already true by then.
    pub fn watch(
        end: OwnedFd,
        mut on_event: impl FnMut(PeerEvent) + Send + 'static,
    ) -> Result<Self, OsError> {
        let socket = Arc::new(UnixStream::from(end));
        let closing = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let watcher = std::thread::Builder::new()
            .name("lifeline".to_owned())
            .stack_size(64 * 1024)
            .spawn({
                let (socket, closing, ended) = (socket.clone(), closing.clone(), ended.clone());
                move || {
                    let mut word = [0];
                    loop {
                        match (&*socket).read(&mut word) {
                            Ok(1..) => on_event(PeerEvent::Confirmed),
                            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                            _ => break,
                        }
                    }
                    // Our own shutdown ends the read just as the peer's does.
                    if !closing.load(Ordering::Acquire) {
                        ended.store(true, Ordering::Release);
                        on_event(PeerEvent::Ended);
                    }
                }
            })
            .map_err(|e| OsError::new("clone", "lifeline thread", e))?;
        Ok(PeerWatch { socket, closing, ended, watcher: Some(watcher) })
    }

    /// Confirms to the peer that this end has taken over the resources that the peer held for it; the peer gets
    /// [`PeerEvent::Confirmed`].
    pub fn confirm(&self) {
        // Fails only if the peer has ended, which the watching thread reports.
        let _ = (&*self.socket).write(&[1]);
    }

    /// Whether the peer closed its end or died.
    pub fn peer_has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Notifies the peer that this end is closed and detaches the watching thread. The thread still reports a later
    /// confirmation, and ends when the peer ends.
    pub fn leave_watching(mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
        self.watcher = None;
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        let Some(watcher) = self.watcher.take() else { return };
        self.closing.store(true, Ordering::Release);
        // Wakes the peer's watcher and our own, even if a copy of the socket is open elsewhere.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = watcher.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    const WATCHDOG: Duration = Duration::from_secs(120);

    fn watched(end: OwnedFd) -> (PeerWatch, Receiver<PeerEvent>) {
        let (tx, rx) = channel();
        (PeerWatch::watch(end, move |event| tx.send(event).unwrap()).unwrap(), rx)
    }

    #[test]
    fn the_peer_is_notified_of_confirmation_and_end() {
        let (a, b) = pair().unwrap();
        let (a, told_a) = watched(a);
        let (b, told_b) = watched(b);
        b.confirm();
        assert_eq!(told_a.recv_timeout(WATCHDOG), Ok(PeerEvent::Confirmed));
        assert!(!a.peer_has_ended());
        drop(b);
        assert_eq!(told_a.recv_timeout(WATCHDOG), Ok(PeerEvent::Ended));
        assert!(a.peer_has_ended());
        // The end that closes gets no event.
        assert!(told_b.recv_timeout(WATCHDOG).is_err());
        a.confirm();
    }

    #[test]
    fn an_end_that_nobody_took_counts_as_ended() {
        let (a, b) = pair().unwrap();
        let (_a, told) = watched(a);
        drop(b);
        assert_eq!(told.recv_timeout(WATCHDOG), Ok(PeerEvent::Ended));
    }

    #[test]
    fn a_detached_watcher_still_receives_the_confirmation() {
        let (a, b) = pair().unwrap();
        let (a, told_a) = watched(a);
        a.leave_watching();
        let (b, told_b) = watched(b);
        assert_eq!(told_b.recv_timeout(WATCHDOG), Ok(PeerEvent::Ended));
        b.confirm();
        drop(b);
        assert_eq!(told_a.recv_timeout(WATCHDOG), Ok(PeerEvent::Confirmed));
        assert_eq!(told_a.recv_timeout(WATCHDOG), Ok(PeerEvent::Ended));
    }

    #[test]
    fn a_killed_process_ends_its_lifeline() {
        use std::process::{Command, Stdio};
        let (a, b) = pair().unwrap();
        let (a, told) = watched(a);
        let mut child =
            Command::new("sleep").arg("1000").stdin(Stdio::from(b)).spawn().expect("sleep");
        assert!(!a.peer_has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(told.recv_timeout(WATCHDOG), Ok(PeerEvent::Ended));
    }
}
