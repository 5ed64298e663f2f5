//! Streams that wait for the listening program to accept the connection that they carry.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crossway_sys::sock_diag::{self, Transport};
use crossway_sys::socket::internet;
use crossway_tipc_client::Socket;

use super::{Porter, lock};

/// How long a claim waits for the word of the other host, which comes right after TCP has
/// connected.
const WORD: Duration = Duration::from_secs(2);
/// How long a program may take from accepting a connection to claiming its stream, on a busy
/// machine.
const CLAIM: Duration = Duration::from_secs(10);

/// How far the two ends have got.
#[derive(Debug)]
pub(super) enum Stage {
    /// TCP is about to connect.
    Dialled,
    /// Both hosts have the TCP connection. Since this time, it does not wait to be accepted.
    Confirmed(Socket, Option<Instant>),
    /// It was claimed, or the other end has withdrawn.
    Over,
}

/// A connection that another porter has announced.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) connecting: SocketAddr,
    pub(super) listening: SocketAddr,
    pub(super) stage: Mutex<Stage>,
    /// Notified when the stage changes.
    pub(super) changed: Condvar,
}

impl Held {
    pub(super) fn new(connecting: SocketAddr, listening: SocketAddr) -> Self {
        let (stage, changed) = (Mutex::new(Stage::Dialled), Condvar::new());
        Self { connecting, listening, stage, changed }
    }

    /// The connection's entry in this host's table of TCP connections: whether there is one, and
    /// whether it was accepted.
    pub(super) fn is_here(&self, table: &[sock_diag::InetSocket]) -> Option<bool> {
        let mut entries = table.iter();
        let entry = entries.find(|socket| {
            internet::plain(socket.local) == self.listening
                && internet::plain(socket.remote) == self.connecting
        });
        // What no program has accepted has no file.
        entry.map(|socket| socket.inode != 0)
    }
}

impl Porter {
    /// Returns the stream of a connection that a program has accepted, once.
    pub(super) fn claim(&self, own: SocketAddr, peer: SocketAddr) -> Option<Socket> {
        let is_it = |held: &&Arc<Held>| held.listening == own && held.connecting == peer;
        let held = lock(&self.held).iter().find(is_it).cloned()?;
        let until = Instant::now() + WORD;
        let mut stage = lock(&held.stage);
        // After that time, the claim withdraws: the other host finds it so when it gives its word.
        while matches!(*stage, Stage::Dialled)
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            let woken = held.changed.wait_timeout(stage, left);
            (stage, _) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Confirmed(stream, _) => Some(stream),
            _ => None,
        }
    }

    /// Ends the streams that nobody will claim: of connections that have ended, and of those that a
    /// program has accepted in a way that its library does not see (by io_uring, or by an own
    /// system call). The connecting program finds a reset.
    pub(super) fn look_after_held(&self) {
        let waiting: Vec<Arc<Held>> = {
            let mut held = lock(&self.held);
            held.retain(|held| !matches!(*lock(&held.stage), Stage::Over));
            let waits = |held: &&Arc<Held>| matches!(*lock(&held.stage), Stage::Confirmed(..));
            held.iter().filter(waits).cloned().collect()
        };
        if waiting.is_empty() {
            return;
        }
        // Later than the choice: it has all their connections, unless the kernel misses one while
        // others come and go.
        let Ok(table) = sock_diag::inet_sockets(Transport::Tcp) else { return };
        for held in waiting {
            let mut stage = lock(&held.stage);
            let Stage::Confirmed(_, since) = &mut *stage else { continue };
            if held.is_here(&table) == Some(false) {
                *since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() > CLAIM {
                *stage = Stage::Over;
            }
        }
    }
}
