//! The process's connection to tipcd, and the memory that the process shares with tipcd.
//!
//! The connection's descriptor belongs to this library. It has a high number, and the program cannot close or replace
//! it by its number.

use std::ffi::c_int;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket;
use crossway_sys::words::{SharedWords, WatchedWords};
use crossway_sys::{Errno, fdpass, records};
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::{epoch, slot, traffic};
use crossway_tipc_client::{Error, Greeted, greet};

use crate::ffi;
use crate::process::{self, Own};

/// Time limit for an answer. tipcd normally answers immediately; if it takes longer than this, it is assumed to hang.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Error text for a closed connection.
const ENDED: &str = "has ended";

/// Maximum number of regions that a process can use: its own, those of its ancestors, and those of adopted sockets. A
/// region is memory that contains the slots of all sockets opened through one connection.
const REGIONS: usize = 1024;

/// A table of mapped memory, identified by the inode numbers of its files. Entries are only added, never removed, and
/// only while the lock of [`Own`] is held.
struct Maps<T, const N: usize> {
    inodes: [AtomicU64; N],
    maps: [OnceLock<T>; N],
}

impl<T, const N: usize> Maps<T, N> {
    const fn new() -> Self {
        Self { inodes: [const { AtomicU64::new(0) }; N], maps: [const { OnceLock::new() }; N] }
    }

    /// Index of the memory behind a descriptor. If it is not in the table yet, `open` maps it. `None` if this fails or
    /// the table is full.
    fn place(&self, fd: OwnedFd, open: impl FnOnce(&OwnedFd) -> Option<T>) -> Option<usize> {
        let file = File::from(fd);
        let inode = file.metadata().ok()?.ino();
        for (place, (known, map)) in self.inodes.iter().zip(&self.maps).enumerate() {
            if map.get().is_none() {
                map.set(open(&file.into())?).ok()?;
                known.store(inode, Ordering::Release);
                return Some(place);
            }
            if known.load(Ordering::Acquire) == inode {
                return Some(place);
            }
        }
        None
    }
}

static REGIONS_HERE: Maps<SharedWords, REGIONS> = Maps::new();
static EPOCHS: Maps<WatchedWords, 256> = Maps::new();
/// Index in `EPOCHS` of the memory that contains the epoch counters of the current tipcd.
static EPOCHS_NOW: AtomicU64 = AtomicU64::new(0);

static TRAFFIC: Maps<SharedWords, 256> = Maps::new();
/// Index in `TRAFFIC` of the current tipcd's memory, plus 1; 0 before the first connection.
static TRAFFIC_NOW: AtomicUsize = AtomicUsize::new(0);

/// Descriptor of this process's connection to tipcd or, directly after a fork, of its parent's; -1 if there is none.
static HIDDEN: AtomicI32 = AtomicI32::new(-1);
/// The kernel's cookie (SO_COOKIE) of the connection's socket: it shows whether the descriptor of this number is still
/// that socket.
static HIDDEN_COOKIE: AtomicU64 = AtomicU64::new(0);

/// An answer from tipcd, with the descriptors passed with it.
pub(crate) struct Answer {
    bytes: [u8; 256],
    len: usize,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Answer {
    /// The bytes that follow the errno in the answer.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(4..self.len).unwrap_or_default()
    }
}

/// Path of tipcd's socket.
pub(crate) fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(crossway_tipc_client::default_path)
}

/// Maps a region with this number of slots and returns its index; `None` if this fails.
pub(crate) fn map_region(fd: OwnedFd, slots: u32) -> Option<u32> {
    let words = slots as usize * slot::WORDS;
    let place = REGIONS_HERE.place(fd, |fd| SharedWords::open(fd, words).ok())?;
    u32::try_from(place).ok()
}

/// Whether a region exists and has a slot with this number.
pub(crate) fn has_slot(region: u32, slot: u32) -> bool {
    let region = REGIONS_HERE.maps.get(region as usize).and_then(OnceLock::get);
    region.is_some_and(|r| r.has(slot as usize * slot::WORDS + slot::WORDS - 1))
}

/// A word of a region; a dummy word if the region or the word does not exist.
pub(crate) fn region_word(region: u32, word: usize) -> &'static AtomicU64 {
    static NOTHING: AtomicU64 = AtomicU64::new(0);
    match REGIONS_HERE.maps.get(region as usize).and_then(OnceLock::get) {
        Some(region) if region.has(word) => region.word(word),
        _ => &NOTHING,
    }
}

/// Returns the value of an epoch counter (0 before the first connection to tipcd), and an identifier of the tipcd to
/// which it belongs.
pub(crate) fn epoch(index: usize) -> (u64, u64) {
    let now = EPOCHS_NOW.load(Ordering::Acquire);
    let epochs = EPOCHS.maps.get(now as usize).and_then(OnceLock::get);
    (epochs.map_or(0, |epochs| epochs.load(index % epoch::COUNT)), now)
}

/// Applies a function to the words that show what is on its way; returns `None` before the first connection to tipcd.
#[inline]
pub(crate) fn with_traffic<R>(what: impl FnOnce(&SharedWords) -> R) -> Option<R> {
    let now = TRAFFIC_NOW.load(Ordering::Acquire).checked_sub(1)?;
    TRAFFIC.maps.get(now)?.get().map(what)
}

/// Whether a descriptor is the library's own connection to tipcd.
pub(crate) fn is_hidden(fd: c_int) -> bool {
    fd >= 0 && HIDDEN.load(Ordering::Relaxed) == fd && is_connection(fd)
}

/// The library's own descriptor, if it is in this range.
pub(crate) fn hidden_in(first: c_int, last: c_int) -> Option<c_int> {
    let fd = HIDDEN.load(Ordering::Relaxed);
    (fd >= first && fd <= last && is_hidden(fd)).then_some(fd)
}

fn is_connection(fd: c_int) -> bool {
    ffi::borrow(fd)
        .and_then(|fd| socket::cookie(fd).ok())
        .is_some_and(|cookie| cookie == HIDDEN_COOKIE.load(Ordering::Relaxed))
}

/// Moves the library's own descriptor to another number, so that the program can use the old one.
pub(crate) fn step_aside() {
    let Some(own) = process::own() else { return };
    ffi::without_signals(|| {
        let _locked = own.lock();
        let old = HIDDEN.load(Ordering::Relaxed);
        if let Some(new) = ffi::copy_high(old) {
            HIDDEN.store(new, Ordering::Relaxed);
            if own.control.load(Ordering::Relaxed) != 0 {
                own.control.store(new.unsigned_abs() + 1, Ordering::Relaxed);
            }
            ffi::close_really(old);
        }
    });
}

/// Sends a request to tipcd and waits for the answer. Fails with the errno in the answer; with EAFNOSUPPORT, EACCES or
/// EPROTO if tipcd cannot be reached, denies access or has another version; with ENETDOWN if it has ended, does not
/// answer or does not know the socket.
pub(crate) fn ask(request: &Request<'_>, tail: &[IoSlice<'_>]) -> Result<Answer, Errno> {
    ask_with(request, tail, None)
}

/// Like [`ask`], but also passes a descriptor to tipcd.
pub(crate) fn show(request: &Request<'_>, fd: BorrowedFd<'_>) -> Result<Answer, Errno> {
    ask_with(request, &[], Some(fd))
}

fn ask_with(
    request: &Request<'_>,
    tail: &[IoSlice<'_>],
    fd: Option<BorrowedFd<'_>>,
) -> Result<Answer, Errno> {
    let own = process::own().ok_or(Errno::NOMEM)?;
    ffi::without_signals(|| {
        let _locked = own.lock();
        let mut old = own.control.load(Ordering::Relaxed) != 0;
        loop {
            let control = connection(&own).map_err(|error| {
                complain(&error);
                match error {
                    Error::NotPermitted { .. }
                    | Error::Version { .. }
                    | Error::DaemonGone { .. } => error.errno(),
                    // The errno of a kernel without TIPC.
                    _ => Errno::AFNOSUPPORT,
                }
            })?;
            let control = ffi::borrow(control).ok_or(Errno::NETDOWN)?;
            match exchange(control, request, tail, fd) {
                Ok((0, answer)) => return Ok(answer),
                Ok((errno, _)) => {
                    return Err(match Errno::from_raw_os_error(errno) {
                        // A socket unknown to this tipcd was opened with an earlier one.
                        Errno::BADF if fd.is_none() => Errno::NETDOWN,
                        errno => errno,
                    });
                }
                Err(_) => {
                    part(&own);
                    // A new socket does not need the previous tipcd.
                    let new = matches!(request, Request::Open { .. } | Request::Adopt);
                    if !(std::mem::take(&mut old) && new) {
                        return Err(Errno::NETDOWN);
                    }
                }
            }
        }
    })
}

/// The process ID of the running tipcd, as this process sees it; `None` if this process cannot connect to one.
pub(crate) fn tipcd() -> Option<u32> {
    let own = process::own()?;
    ffi::without_signals(|| {
        let _locked = own.lock();
        let control = ffi::borrow(connection(&own).ok()?)?;
        Some(socket::peer_credentials(control).ok()?.pid)
    })
}

/// Index of the region that holds the slots of new sockets; `None` before the first connection to tipcd.
pub(crate) fn own_region() -> Option<u32> {
    process::own()?.region.load(Ordering::Relaxed).checked_sub(1)
}

/// Closes the connection to tipcd.
fn part(own: &Own) {
    let fd = HIDDEN.swap(-1, Ordering::Relaxed);
    own.control.store(0, Ordering::Relaxed);
    if fd >= 0 && is_connection(fd) {
        ffi::close_really(fd);
    }
}

/// Returns the descriptor of this process's connection to tipcd, which it establishes if there is none.
fn connection(own: &Own) -> Result<c_int, Error> {
    // This call also detects a fork.
    let borrowed = own.is_borrowed();
    if let Some(fd) = own.control.load(Ordering::Relaxed).checked_sub(1)
        && let Ok(fd) = c_int::try_from(fd)
        && (borrowed || is_connection(fd))
    {
        return Ok(fd);
    }
    // The connection belongs to the parent: its answers are not for this process.
    part(own);
    connect(own)
}

fn connect(own: &Own) -> Result<c_int, Error> {
    let path = path();
    let Greeted { control: fd, welcome, slots, epochs } = greet(path)?;
    let gone = |what| Error::DaemonGone { path: path.clone(), what };
    let region = map_region(slots, welcome.slots);
    let epochs = EPOCHS.place(epochs, |fd| WatchedWords::open(fd, epoch::COUNT).ok());
    let (region, epochs) =
        region.zip(epochs).ok_or_else(|| gone("passed shared memory that cannot be used"))?;
    let on_its_way = exchange(fd.as_fd(), &Request::Traffic, &[], None).map_err(gone)?;
    let words = on_its_way
        .1
        .fds
        .into_iter()
        .next()
        .and_then(|fd| TRAFFIC.place(fd, |fd| SharedWords::open(fd, traffic::WORDS).ok()));
    let cookie = socket::cookie(&fd)?;
    let low = fd.into_raw_fd();
    let fd = ffi::copy_high(low).inspect(|_| ffi::close_really(low)).unwrap_or(low);
    HIDDEN_COOKIE.store(cookie, Ordering::Relaxed);
    HIDDEN.store(fd, Ordering::Relaxed);
    EPOCHS_NOW.store(epochs as u64, Ordering::Release);
    // A tipcd that has no descriptor left for this delivers a little later than a kernel.
    TRAFFIC_NOW.store(words.map_or(0, |place| place + 1), Ordering::Release);
    own.region.store(region + 1, Ordering::Relaxed);
    own.control.store(fd.unsigned_abs() + 1, Ordering::Relaxed);
    Ok(fd)
}

/// Sends a request and receives its answer. Returns the errno and the answer, or a text that says how tipcd failed.
fn exchange(
    control: BorrowedFd<'_>,
    request: &Request<'_>,
    tail: &[IoSlice<'_>],
    fd: Option<BorrowedFd<'_>>,
) -> Result<(i32, Answer), &'static str> {
    let head = request.head();
    let sent = match (fd, tail) {
        (Some(fd), _) => fdpass::try_send(control, head.bytes(), &[fd]),
        (None, []) => socket::send(control, head.bytes(), false),
        (None, tail) => {
            let mut parts = [IoSlice::new(&[]); 1 + MOST_PARTS];
            parts[0] = IoSlice::new(head.bytes());
            let count = tail.len().min(MOST_PARTS);
            parts[1..=count].copy_from_slice(&tail[..count]);
            records::send_parts(control, &parts[..=count], false)
        }
    };
    sent.map_err(|_| ENDED)?;
    receive(control)
}

/// Waits for an answer. Returns its errno and the answer, or a text that says how tipcd failed.
fn receive(control: BorrowedFd<'_>) -> Result<(i32, Answer), &'static str> {
    match wait_ready(control, Interest::Readable, Some(Instant::now() + ANSWER_LIMIT)) {
        Ok(true) => {}
        Ok(false) => return Err("does not answer"),
        Err(_) => return Err(ENDED),
    }
    let mut answer = Answer { bytes: [0; 256], len: 0, fds: Vec::new() };
    answer.len =
        fdpass::receive(control, &mut answer.bytes, &mut answer.fds, true).map_err(|_| ENDED)?;
    let errno = answer.bytes.first_chunk().filter(|_| answer.len >= 4).ok_or(ENDED)?;
    Ok((i32::from_ne_bytes(*errno), answer))
}

/// Maximum number of parts of the first message in a connection request.
pub(crate) const MOST_PARTS: usize = 16;

/// Reports once, on standard error, why TIPC is not available, because the program itself gets only an errno.
fn complain(error: &Error) {
    static TOLD: OnceLock<()> = OnceLock::new();
    if TOLD.set(()).is_ok() {
        eprintln!("crossway-tipc-preload: {error}");
    }
}
