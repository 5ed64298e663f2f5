//! Runs programs into which no library can be loaded: static ones, those of Go, those linked with musl. A filter stops their
//! calls that set up connections ([`crossway_sys::supervision`]), and this process does for their ends what the library does
//! for those of other programs. It replaces the descriptor in the program; bytes never pass through here.
//!
//! The program finds a UNIX stream at the number of its TCP socket. Names and options of TCP that it asks for are answered
//! from the TCP connection, which is kept here.

mod alone;
mod calls;
mod moving;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::supervision::{self, Supervisor, Trap};
use crossway_sys::{Errno, poll, proc, sock_diag};

use calls::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_DOMAIN, SO_PROTOCOL, SOL_SOCKET};

/// How often it is examined which of the moved connections' ends are still open.
const SWEEP: Duration = Duration::from_secs(1);

/// The calls that are stopped: they set up a connection, or ask for what a UNIX stream does not have.
const TRAPS: [Trap; 8] = [
    Trap { call: supervision::SYS_connect, any: &[&[]] },
    Trap { call: supervision::SYS_accept, any: &[&[]] },
    Trap { call: supervision::SYS_accept4, any: &[&[]] },
    Trap { call: supervision::SYS_listen, any: &[&[]] },
    Trap { call: supervision::SYS_getsockname, any: &[&[]] },
    Trap { call: supervision::SYS_getpeername, any: &[&[]] },
    Trap {
        call: supervision::SYS_setsockopt,
        any: &[&[(1, IPPROTO_TCP)], &[(1, IPPROTO_IP)], &[(1, IPPROTO_IPV6)]],
    },
    Trap {
        call: supervision::SYS_getsockopt,
        any: &[
            &[(1, IPPROTO_TCP)],
            &[(1, IPPROTO_IP)],
            &[(1, IPPROTO_IPV6)],
            &[(1, SOL_SOCKET), (2, SO_DOMAIN)],
            &[(1, SOL_SOCKET), (2, SO_PROTOCOL)],
        ],
    },
];

/// Why a program cannot be supervised.
#[derive(Debug, thiserror::Error)]
pub enum CannotSupervise {
    /// The kernel does not pass calls on.
    #[error("the kernel cannot pass its calls on (seccomp user notification, Linux 5.19 or later): {}", std::io::Error::from(*.0))]
    Kernel(Errno),
    /// The program cannot be started.
    #[error(transparent)]
    Start(#[from] std::io::Error),
}

/// What is known of the supervised programs.
#[derive(Debug)]
struct Site {
    supervisor: Supervisor,
    /// The TCP connections whose ends are UNIX streams in programs, by the stream's inode.
    asides: Mutex<HashMap<u64, OwnedFd>>,
    /// The ports of the listeners that have been noted, by inode.
    noted: Mutex<HashMap<u64, u16>>,
    /// Connections that were accepted when their program had no free descriptor, by the listener's inode.
    waiting: Mutex<HashMap<u64, Vec<OwnedFd>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that runs under supervision, with the programs that it starts.
#[derive(Debug)]
pub struct Supervised {
    site: Arc<Site>,
    child: Child,
}

/// Starts a program under supervision.
///
/// # Errors
/// [`CannotSupervise`].
pub fn start(mut command: Command) -> Result<Supervised, CannotSupervise> {
    // The filter applies to the thread that makes it, and to what it starts.
    let starts = std::thread::spawn(move || -> Result<_, CannotSupervise> {
        let supervisor = supervision::supervise(&TRAPS).map_err(CannotSupervise::Kernel)?;
        Ok((supervisor, command.spawn()?))
    });
    let (supervisor, child) = starts.join().expect("the thread does not panic")?;
    Ok(Supervised { site: Site::new(supervisor), child })
}

/// Supervises programs that another process has started, until none is left.
pub fn go_on(supervisor: Supervisor) {
    Site::new(supervisor).attend(None);
}

impl Supervised {
    /// The process of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Attends to the programs until the first one has ended. Returns its status, and the supervisor if programs remain that
    /// it has started.
    ///
    /// # Errors
    /// The program cannot be waited for.
    pub fn attend(mut self) -> std::io::Result<(ExitStatus, Option<Supervisor>)> {
        // Only here: the program has got the limit that it expects.
        proc::raise_descriptor_limit();
        let end = proc::watch_end(self.child.id()).map_err(std::io::Error::other)?;
        self.site.attend(Some(end));
        let status = self.child.wait()?;
        let supervisor = Arc::try_unwrap(self.site).ok().map(|site| site.supervisor);
        Ok((status, supervisor.filter(|supervisor| !is_deserted(supervisor))))
    }
}

/// Whether no process has the filter any more.
fn is_deserted(supervisor: &Supervisor) -> bool {
    poll::is_hung_up(supervisor).unwrap_or(true)
}

impl Site {
    fn new(supervisor: Supervisor) -> Arc<Self> {
        Arc::new(Self {
            supervisor,
            asides: Mutex::default(),
            noted: Mutex::default(),
            waiting: Mutex::default(),
        })
    }

    /// Attends to calls until a process has ended, or no program is left.
    fn attend(self: &Arc<Self>, end: Option<OwnedFd>) {
        let mut swept = Instant::now();
        loop {
            let mut all = vec![self.supervisor.as_fd()];
            all.extend(end.as_ref().map(AsFd::as_fd));
            let has_asides = !lock(&self.asides).is_empty();
            let until = has_asides.then(|| swept + SWEEP);
            let Ok(ready) = poll::any_readable(&all, until) else { return };
            if is_deserted(&self.supervisor) {
                return;
            }
            if ready[0] {
                match self.supervisor.receive() {
                    Ok(Some(call)) => self.answer(call),
                    Ok(None) => {}
                    Err(_) => return,
                }
            }
            // Calls that are being answered by other threads are finished before this process ends.
            if ready.get(1) == Some(&true) && Arc::strong_count(self) == 1 {
                return;
            }
            if swept.elapsed() >= SWEEP {
                self.sweep();
                swept = Instant::now();
            }
        }
    }

    /// Closes the TCP connections whose streams are not open any more.
    fn sweep(&self) {
        let Ok(all) = sock_diag::unix_sockets() else { return };
        let open: std::collections::HashSet<u64> = all.iter().map(|socket| socket.inode).collect();
        lock(&self.asides).retain(|inode, _| open.contains(inode));
    }
}
