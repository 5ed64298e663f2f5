//! The node that a test uses, a private tipcd or the kernel, and waiting with a watchdog.

use std::process::Command;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::{Backend, LoneTipcd, Patience, Socket, SocketKind};

/// Time limit of a wait. It is long enough for a busy machine, so that only an error reaches it.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

pub(crate) fn soon() -> Patience {
    Patience::Until(Instant::now() + WATCHDOG)
}

/// A tipcd that is stopped when this value is dropped. A test that closes a socket and later binds the same service
/// again uses a new `Site` for that. A process that another test is just starting may have a copy of the closed
/// socket's descriptor, and the socket keeps its names as long as that copy exists.
pub(crate) struct Site {
    tipcd: Option<LoneTipcd>,
    _dir: tempfile::TempDir,
}

/// The environment variable that is set if the tests must run on the kernel's TIPC.
pub(crate) const KERNEL_VARIABLE: &str = "CROSSWAY_TEST_KERNEL_TIPC";

/// The environment variable with the number of messages after which the tests' tipcds create lanes, if not the default.
pub(crate) const LANE_VARIABLE: &str = "CROSSWAY_TEST_LANE_AFTER";

/// Whether the tests run on the kernel's TIPC.
pub(crate) fn on_kernel() -> bool {
    std::env::var_os(KERNEL_VARIABLE).is_some()
}

impl Site {
    /// Starts a lone node, or uses the kernel.
    pub(crate) fn lone() -> Self {
        if on_kernel() {
            return Self { tipcd: None, _dir: tempfile::tempdir().unwrap() };
        }
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-guest-part"));
        command.arg("tipcd");
        if let Some(after) = std::env::var_os(LANE_VARIABLE) {
            command.arg("--lane-after").arg(after);
        }
        let tipcd = LoneTipcd::start(command, &dir.path().join("tipcd.sock")).unwrap();
        Self { tipcd: Some(tipcd), _dir: dir }
    }

    pub(crate) fn socket(&self, kind: SocketKind) -> Socket {
        let backend = match &self.tipcd {
            Some(tipcd) => Backend::Node(tipcd.path().to_owned()),
            None => Backend::Kernel,
        };
        Socket::open_on(&backend, kind).unwrap()
    }
}

pub(crate) fn is_readable(socket: &Socket) -> bool {
    wait_ready(socket, Interest::Readable, Some(Instant::now())).unwrap()
}

pub(crate) fn is_writable(socket: &Socket) -> bool {
    wait_ready(socket, Interest::Writable, Some(Instant::now())).unwrap()
}

/// Waits until `holds` returns true. Panics after [`WATCHDOG`] with a message that contains `what`, the awaited event.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WATCHDOG, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}
