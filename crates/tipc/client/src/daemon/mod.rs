//! This process's connection to a `tipcd`.

mod control;

use std::collections::HashMap;
use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::socket::{self, SocketType};
use crossway_sys::words::{SharedWords, WatchedWords};
use crossway_sys::{Errno, fdpass};

use crate::error::Error;
use crate::protocol::control::{Reader, Request, VERSION_MISMATCH, Welcome};
use crate::protocol::refusal::Refusal;
use crate::protocol::{VERSION, epoch, slot};

pub(crate) use control::{ANSWER_LIMIT, ENDED, outcome};
pub(crate) use control::{Answer, Claim};
use control::{Control, await_answer};

/// Environment variable that holds the path of a tipcd's socket.
pub const SOCKET_VARIABLE: &str = "TIPCD_SOCKET";

/// The default path of a tipcd's socket, for clients and for the tipcd itself: `$TIPCD_SOCKET` if that is not empty.
/// Otherwise `tipcd.sock` in `$XDG_RUNTIME_DIR`, if that folder is this user's own, and if that file exists, or if
/// `/run/tipcd.sock` does not exist and this user does not own `/run`. In all other cases `/run/tipcd.sock`.
pub fn default_path() -> PathBuf {
    if let Some(path) = env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let system = PathBuf::from("/run/tipcd.sock");
    let own = crossway_sys::trust::runtime_dir().map(|dir| dir.join("tipcd.sock"));
    match own {
        // A user's own node is preferred; where there is none, the node for the whole host is used, and an unprivileged
        // user can start a node of their own.
        Some(own) if own.exists() || !(system.exists() || owns(Path::new("/run"))) => own,
        _ => system,
    }
}

/// Whether this process's user owns a directory. Root of a user namespace does not own the files of the host's root.
fn owns(dir: &Path) -> bool {
    dir.metadata().is_ok_and(|dir| dir.uid() == crossway_sys::proc::effective_user())
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
    /// Returns this process's connection to the tipcd at `path`; connects if there is none, or if the tipcd has closed
    /// it.
    pub(crate) fn at(path: &Path) -> Result<Arc<Self>, Error> {
        let mut daemons = daemons();
        if let Some(daemon) = daemons.get(path)
            // A child process must not use its parent's connection, because their answers would get mixed up.
            && daemon.pid == std::process::id()
            && !daemon.lock().has_ended()
        {
            return Ok(daemon.clone());
        }
        let daemon = Arc::new(Self::connect(path)?);
        daemons.insert(path.to_owned(), daemon.clone());
        Ok(daemon)
    }

    fn connect(path: &Path) -> Result<Self, Error> {
        let Greeted { control, welcome, slots, epochs } = greet(path)?;
        Ok(Self {
            path: path.to_owned(),
            pid: std::process::id(),
            control: Mutex::new(Control::new(control)),
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

    /// Whether the slot is within the shared memory of this connection. A faulty tipcd may return a slot outside of it.
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

    /// Sends a request and waits for the answer. Fails with the tipcd's errno if that is not 0, and with ENETDOWN if
    /// there is no answer.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Answer, Errno> {
        if self.pid != std::process::id() {
            // After a fork, use the child's own connection; it refers to the parent's sockets by their tokens.
            return Self::at(&self.path).map_err(|error| error.errno())?.ask(request);
        }
        outcome(self.exchange(request, ANSWER_LIMIT).map_err(|_| Errno::NETDOWN)?)
    }

    /// Sends a request and waits for the answer, at most for `limit`. Returns the answer's errno and what follows it,
    /// or what the tipcd did instead: [`ENDED`], or it does not answer.
    pub(crate) fn exchange(
        &self,
        request: &Request<'_>,
        limit: Duration,
    ) -> Result<(i32, Answer), &'static str> {
        if self.pid != std::process::id() {
            return Self::at(&self.path).map_err(|_| ENDED)?.exchange(request, limit);
        }
        self.lock().exchange(&request.encode(), limit)
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

    /// Returns the answer to a request sent with [`Daemon::ask_later`]; `None` if it does not arrive by `until`, or if
    /// another thread uses the connection now.
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

/// A control connection that a tipcd has accepted, and what it has passed.
#[doc(hidden)]
#[derive(Debug)]
pub struct Greeted {
    /// The connection.
    pub control: OwnedFd,
    /// What the tipcd has said.
    pub welcome: Welcome,
    /// The memory with the slots of the sockets that are opened through the connection.
    pub slots: OwnedFd,
    /// The memory with the epochs.
    pub epochs: OwnedFd,
}

/// Connects to the tipcd at `path`.
///
/// # Errors
/// The reason why it cannot be used.
#[doc(hidden)]
pub fn greet(path: &Path) -> Result<Greeted, Error> {
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
        return Err(gone("answered without passing its shared memory"));
    };
    Ok(Greeted { control: fd, welcome, slots, epochs })
}

/// Sends the first request and waits for the answer. An error of the send is ignored: a tipcd that refuses a program
/// sends the reason without waiting for a request, and closes the connection.
fn say_hello(fd: &OwnedFd) -> Result<(i32, Answer), &'static str> {
    let _ = fdpass::send(fd, &Request::Hello { version: VERSION }.encode(), &[]);
    match await_answer(fd, ANSWER_LIMIT) {
        // If the tipcd closed the connection without reading the hello, the error is reported once; the answer follows.
        Err(ENDED) => await_answer(fd, ANSWER_LIMIT),
        answer => answer,
    }
}
