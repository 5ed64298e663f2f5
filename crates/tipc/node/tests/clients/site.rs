//! A private tipcd for a test, and functions that wait with a watchdog.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::{Backend, LoneTipcd, Patience, Socket, SocketKind};

/// Time limit for a step of a test, long enough for a busy machine. It is only reached if something is wrong.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

pub(crate) const TIPCD: &str = env!("CARGO_BIN_EXE_tipcd");

pub(crate) fn soon() -> Patience {
    Patience::Until(Instant::now() + WATCHDOG)
}

/// A tipcd that ends when this value is dropped.
pub(crate) struct Site {
    tipcd: LoneTipcd,
    _dir: tempfile::TempDir,
}

impl Site {
    /// Starts a node without bearers.
    pub(crate) fn lone() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        let mut command = Command::new(TIPCD);
        command.args(args);
        Self::start(command)
    }

    /// Starts a tipcd with a command that runs it.
    pub(crate) fn start(command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tipcd = LoneTipcd::start(command, &dir.path().join("tipcd.sock")).unwrap();
        Self { tipcd, _dir: dir }
    }

    /// Starts a node as the user `uid`, with a limit of `descriptors` open descriptors. All users may use it.
    pub(crate) fn of_user(uid: u32, descriptors: usize, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &limited]).arg(for_all_users(TIPCD, dir.path()));
        command.args(["--mode", "0666"]).args(args);
        command.uid(uid).gid(uid);
        let tipcd = LoneTipcd::start(command, &dir.path().join("tipcd.sock")).unwrap();
        Self { tipcd, _dir: dir }
    }

    pub(crate) fn tipcd(&self) -> &LoneTipcd {
        &self.tipcd
    }

    pub(crate) fn path(&self) -> &Path {
        self.tipcd().path()
    }

    pub(crate) fn socket(&self, kind: SocketKind) -> Socket {
        let backend = Backend::Node(self.path().to_owned());
        Socket::open_on(&backend, kind).unwrap()
    }
}

/// The path of a program that every user can run: where it was built or, if not everybody may enter the clone, in `dir`.
pub(crate) fn for_all_users(program: impl AsRef<Path>, dir: &Path) -> PathBuf {
    let program = program.as_ref();
    let there = dir.join(program.file_name().unwrap());
    let may_enter = |folder: &Path| folder.metadata().unwrap().permissions().mode() & 0o001 != 0;
    if program.ancestors().skip(1).all(may_enter) {
        return program.to_owned();
    }
    if !there.exists() && std::fs::hard_link(program, &there).is_err() {
        std::fs::copy(program, &there).unwrap();
    }
    there
}

pub(crate) fn is_writable(socket: &Socket) -> bool {
    wait_ready(socket, Interest::Writable, Some(Instant::now())).unwrap()
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WATCHDOG, "timed out while waiting for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
