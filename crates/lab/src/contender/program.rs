//! A contender's process. It runs in a directory of its own, is controlled by lines of text, and may produce only
//! limited output. When the [`Program`] is dropped, the process is killed with everything that it started.

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::{OsError, affinity, family, lease, poll, proc};
use serde::Serialize;

use super::Launch;
use super::protocol::{Greeting, Reply, VERSION};
use crate::exit_report::exit_report;

/// Maximum length of a line in bytes; the longest line has the histogram of a window.
const LONGEST_LINE: usize = 16 << 20;
/// How many characters of an invalid line are quoted.
const QUOTED: usize = 120;
/// How many bytes of a program's standard error are kept.
const KEPT: usize = 4096;
/// Time limit for a process to exit after closing its output, so that its exit status can be reported.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Errors of a contender's program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The program could not be started.
    #[error("its program cannot be started: {0}")]
    Start(OsError),
    /// The program exited unexpectedly.
    #[error("its program {0}")]
    Ended(String),
    /// The program left processes running.
    #[error(
        "its program {how}, but processes that it started are still running ({left} of them): a contender must stay \
         in the foreground"
    )]
    RanAway { how: String, left: usize },
    /// The program did not answer; in this variant and the next two, `order` is `None` for the greeting.
    #[error("its program did not {} within {limit:?}{wrote}", awaited(*order))]
    Silent { order: Option<&'static str>, limit: Duration, wrote: String },
    /// The answer is not a valid message.
    #[error(
        "its program {} a line that is not in the protocol ({why}): {line}", answered(*order)
    )]
    Nonsense { order: Option<&'static str>, why: String, line: String },
    /// The message is valid, but not as the answer to this order.
    #[error("its program {} '{got}' instead of '{wanted}'", answered(*order))]
    OutOfTurn { order: Option<&'static str>, wanted: &'static str, got: &'static str },
    /// The program wrote to standard output without being asked.
    #[error(
        "its program wrote {bytes} bytes to standard output without being asked, before it received '{order}'"
    )]
    Unasked { order: &'static str, bytes: usize },
    /// The program uses another version of the protocol.
    #[error(
        "its program speaks version {0} of the protocol, but this Crossway speaks version {VERSION}"
    )]
    Version(u32),
    /// The program itself reported a failure.
    #[error("{reason}")]
    Failed { reason: String, unsupported: bool },
    /// A system call failed in this process.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// A contender's running program.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// A descriptor that is readable once the process has exited.
    ended: OwnedFd,
    /// Data received that is not yet a whole line.
    pending: Vec<u8>,
    /// How many bytes of `pending` are known not to contain the end of a line.
    searched: usize,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    dir: PathBuf,
    mark: String,
    shm_prefix: String,
    leases: Vec<lease::Lease>,
}

impl Program {
    /// Starts the program for one role, on one CPU if that is given.
    pub(crate) fn start(launch: &Launch, cpu: Option<u32>) -> Result<Program, ProgramError> {
        let words = launch.run.join(" ");
        family::adopt_orphans()?;
        let dir = lease::fresh_path("role")?;
        let directory = lease::hold(lease::Resource::Directory { path: dir.clone() })?;
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|e| OsError::new("mkdir", dir.display(), e))?;
        let mark = lease::fresh_name("contender");
        // Short, because libraries include it in paths of sockets.
        let shm_prefix = format!("crossway-{:08x}", lease::random_number() as u32);
        let shared = lease::hold(lease::Resource::SharedMemory { prefix: shm_prefix.clone() })?;
        let relatives = lease::hold(lease::Resource::Family { mark: mark.clone() })?;
        let mut command = Command::new(launch.run.first().map_or("", String::as_str));
        command
            .args(launch.run.iter().skip(1))
            .current_dir(&dir)
            .env(family::MARK, &mark)
            .env("PYTHONPATH", python_path(&launch.helpers))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cpu) = cpu {
            affinity::pin_child(&mut command, cpu).map_err(ProgramError::Start)?;
        }
        proc::die_with_parent(&mut command);
        let mut child =
            command.spawn().map_err(|e| ProgramError::Start(OsError::new("start", &words, e)))?;
        let pid = child.id();
        let started_ticks = proc::started_ticks(pid).unwrap_or(0);
        let process = lease::hold(lease::Resource::Process { pid, started_ticks })?;
        let taken = || OsError::new("start", &words, std::io::Error::other("no pipe to it"));
        let stdin = child.stdin.take().ok_or_else(taken)?;
        let stdout = child.stdout.take().ok_or_else(taken)?;
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(from) = child.stderr.take() {
            let kept = Arc::clone(&stderr);
            std::thread::spawn(move || keep_last(from, &kept));
        }
        let ended = proc::watch_end(pid)?;
        Ok(Program {
            child,
            stdin,
            stdout,
            ended,
            pending: Vec::new(),
            searched: 0,
            stderr,
            dir,
            mark,
            shm_prefix,
            leases: vec![process, relatives, directory, shared],
        })
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The directory of the program.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Prefix of the names that the program may leave in `/dev/shm`.
    pub(crate) fn shm_prefix(&self) -> &str {
        &self.shm_prefix
    }

    /// Makes the clean-up also remove what the program created in `/dev/shm` under the peer's prefix.
    pub(crate) fn share_memory(&mut self, prefix: String) -> Result<(), OsError> {
        self.leases.push(lease::hold(lease::Resource::SharedMemory { prefix })?);
        Ok(())
    }

    /// Waits for the program's first line, the greeting.
    pub(crate) fn greeting(&mut self, limit: Duration) -> Result<Greeting, ProgramError> {
        match self.hear(None, Some(limit))? {
            Reply::Hello(greeting) if greeting.protocol == VERSION => Ok(greeting),
            Reply::Hello(greeting) => Err(ProgramError::Version(greeting.protocol)),
            other => {
                Err(ProgramError::OutOfTurn { order: None, wanted: "hello", got: other.name() })
            }
        }
    }

    /// Sends an order; it is an error if the program has written anything since its last answer.
    pub(crate) fn tell(
        &mut self,
        name: &'static str,
        order: &impl Serialize,
    ) -> Result<(), ProgramError> {
        let quiet = poll::any_readable(&[self.stdout.as_fd()], Some(Instant::now()))
            .map_err(|e| OsError::new("poll", "a contender", e))?;
        if quiet.contains(&true) && !self.has_ended() {
            self.read_some()?;
        }
        if !self.pending.is_empty() {
            return Err(ProgramError::Unasked { order: name, bytes: self.pending.len() });
        }
        let mut line = serde_json::to_vec(order)
            .map_err(|e| OsError::new("encode", name, std::io::Error::other(e)))?;
        line.push(b'\n');
        match self.stdin.write_all(&line).and_then(|()| self.stdin.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(self.ended()),
            other => Ok(other.map_err(|e| OsError::new("write", "a contender's input", e))?),
        }
    }

    /// Waits for the program's answer to the order with this name; `None`: for its greeting.
    pub(crate) fn hear(
        &mut self,
        order: impl Into<Option<&'static str>>,
        limit: Option<Duration>,
    ) -> Result<Reply, ProgramError> {
        let order = order.into();
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let fresh = &self.pending[self.searched..];
            if let Some(end) = fresh.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=self.searched + end).collect();
                self.searched = 0;
                return understand(order, &line);
            }
            self.searched = self.pending.len();
            if self.pending.len() > LONGEST_LINE {
                let why = format!("longer than {LONGEST_LINE} bytes");
                let line = quoted(&self.pending);
                return Err(ProgramError::Nonsense { order, why, line });
            }
            let ready = poll::any_readable(&[self.stdout.as_fd(), self.ended.as_fd()], until)
                .map_err(|e| OsError::new("poll", "a contender", e))?;
            match ready[..] {
                [true, _] => {
                    if self.read_some()? == 0 {
                        return Err(self.ended());
                    }
                }
                [false, true] => return Err(self.ended()),
                _ => {
                    let limit = limit.unwrap_or_default();
                    let wrote = match self.wrote().trim() {
                        "" => String::new(),
                        words => format!(" (it wrote: {words})"),
                    };
                    return Err(ProgramError::Silent { order, limit, wrote });
                }
            }
        }
    }

    /// Waits for the program to exit after it has reported that everything is closed. Returns an error if it does not
    /// exit successfully in time, or if processes that it started are still running; these are then killed.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<(), ProgramError> {
        let until = Some(Instant::now() + limit);
        let ended = poll::any_readable(&[self.ended.as_fd()], until)
            .map_err(|e| OsError::new("poll", "a contender", e))?;
        if !ended.contains(&true) {
            let how = format!("answered 'close', but did not exit within {limit:?}");
            return Err(ProgramError::Ended(how));
        }
        match self.child.wait() {
            Ok(status) if status.success() => {}
            status => return Err(ProgramError::Ended(exit_report(status, &self.wrote()))),
        }
        match family::kill_marked(&self.mark) {
            0 => Ok(()),
            left => Err(ProgramError::RanAway { how: "ended".to_owned(), left }),
        }
    }

    /// Whether an answer is ready to be read, or the program has exited.
    pub(crate) fn has_answered(&self) -> bool {
        let fds = [self.stdout.as_fd(), self.ended.as_fd()];
        !self.pending.is_empty()
            || poll::any_readable(&fds, Some(Instant::now()))
                .is_ok_and(|ready| ready.contains(&true))
    }

    /// Kills the program's process and waits until it is dead; processes that it started keep running.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn has_ended(&self) -> bool {
        poll::any_readable(&[self.ended.as_fd()], Some(Instant::now()))
            .is_ok_and(|ready| ready.contains(&true))
    }

    fn read_some(&mut self) -> Result<usize, ProgramError> {
        let mut chunk = [0; 1 << 16];
        let n = self
            .stdout
            .read(&mut chunk)
            .map_err(|e| OsError::new("read", "a contender's output", e))?;
        self.pending.extend_from_slice(&chunk[..n]);
        Ok(n)
    }

    /// The error for a program that closed its output, with its exit status if it has exited. In that case, kills the
    /// processes that it left running.
    fn ended(&mut self) -> ProgramError {
        let until = Instant::now() + END_LIMIT;
        let gone = poll::any_readable(&[self.ended.as_fd()], Some(until));
        if !gone.is_ok_and(|gone| gone.contains(&true)) {
            return ProgramError::Ended("closed its standard output".to_owned());
        }
        let status = self.child.wait();
        let how = exit_report(status, &self.wrote());
        match family::kill_marked(&self.mark) {
            0 => ProgramError::Ended(how),
            left => ProgramError::RanAway { how, left },
        }
    }

    fn wrote(&self) -> String {
        let kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept.iter().copied().collect::<Vec<_>>()).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        family::kill_marked(&self.mark);
    }
}

/// Reads until the end and keeps the last part. The writer therefore never blocks.
fn keep_last(mut from: impl Read, kept: &Mutex<VecDeque<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(n) = from.read(&mut chunk) {
        if n == 0 {
            return;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&chunk[..n]);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }
}

/// What a silent program failed to do.
fn awaited(order: Option<&'static str>) -> String {
    order.map_or("send its greeting 'hello'".to_owned(), |order| format!("answer '{order}'"))
}

/// What the program did by writing a line: it answered an order, or began with its greeting.
fn answered(order: Option<&'static str>) -> String {
    order.map_or("began with".to_owned(), |order| format!("answered '{order}' with"))
}

fn understand(order: Option<&'static str>, line: &[u8]) -> Result<Reply, ProgramError> {
    match serde_json::from_slice(line) {
        Ok(Reply::Failed { reason, unsupported }) => {
            Err(ProgramError::Failed { reason, unsupported })
        }
        Ok(reply) => Ok(reply),
        Err(e) => Err(ProgramError::Nonsense { order, why: e.to_string(), line: quoted(line) }),
    }
}

fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(QUOTED)]);
    let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > QUOTED { format!("{text} ...") } else { text }
}

fn python_path(helpers: &Path) -> std::ffi::OsString {
    let own = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let paths = std::iter::once(helpers.to_owned())
        .chain(std::env::split_paths(&own).filter(|path| !path.as_os_str().is_empty()));
    std::env::join_paths(paths).unwrap_or_default()
}
