//! The porter: a process beside the programs of `crossway run --via tipc` that lets their TCP
//! connections to other hosts travel by TIPC. Programs reach it as [`via`](crate::via) says.
//!
//! Two porters agree on a connection before the programs see it (docs/decisions/0165):
//!
//! 1. The connecting program asks for a stream to the listening end. Its porter connects to the
//!    TIPC name of that address, which another porter has bound for a program that listens there,
//!    says between which addresses the connection will be, and gets yes.
//! 2. When TCP has connected, the connecting end says so on the stream. The other porter looks
//!    whether its own kernel has that TCP connection, and confirms. Until then, either end can
//!    withdraw, and both stay with TCP.
//! 3. The listening program has accepted the connection and claims the stream.

mod calls;
mod held;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, addresses, fdpass, proc, socket};
use crossway_tipc_client::{Backend, Error, Patience, Scope, ServiceRange, Socket, SocketKind};

use crate::via::{ASK_LEN, Ask};
use held::Held;

/// The TIPC service type under which porters can be reached. The instance is made from the address
/// that a program listens on.
const SERVICE: u32 = 0x6372_7677;
/// How long a porter without programs waits for one: for the first, or for a program that replaces
/// itself (exec).
const LONELY: Duration = Duration::from_secs(10);
/// How often it looks after what it holds.
const LOOK: Duration = Duration::from_millis(250);
/// Stack of a thread that serves one program.
const STACK: usize = 256 * 1024;

/// A porter's state, which all its threads share.
#[derive(Debug)]
struct Porter {
    backend: Backend,
    /// Accepts the streams of other porters.
    door: Socket,
    listeners: Mutex<Vec<Listener>>,
    held: Mutex<Vec<Arc<Held>>>,
    /// Number of connections of programs.
    programs: AtomicUsize,
}

/// A listening socket of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    at: SocketAddr,
    names: Vec<ServiceRange>,
}

/// The TIPC name of an address.
fn name_of(address: SocketAddr) -> ServiceRange {
    let bytes = crate::via::encode_ends(address, address);
    // FNV-1a, so that any two hosts agree.
    let hash = bytes[..bytes.len() / 2]
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    ServiceRange::single(SERVICE, hash)
}

/// Whether streams can be carried: whether a `tipcd` answers at this path.
///
/// # Errors
/// [`Error`] names the cause and the remedy.
pub fn check(tipcd: PathBuf) -> Result<(), Error> {
    Socket::open_on(&Backend::Node(tipcd), SocketKind::Stream).map(drop)
}

/// Serves programs that connect to `listener`, with the `tipcd` at this path, until there has been
/// none for a while.
///
/// # Errors
/// [`Error`] of TIPC, or [`io::Error`] of a system call, if it cannot begin.
pub fn serve(listener: OwnedFd, tipcd: PathBuf) -> io::Result<()> {
    let backend = Backend::Node(tipcd);
    let door = Socket::open_on(&backend, SocketKind::Stream).map_err(io::Error::other)?;
    door.listen()?;
    let (listeners, held) = (Mutex::default(), Mutex::default());
    let porter = Arc::new(Porter { backend, door, listeners, held, programs: AtomicUsize::new(0) });
    porter.in_a_thread(|porter| porter.open_door());
    let mut lonely_since = Instant::now();
    let mut until = Instant::now() + LOOK;
    loop {
        if wait_ready(&listener, Interest::Readable, Some(until))?
            && let Ok(program) = socket::accept(&listener)
        {
            // Others of this user may be asked, too: they could as well trace the programs.
            let owner = socket::peer_credentials(&program).map_or(u32::MAX, |owner| owner.uid);
            if owner == proc::effective_user() || owner == 0 {
                porter.in_a_thread(move |porter| {
                    porter.programs.fetch_add(1, Ordering::AcqRel);
                    porter.serve_program(&program);
                    porter.programs.fetch_sub(1, Ordering::AcqRel);
                });
            }
        }
        if Instant::now() < until {
            continue;
        }
        until = Instant::now() + LOOK;
        porter.look_after_held();
        if porter.programs.load(Ordering::Acquire) > 0 {
            lonely_since = Instant::now();
        } else if lonely_since.elapsed() > LONELY {
            return Ok(());
        }
    }
}

/// Locks what a thread that panicked may have locked: every change is made in one step.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Porter {
    /// Runs a function in a thread of its own. If there can be no more threads, it does not run,
    /// which a program takes for no.
    fn in_a_thread(self: &Arc<Self>, what: impl FnOnce(&Arc<Porter>) + Send + 'static) {
        let porter = Arc::clone(self);
        let _ = std::thread::Builder::new().stack_size(STACK).spawn(move || what(&porter));
    }

    /// Answers the request on a program's connection, and keeps the connection until the program
    /// closes it.
    fn serve_program(&self, program: &OwnedFd) {
        let mut bytes = [0; ASK_LEN + 1];
        let Ok(len) = socket::recv(program, &mut bytes, false) else { return };
        let Some(ask) = Ask::decode(&bytes[..len]) else { return };
        let (listener, stream) = match ask {
            Ask::Listen { at } => match self.announce(at) {
                Ok(listener) => (Some(listener), None),
                Err(_) => return,
            },
            Ask::Dial { own, peer } => (None, self.dial(own, peer)),
            Ask::Claim { own, peer } => (None, self.claim(own, peer)),
        };
        let fds: Vec<_> = stream.iter().map(AsFd::as_fd).collect();
        let yes = u8::from(listener.is_some() || stream.is_some());
        let _ = fdpass::try_send(program, &[yes], &fds);
        drop(stream);
        if let Some(listener) = listener {
            // Until its program, and all that have inherited the connection, have ended.
            while matches!(socket::recv(program, &mut bytes, false), Ok(1..)) {}
            self.withdraw(&listener);
        }
    }

    /// Makes a program's listening address known to other porters.
    fn announce(&self, at: SocketAddr) -> Result<Listener, Errno> {
        let addresses = if at.ip().is_unspecified() {
            addresses::own_addresses().map_err(|_| Errno::ADDRNOTAVAIL)?
        } else {
            vec![at.ip()]
        };
        // Connections to a loopback address never come from another host.
        let addresses = addresses.into_iter().filter(|ip| !ip.is_loopback());
        let names = addresses.map(|ip| name_of(SocketAddr::new(ip, at.port()))).collect();
        let listener = Listener { at, names };
        let mut listeners = lock(&self.listeners);
        for name in &listener.names {
            if !listeners.iter().any(|other| other.names.contains(name)) {
                self.door.bind(*name, Scope::Cluster)?;
            }
        }
        listeners.push(listener.clone());
        Ok(listener)
    }

    /// Takes back what [`announce`](Self::announce) has made known.
    fn withdraw(&self, listener: &Listener) {
        let mut listeners = lock(&self.listeners);
        if let Some(at) = listeners.iter().position(|other| other == listener) {
            listeners.swap_remove(at);
        }
        for name in &listener.names {
            if !listeners.iter().any(|other| other.names.contains(name)) {
                let _ = self.door.unbind(*name, Scope::Cluster);
            }
        }
    }

    /// Whether a program of this porter listens at this address.
    fn expects(&self, to: SocketAddr) -> bool {
        let listens = |listener: &Listener| {
            listener.at.port() == to.port()
                && (listener.at.ip() == to.ip() || listener.at.ip().is_unspecified())
        };
        lock(&self.listeners).iter().any(listens)
    }

    /// Accepts streams of other porters.
    fn open_door(self: &Arc<Self>) {
        loop {
            match self.door.accept(Patience::Until(Instant::now() + Duration::from_secs(60))) {
                Ok((stream, _)) => self.in_a_thread(move |porter| porter.greet(stream)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The tipcd has ended: no stream can come any more.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_finds_the_same_name_for_an_address() {
        let of = |text: &str| name_of(text.parse().unwrap());
        assert_eq!(of("10.1.2.3:80"), ServiceRange::single(SERVICE, 0x0dcc_b585));
        assert_ne!(of("10.1.2.3:80"), of("10.1.2.3:81"));
        assert_ne!(of("10.1.2.3:80"), of("[2001:db8::1]:80"));
    }
}
