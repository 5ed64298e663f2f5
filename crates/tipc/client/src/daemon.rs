//! This process's connection to a `tipcd`.

use std::collections::{HashMap, VecDeque};
use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, SocketType};
use crossway_sys::words::{SharedWords, WatchedWords};
use crossway_sys::{Errno, fdpass};

use crate::error::Error;
use crate::protocol::control::{LEN_MAX, Reader, Request, VERSION_MISMATCH, Welcome};
use crate::protocol::refusal::Refusal;
use crate::protocol::{VERSION, epoch, slot};

/// Environment variable with the path of a tipcd's socket.
pub const SOCKET_VARIABLE: &str = "TIPCD_SOCKET";

/// Error text for a closed connection.
const ENDED: &str = "has ended";

/// A tipcd answers immediately; if it takes longer than this, it hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Default path of a tipcd's socket, for clients and for the tipcd itself: `$TIPCD_SOCKET`; for root `/run/tipcd.sock`; otherwise
/// `tipcd.sock` in `$XDG_RUNTIME_DIR` if it exists there, or `/run/tipcd.sock`. Root of a user namespace only counts as root if it
/// owns `/run`.
pub fn default_path() -> PathBuf {
    if let Some(path) = env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let system = PathBuf::from("/run/tipcd.sock");
    let own = env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("tipcd.sock"));
    match own {
        // A node for the whole host is preferred; an unprivileged user can start a node of their own.
        Some(own) if own.exists() || !(system.exists() || owns(Path::new("/run"))) => own,
        _ => system,
    }
}

/// Whether this process's user owns a directory. In a user namespace, root does not own the files of the host's root.
fn owns(dir: &Path) -> bool {
    dir.metadata().is_ok_and(|dir| dir.uid() == crossway_sys::proc::effective_user())
}

/// An answer without its errno.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// The control connection. Only one request is pending at a time.
#[derive(Debug)]
struct Control {
    fd: OwnedFd,
    /// The caller whose answer has not been received yet.
    owed: Option<Claim>,
    /// Answers received before another request was sent, until they are fetched.
    kept: VecDeque<(Claim, Result<Answer, Errno>)>,
}

/// A request whose answer is fetched later, by the token of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// For lanes.
    Lanes(u64),
    /// A request to receive through the lane. The socket's shared words also show when this has begun, so the socket may never fetch the answer.
    LaneDown(u64),
    /// For the sending end of the peer's direct lane.
    Outlet(u64),
    /// A late answer, or one for a socket that was closed: it will not be fetched.
    Nobody,
}

/// Error text for a tipcd that did not answer in time.
const LATE: &str = "does not answer";

/// Maximum number of answers kept; older ones are dropped if they are not fetched.
const KEPT_MAX: usize = 16;

impl Control {
    /// Waits for the pending answer, and keeps it if it may be fetched.
    fn settle(&mut self, limit: Duration) -> Result<(), &'static str> {
        if let Some(claim) = self.owed {
            let answer = outcome(await_answer(&self.fd, limit)?);
            self.owed = None;
            match claim {
                Claim::LaneDown(_) if answer.is_ok() => {}
                Claim::Nobody => {}
                Claim::Lanes(_) | Claim::LaneDown(_) | Claim::Outlet(_) => {
                    if self.kept.len() == KEPT_MAX {
                        self.kept.pop_front();
                    }
                    self.kept.push_back((claim, answer));
                }
            }
        }
        Ok(())
    }

    /// Sends a request whose answer is fetched later. Returns false if it cannot be sent now.
    ///
    /// An answer that another socket has not fetched is received here: that socket may make no further call.
    fn ask_later(&mut self, request: &[u8], claim: Claim) -> bool {
        if self.owed.is_some() {
            let there = wait_ready(&self.fd, Interest::Readable, Some(Instant::now()));
            let room = self.kept.len() < KEPT_MAX;
            if !(room && there == Ok(true) && self.settle(ANSWER_LIMIT).is_ok()) {
                return false;
            }
        }
        let sent = fdpass::try_send(&self.fd, request, &[]).is_ok();
        if sent {
            self.owed = Some(claim);
        }
        sent
    }

    /// The answer to an earlier request, if it arrives by `until`.
    fn fetch(&mut self, claim: Claim, until: Instant) -> Option<Result<Answer, Errno>> {
        if self.owed == Some(claim) {
            match wait_ready(&self.fd, Interest::Readable, Some(until)) {
                Ok(false) => return None,
                _ => match await_answer(&self.fd, ANSWER_LIMIT) {
                    Ok(answer) => {
                        self.owed = None;
                        return Some(outcome(answer));
                    }
                    Err(_) => return Some(Err(Errno::NETDOWN)),
                },
            }
        }
        let place = self.kept.iter().position(|(of, _)| *of == claim)?;
        self.kept.remove(place).map(|(_, answer)| answer)
    }

    /// Drops the answers to a socket's requests.
    fn forget(&mut self, token: u64) {
        let is_its = |claim: Claim| {
            let (Claim::Lanes(of) | Claim::LaneDown(of) | Claim::Outlet(of)) = claim else {
                return false;
            };
            of == token
        };
        self.kept.retain(|(claim, _)| !is_its(*claim));
        if self.owed.is_some_and(is_its) {
            self.owed = Some(Claim::Nobody);
        }
    }

    /// Sends a request and waits for its answer. If the answer is late, it is not mistaken for the answer to the next request.
    fn exchange(&mut self, request: &[u8], limit: Duration) -> Result<(i32, Answer), &'static str> {
        self.settle(limit)?;
        let answer = exchange(&self.fd, request, limit);
        if matches!(answer, Err(LATE)) {
            self.owed = Some(Claim::Nobody);
        }
        answer
    }
}

/// A connection to one tipcd.
#[derive(Debug)]
pub(crate) struct Daemon {
    path: PathBuf,
    pid: u32,
    control: Mutex<Control>,
    slots: SharedWords,
    epochs: WatchedWords,
    lane_after: u32,
}

static DAEMONS: LazyLock<Mutex<HashMap<PathBuf, Arc<Daemon>>>> = LazyLock::new(Mutex::default);

fn daemons() -> MutexGuard<'static, HashMap<PathBuf, Arc<Daemon>>> {
    DAEMONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Daemon {
    /// This process's connection to the tipcd at `path`, established if there is none yet.
    pub(crate) fn at(path: &Path) -> Result<Arc<Self>, Error> {
        let mut daemons = daemons();
        if let Some(daemon) = daemons.get(path)
            // A child process must not use its parent's connection, because their answers would get mixed up.
            && daemon.pid == std::process::id()
            && !socket_ended(&daemon.lock().fd)
        {
            return Ok(daemon.clone());
        }
        let daemon = Arc::new(Self::connect(path)?);
        daemons.insert(path.to_owned(), daemon.clone());
        Ok(daemon)
    }

    fn connect(path: &Path) -> Result<Self, Error> {
        let fd = socket::unix(SocketType::Seqpacket)?;
        let address = socket::path_address(path)
            .map_err(|_| Error::call("the tipcd's socket", path.display(), Errno::NAMETOOLONG))?;
        socket::connect(&fd, &address).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Error::NotPermitted { path: path.to_owned() },
            errno => Error::NoDaemon { path: path.to_owned(), source: errno.into() },
        })?;
        let gone = |what| Error::DaemonGone { path: path.to_owned(), what };
        let turned_away = |why| Error::TurnedAway { path: path.to_owned(), why };
        let (errno, mut answer) = say_hello(&fd)
            .map_err(|what| if what == ENDED { turned_away(None) } else { gone(what) })?;
        let mut reader = Reader::new(&answer.bytes);
        match errno {
            0 => {}
            VERSION_MISMATCH => {
                let theirs = reader.u32().and_then(|v| u16::try_from(v).ok()).unwrap_or(0);
                return Err(Error::Version { path: path.to_owned(), ours: VERSION, theirs });
            }
            errno => {
                if let Some(why) = Refusal::from_errno(errno) {
                    return Err(turned_away(Some(why)));
                }
                let errno = Errno::from_raw_os_error(errno);
                return Err(Error::call("connect", path.display(), errno));
            }
        }
        let welcome = Welcome::decode(&mut reader).ok_or_else(|| gone("sent an invalid answer"))?;
        let (Some(epochs), Some(slots)) = (answer.fds.pop(), answer.fds.pop()) else {
            return Err(gone("answered without its shared memory"));
        };
        Ok(Self {
            path: path.to_owned(),
            pid: std::process::id(),
            control: Mutex::new(Control { fd, owed: None, kept: VecDeque::new() }),
            slots: SharedWords::open(slots, welcome.slots as usize * slot::WORDS)?,
            epochs: WatchedWords::open(epochs, epoch::COUNT)?,
            lane_after: welcome.lane_after,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the slot is within the client's region; a tipcd may have named one beyond it.
    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        self.slots.has(slot as usize * slot::WORDS + slot::WORDS - 1)
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32, word: usize) -> &std::sync::atomic::AtomicU64 {
        self.slots.word(slot as usize * slot::WORDS + word)
    }

    /// Number of messages after which a socket requests lanes; 0 for never.
    #[inline]
    pub(crate) const fn lane_after(&self) -> u32 {
        self.lane_after
    }

    #[inline]
    pub(crate) fn epoch(&self, index: usize) -> u64 {
        self.epochs.load(index)
    }

    /// Sends a request and waits for the answer. The errno is the tipcd's.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Answer, Errno> {
        if self.pid != std::process::id() {
            // After a fork, use the child's own connection; it refers to the parent's sockets by their tokens.
            return Self::at(&self.path).map_err(|error| error.errno())?.ask(request);
        }
        let mut control = self.lock();
        outcome(control.exchange(&request.encode(), ANSWER_LIMIT).map_err(|_| Errno::NETDOWN)?)
    }

    /// Sends a request whose answer is fetched later. Returns false if it cannot be sent now.
    ///
    /// # Errors
    /// EOPNOTSUPP in a child process after a fork, which must not use this connection.
    pub(crate) fn ask_later(&self, request: &Request<'_>, claim: Claim) -> Result<bool, Errno> {
        if self.pid != std::process::id() {
            return Err(Errno::OPNOTSUPP);
        }
        let Ok(mut control) = self.control.try_lock() else { return Ok(false) };
        Ok(control.ask_later(&request.encode(), claim))
    }

    /// The answer to a request sent with [`Daemon::ask_later`], if it arrives by `until`.
    pub(crate) fn fetch(&self, claim: Claim, until: Instant) -> Option<Result<Answer, Errno>> {
        if self.pid != std::process::id() {
            return Some(Err(Errno::OPNOTSUPP));
        }
        self.control.try_lock().ok()?.fetch(claim, until)
    }

    /// Drops the answers to the requests of a socket that is closed.
    pub(crate) fn forget(&self, token: u64) {
        // In a child process after a fork, another thread may have held the lock.
        if self.pid == std::process::id() {
            self.lock().forget(token);
        }
    }
}

fn socket_ended(fd: &OwnedFd) -> bool {
    crossway_sys::poll::is_hung_up(fd) != Ok(false)
}

/// Sends a request and waits for its answer: the errno, and what follows it.
fn exchange(fd: &OwnedFd, request: &[u8], limit: Duration) -> Result<(i32, Answer), &'static str> {
    fdpass::send(fd, request, &[]).map_err(|_| ENDED)?;
    await_answer(fd, limit)
}

/// Sends the first request. A program that is refused receives its answer without having sent anything, and may be unable to send.
fn say_hello(fd: &OwnedFd) -> Result<(i32, Answer), &'static str> {
    let _ = fdpass::send(fd, &Request::Hello { version: VERSION }.encode(), &[]);
    match await_answer(fd, ANSWER_LIMIT) {
        // If the tipcd closed the connection without reading the hello, the error is reported once; the answer follows.
        Err(ENDED) => await_answer(fd, ANSWER_LIMIT),
        answer => answer,
    }
}

fn outcome((errno, answer): (i32, Answer)) -> Result<Answer, Errno> {
    if errno == 0 { Ok(answer) } else { Err(Errno::from_raw_os_error(errno)) }
}

fn await_answer(fd: &OwnedFd, limit: Duration) -> Result<(i32, Answer), &'static str> {
    match wait_ready(fd, Interest::Readable, Some(Instant::now() + limit)) {
        Ok(true) => {}
        Ok(false) => return Err(LATE),
        Err(_) => return Err(ENDED),
    }
    let mut bytes = vec![0; LEN_MAX.min(4096)];
    let mut fds = Vec::new();
    let len = fdpass::receive(fd, &mut bytes, &mut fds, true).map_err(|_| ENDED)?;
    bytes.truncate(len);
    let Some((errno, rest)) = bytes.split_first_chunk() else { return Err(ENDED) };
    Ok((i32::from_ne_bytes(*errno), Answer { bytes: rest.to_vec(), fds }))
}

#[cfg(test)]
mod tests {
    use crossway_sys::socket::unix_pair;

    use super::*;
    use crate::protocol::control::Writer;

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
        let (fd, tipcd) = unix_pair(SocketType::Seqpacket).unwrap();
        let mut control = Control { fd, owed: None, kept: VecDeque::new() };
        let ask = |control: &mut Control, limit| {
            control.exchange(b"?", limit).map(|(_, answer)| answer.bytes)
        };
        let says = |number: u32| {
            fdpass::send(&tipcd, &Writer::answer(0).u32(number).finish(), &[]).unwrap();
        };
        assert_eq!(ask(&mut control, Duration::ZERO), Err(LATE));
        // The first answer is still pending at the second request.
        assert_eq!(ask(&mut control, Duration::ZERO), Err(LATE));
        says(1);
        says(2);
        assert_eq!(ask(&mut control, ANSWER_LIMIT), Ok(2_u32.to_ne_bytes().to_vec()));
        assert!(control.kept.is_empty());
    }

    #[test]
    fn an_answer_that_nobody_fetches_does_not_delay_the_requests_of_other_sockets() {
        let (fd, tipcd) = unix_pair(SocketType::Seqpacket).unwrap();
        let mut control = Control { fd, owed: None, kept: VecDeque::new() };
        let says = |errno: i32| {
            fdpass::send(&tipcd, &Writer::answer(errno).u32(7).finish(), &[]).unwrap();
        };
        let now = Instant::now();
        assert!(control.ask_later(b"?", Claim::LaneDown(1)));
        assert!(!control.ask_later(b"?", Claim::Lanes(2)), "one request at a time");
        says(0);
        assert!(control.ask_later(b"?", Claim::Lanes(2)));
        assert!(control.kept.is_empty(), "the first socket sees in its words that it has begun");
        says(0);
        assert!(control.ask_later(b"?", Claim::Lanes(3)));
        assert!(control.fetch(Claim::Lanes(3), now).is_none(), "not there yet");
        assert_eq!(control.fetch(Claim::Lanes(2), now).unwrap().unwrap().bytes.len(), 4);
        // The third is closed before its answer comes.
        control.forget(3);
        says(0);
        assert!(control.ask_later(b"?", Claim::LaneDown(4)));
        assert!(control.kept.is_empty());
        says(Errno::AGAIN.raw_os_error());
        assert!(control.ask_later(b"?", Claim::Nobody));
        assert_eq!(control.fetch(Claim::LaneDown(4), now).unwrap().unwrap_err(), Errno::AGAIN);
        // There is no room for more, and none is dropped.
        for token in 0..KEPT_MAX as u64 {
            says(0);
            assert!(control.ask_later(b"?", Claim::Lanes(token)));
        }
        says(0);
        assert!(control.ask_later(b"?", Claim::Lanes(99)));
        says(0);
        assert!(!control.ask_later(b"?", Claim::Lanes(100)));
        assert!(control.fetch(Claim::Lanes(0), now).is_some());
        control.forget(1);
        assert!(control.ask_later(b"?", Claim::Lanes(100)));
    }
}
