//! The commands that run in a guest.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use crossway_sys::lifeline::Lifeline;

use super::frame::{Frame, Lane};
use super::message::{ExecRequest, Outcome};
use super::relay::{Place, Window, Wire, lock, pump, sink};

/// A running command, with what is needed to handle its frames.
pub(super) struct Session {
    pub(super) leader: u32,
    pub(super) input: Option<Sender<Vec<u8>>>,
    pub(super) output: Arc<Window>,
    pub(super) errors: Arc<Window>,
}

/// The running commands by the numbers that their requester chose.
pub(super) type Sessions = Arc<Mutex<HashMap<u32, Session>>>;

/// Starts a command, or reports why it cannot.
pub(super) fn start(session: u32, request: &[u8], wire: &Wire, sessions: &Sessions) {
    if let Err(why) = try_start(session, request, wire, sessions) {
        report(wire, session, &Outcome::Failed(why));
    }
}

fn report(wire: &Wire, session: u32, outcome: &Outcome) {
    let report = serde_json::to_vec(outcome).unwrap_or_default();
    wire.send(&Frame::Exit { session, report });
}

fn try_start(session: u32, request: &[u8], wire: &Wire, sessions: &Sessions) -> Result<(), String> {
    let request: ExecRequest = serde_json::from_slice(request).map_err(|e| e.to_string())?;
    let (program, arguments) = request.argv.split_first().ok_or("no command was given")?;
    // A folder that exists only in a private mount of the caller is not an error.
    let folder = Path::new(&request.folder);
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(request.env)
        .current_dir(if folder.is_dir() { folder } else { Path::new("/") })
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let place = |lane| Place { wire: wire.clone(), session, lane };
    let take = |pipe: Option<OwnedFd>| pipe.map(File::from).ok_or("a pipe is missing");
    let stdin = take(child.stdin.take().map(OwnedFd::from))?;
    let stdout = take(child.stdout.take().map(OwnedFd::from))?;
    let stderr = take(child.stderr.take().map(OwnedFd::from))?;
    let (out_stop, out_hold) = Lifeline::pair().map_err(|e| e.to_string())?;
    let (err_stop, err_hold) = Lifeline::pair().map_err(|e| e.to_string())?;
    let (output, errors) = (Window::new(), Window::new());
    // The worker ends by itself when the child stops reading or the sender is dropped.
    let (input, _) = sink(stdin, place(Lane::Input));
    let known = Session {
        leader: child.id(),
        input: Some(input),
        output: Arc::clone(&output),
        errors: Arc::clone(&errors),
    };
    lock(sessions).insert(session, known);
    let pumps = [
        pump(stdout, out_stop, output, place(Lane::Output)),
        pump(stderr, err_stop, errors, place(Lane::Errors)),
    ];
    let (wire, sessions) = (wire.clone(), Arc::clone(sessions));
    std::thread::spawn(move || {
        let status = child.wait();
        // Everything the command wrote has been sent; output of its remaining children is not waited for.
        drop((out_hold, err_hold));
        for pump in pumps {
            let _ = pump.join();
        }
        lock(&sessions).remove(&session);
        let outcome = match status.map(|s| (s.code(), s.signal())) {
            Ok((Some(code), _)) => Outcome::Exited(code),
            Ok((None, signal)) => Outcome::Signalled(signal.unwrap_or(0)),
            Err(e) => Outcome::Failed(format!("cannot wait for the end of the command: {e}")),
        };
        report(&wire, session, &outcome);
    });
    Ok(())
}
