//! A private tipcd, and waiting with a watchdog.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::{Kind, LoneTipcd, NodeSocket, Patience};

/// Long enough for a busy machine; reached only when something is wrong.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(30);

pub(crate) fn soon() -> Patience {
    Patience::Until(Instant::now() + WATCHDOG)
}

/// A tipcd that ends with this value.
pub(crate) struct Site {
    pub(crate) tipcd: LoneTipcd,
    _dir: tempfile::TempDir,
}

impl Site {
    pub(crate) fn lone() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tipcd"));
        command.args(args);
        let tipcd = LoneTipcd::start(command, &dir.path().join("tipcd.sock")).unwrap();
        Self { tipcd, _dir: dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.tipcd.path()
    }

    pub(crate) fn socket(&self, kind: Kind) -> NodeSocket {
        NodeSocket::open(self.path(), kind).unwrap()
    }
}

pub(crate) fn is_readable(socket: &NodeSocket) -> bool {
    wait_ready(socket, Interest::Readable, Some(Instant::now())).unwrap()
}

pub(crate) fn is_writable(socket: &NodeSocket) -> bool {
    wait_ready(socket, Interest::Writable, Some(Instant::now())).unwrap()
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WATCHDOG, "{what} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}
