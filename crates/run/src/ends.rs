//! What is done for the connecting and for the accepting end of a connection before the programs see it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, internet, twin};
use crossway_sys::{Errno, proc, random};

use crate::name::Connection;
use crate::reason::{self, Reason};
use crate::rendezvous::{Claim, Note, Offer, Search, Table};

/// How long a blocking connect waits for the other program to accept. The connection is established then, so a program that
/// connects and accepts in one thread merely loses this time, and only until its listener is known to be slow.
const PATIENCE: Duration = Duration::from_millis(30);
/// The same for a non-blocking connect.
const HASTE: Duration = Duration::from_millis(10);
/// How long the other program may take between claiming and deciding, which are a few system calls.
const DECISION: Duration = Duration::from_millis(5);

/// How long an accepting program waits for one that announced a connection to write its addresses.
const ANNOUNCED: Duration = Duration::from_millis(10);
/// How often it looks.
const PAUSE: Duration = Duration::from_micros(10);

/// How long all of these are instead, for tests on loaded machines, which also move connections that live shortly.
const PATIENCE_VARIABLE: &str = "CROSSWAY_RUN_PATIENCE_MS";

/// What carries a connection that has been moved.
pub const MOVED: &str = "a UNIX stream pair in place of TCP: both programs run with crossway run";

fn set_patience() -> Option<u64> {
    static SET: OnceLock<Option<u64>> = OnceLock::new();
    *SET.get_or_init(|| std::env::var(PATIENCE_VARIABLE).ok()?.parse().ok())
}

fn patience(otherwise: Duration) -> Duration {
    set_patience().map_or(otherwise, Duration::from_millis)
}

/// Whether connections are moved although they live shortly. The first call reads the environment.
pub fn is_patient() -> bool {
    set_patience().is_some()
}

/// What a connecting end offers to the accepting one. When the other end has decided, nothing more can fail than accepting
/// the stream.
#[derive(Debug)]
pub struct Connecting {
    note: Note,
    /// Listens for the UNIX stream.
    mailbox: OwnedFd,
}

impl Connecting {
    /// Prepares an offer for a TCP socket that is about to be connected; `six`: it is an IPv6 socket.
    ///
    /// # Errors
    /// Why the connection cannot be moved.
    pub fn new(socket: impl AsFd, six: bool) -> Result<Self, Reason> {
        let full = "no descriptor is free";
        let network = twin::network(socket).map_err(|_| "the kernel is older than 5.14")?;
        let mailbox = twin::stream().map_err(|_| full)?;
        let named = socket::bind(&mailbox, &socket::unnamed_address(), "")
            .and_then(|()| socket::listen(&mailbox, 4))
            .and_then(|()| socket::local_address(&mailbox));
        let name = named.ok().and_then(|address| socket::abstract_name(&address));
        let name = name.and_then(|name| name.try_into().ok());
        let note = Note {
            network,
            secret: random::unguessable().map_err(|_| "no random number")?,
            mailbox: name.ok_or("no UNIX socket")?,
            six,
        };
        Ok(Self { note, mailbox })
    }

    /// What the other end needs in order to connect.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// Waits until the other program has accepted the connection, which has these `ends` (own, peer), and returns the end of
    /// the UNIX stream. `place` holds a number for it, and is closed when it is there.
    ///
    /// # Errors
    /// Why the connection is not moved.
    pub fn wait(
        self,
        socket: impl AsFd,
        offer: &mut Offer<'_>,
        (own, peer): (SocketAddr, SocketAddr),
        is_nonblocking: bool,
        place: Option<OwnedFd>,
    ) -> Result<OwnedFd, Reason> {
        if !internet::stays_local(own.ip(), peer.ip()) {
            return Err(reason::ANOTHER_HOST);
        }
        if !offer.wait(own, peer) {
            return Err("connect took too long");
        }
        let until = Instant::now() + patience(if is_nonblocking { HASTE } else { PATIENCE });
        let Self { note, mailbox } = self;
        let mut place = place;
        // TCP does not wake this: the other program's end is seen at the deadline at the latest.
        let end = receive(&mailbox, note.secret, until, &mut place);
        let decision = Instant::now() + patience(DECISION);
        while end.is_some() && !offer.is_agreed() && Instant::now() < decision {
            std::thread::yield_now();
        }
        if !offer.is_agreed() && offer.withdraw() {
            offer.judge(end.is_some());
            return Err(
                "the other program did not accept in time, or does not run with crossway run",
            );
        }
        offer.judge(true);
        // It may have decided at the last moment.
        let end = end.or_else(|| receive(&mailbox, note.secret, until + DECISION, &mut place));
        end.ok_or_else(|| {
            // Another thread has taken the last descriptor, or the other program was killed.
            socket::shutdown_send(&socket);
            socket::shutdown_recv(&socket);
            "the UNIX stream was lost, so the connection ends"
        })
    }
}

/// Accepts the UNIX stream that the other program connects, by its secret; any other one is closed. `None` if it does not come
/// in time. `place` gives up its number for it, not before it is there, because other threads may take every number that is
/// free; if one has taken this one, it may return it.
fn receive(
    mailbox: &OwnedFd,
    secret: u64,
    until: Instant,
    place: &mut Option<OwnedFd>,
) -> Option<OwnedFd> {
    while wait_ready(mailbox, Interest::Readable, Some(until)) == Ok(true) {
        drop(place.take());
        let end = match twin::accept_now(mailbox) {
            Err(Errno::MFILE) if Instant::now() < until => {
                std::thread::sleep(PAUSE);
                continue;
            }
            outcome => outcome.ok()?,
        };
        let name = socket::peer_address(&end).ok().and_then(|a| socket::abstract_name(&a));
        let shown = name.and_then(|name| Connection::of(&name)).map(|(_, secret)| secret);
        if shown == Some(secret) && is_of_this_user(&end) {
            return Some(end);
        }
    }
    None
}

fn is_of_this_user(end: impl AsFd) -> bool {
    socket::peer_credentials(end).is_ok_and(|peer| peer.uid == proc::effective_user())
}

/// Claims the offer of the program that has connected `socket`, which has been accepted, with its `own` and its `peer`'s
/// address. Waits for a moment if that program has announced to connect. `None`: there is no offer.
pub fn claim(
    table: &Table,
    socket: impl AsFd,
    own: SocketAddr,
    peer: SocketAddr,
) -> Option<Claim<'_>> {
    let network = twin::network(socket).ok()?;
    if !internet::stays_local(own.ip(), peer.ip()) {
        return None;
    }
    let limit = patience(ANNOUNCED);
    let until = Instant::now() + limit;
    loop {
        match table.claim(network, peer, own, limit) {
            Search::Found(claim) => return Some(claim),
            // The connecting program needs a few microseconds, but may have lost its CPU to this one.
            Search::Announced if Instant::now() < until => std::thread::sleep(PAUSE),
            Search::Announced | Search::None => return None,
        }
    }
}

/// The accepted end of a pair, which is connected to the other program and non-blocking. The connection is moved if the claim
/// is agreed on after this.
///
/// # Errors
/// Why the connection cannot be moved.
pub fn accepted_end(
    socket: impl AsFd,
    claim: &Claim<'_>,
    own: SocketAddr,
    peer: SocketAddr,
) -> Result<OwnedFd, Reason> {
    let families = u8::from(twin::is_six(socket)) | u8::from(claim.note.six) << 1;
    let name = Connection { accepted: own, connecting: peer, families }.name(claim.note.secret);
    let failed = |_| "no UNIX stream, or no descriptor is free";
    let name = socket::abstract_address(&name).map_err(failed)?;
    let mailbox = socket::abstract_address(&claim.note.mailbox).map_err(failed)?;
    let end = twin::stream().map_err(|_| "no UNIX stream, or no descriptor is free")?;
    socket::bind(&end, &name, "").map_err(failed)?;
    // Strangers may fill the other program's listener for a moment.
    let until = Instant::now() + patience(DECISION);
    loop {
        match socket::connect(&end, &mailbox) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(_) => return Err(reason::WITHDRAWN),
        }
    }
    if !is_of_this_user(&end) {
        return Err("the other program belongs to another user");
    }
    Ok(end)
}

/// The TCP connection that an end of a pair stands for, and whether it is the accepted end.
pub fn connection_of(end: impl AsFd) -> Option<(Connection, bool)> {
    let named = |address: Result<socket::Address, _>| {
        Connection::of(&socket::abstract_name(&address.ok()?)?).map(|(connection, _)| connection)
    };
    if let Some(connection) = named(socket::local_address(&end)) {
        return Some((connection, true));
    }
    named(socket::peer_address(&end)).map(|connection| (connection, false))
}
