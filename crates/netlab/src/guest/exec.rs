//! Runs a command in a guest: the keeper receives the descriptors of this process's standard streams, so that no byte
//! of them passes through this process.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use crossway_sys::fdpass;

use super::message::{ExecRequest, Outcome};
use super::record::{self, GuestFiles};
use super::registers::tunables;
use super::{GuestRecord, GuestRegisters};
use crate::NetError;

/// The message to a keeper that asks it to end the guest.
pub(crate) const END: &str = "end";
/// The message to a keeper that asks whether the guest is running.
pub(crate) const LIVES: &str = "lives";

/// How a command in a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestExit {
    /// The command exited with this status.
    Code(i32),
    /// The command was killed by this signal.
    Signal(i32),
}

/// Runs a command in the guest `name` and waits for the command to end. The command has this process's standard streams
/// and environment, and runs in the folder with the path of this process's current folder. If this process is killed,
/// so is the command.
///
/// # Errors
/// There is no such guest, the command cannot be started, or the guest ended.
pub fn exec_in_guest(name: &str, argv: &[String]) -> Result<GuestExit, NetError> {
    let record = find(name)?;
    let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
    let mut env: Vec<(String, String)> =
        std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    if record.registers == GuestRegisters::Hidden {
        env.extend(tunables().split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
    let request = ExecRequest {
        argv: argv.to_vec(),
        env,
        folder: std::env::current_dir().unwrap_or_default().display().to_string(),
    };
    let request = serde_json::to_string(&request)
        .map_err(|e| NetError::State { path: "the command".into(), why: e.to_string() })?;
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    match ask(name, &request, &fds)? {
        Outcome::Exited(code) => Ok(GuestExit::Code(code)),
        Outcome::Signalled(signal) => Ok(GuestExit::Signal(signal)),
        Outcome::Failed(why) => Err(NetError::Refused {
            doing: format!("running '{}' in guest '{name}'", argv[0]),
            said: why,
        }),
    }
}

/// Finds a running guest by name.
///
/// # Errors
/// [`NetError::Unknown`], listing the guests that exist.
pub(crate) fn find(name: &str) -> Result<GuestRecord, NetError> {
    let there = record::list()?;
    there
        .iter()
        .find(|guest| guest.name == name)
        .cloned()
        .ok_or_else(|| record::unknown(name, &there))
}

/// Sends a request to the guest's keeper and waits for its answer.
pub(crate) fn ask(
    name: &str,
    request: &str,
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> Result<Outcome, NetError> {
    let files = GuestFiles::of(name);
    let failed = |e: io::Error| NetError::Guest {
        name: name.to_owned(),
        what: format!(
            "does not accept requests ({e}); it may be starting or shutting down, see: crossway guest list"
        ),
        said: String::new(),
    };
    let mut keeper = UnixStream::connect(files.socket()).map_err(failed)?;
    let mut whole = (request.len() as u32).to_le_bytes().to_vec();
    whole.extend(request.as_bytes());
    let sent = fdpass::send(keeper.as_fd(), &whole, fds)?;
    keeper.write_all(&whole[sent..]).map_err(failed)?;
    let mut answer = Vec::new();
    // A keeper that is killed closes the socket without an answer.
    let _ = keeper.read_to_end(&mut answer);
    serde_json::from_slice(&answer).map_err(|_| NetError::Guest {
        name: name.to_owned(),
        what: "was lost because its keeper process was killed; boot it again: crossway guest up"
            .to_owned(),
        said: String::new(),
    })
}
