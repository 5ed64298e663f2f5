//! The keeper of a guest: a process that starts the guest's kernel, carries the streams of commands between their
//! callers and the serial line, and cleans up when either ends.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossway_sys::confinement::{
    Confinement, close_inherited, confine, give_children_a_process_namespace,
};
use crossway_sys::fdpass;
use crossway_sys::lifeline::Lifeline;
use crossway_sys::xstate;

use super::frame::{Frame, Lane, skip_to_preamble};
use super::heartbeat::Heartbeat;
use super::message::{Boot, Outcome};
use super::record::{self, GuestFiles};
use super::relay::{Place, Window, Wire, lock, pump, sink};
use super::{GuestMachine, GuestRecord, GuestRegisters, KERNEL, initrd, qemu, user_mode};
use crate::NetError;
use crate::registry::Process;

/// The line on a keeper's standard input that makes the guest outlive its starter.
pub(crate) const STAY: &str = "stay";

/// A running command, as seen by the reader of the line.
struct Session {
    output: Option<Sender<Vec<u8>>>,
    errors: Option<Sender<Vec<u8>>>,
    input: Arc<Window>,
    done: Sender<Outcome>,
}

type Sessions = Arc<Mutex<HashMap<u32, Session>>>;

/// Keeps the guest `name`, for which a record and a setup file exist, until the guest ends. The first line on standard
/// output says whether the guest is ready.
///
/// # Errors
/// The guest's files cannot be used. Failures of the guest itself are reported on standard output.
pub fn run_guest_keeper(name: &str) -> Result<(), NetError> {
    close_inherited();
    let record = record::read(name)?;
    let files = GuestFiles::of(name);
    let running = Arc::new(Running::default());
    watch_starter(Arc::clone(&running));
    let mut ways = qemu::ways(&record).into_iter().peekable();
    while let Some(machine) = ways.next() {
        let (near, far) = UnixStream::pair().map_err(|e| files.error("socketpair", e))?;
        let kernel = match start_kernel(&record, machine, &files, far.into()) {
            Ok(kernel) => kernel,
            Err(NetError::Guest { what, said, .. }) => {
                say(&Boot::Failed(what, said));
                break;
            }
            Err(why) => {
                say(&Boot::Failed(format!("could not be started: {why}"), String::new()));
                break;
            }
        };
        if running.is_given_up_unless(kernel) {
            kernel.kill();
            break;
        }
        let outcome = converse(name, &files, machine, kernel, near);
        kernel.kill();
        match outcome {
            Err(why) if ways.peek().is_some() && !running.is_given_up() => {
                qemu::remember_refusal(&why);
            }
            Err(why) => {
                say(&Boot::Failed(why, files.console_tail()));
                break;
            }
            Ok(()) => break,
        }
    }
    record::remove(name);
    Ok(())
}

/// The kernel's process, and whether the process that booted the guest has ended or given it up.
#[derive(Default)]
struct Running(Mutex<(Option<Process>, bool)>);

impl Running {
    /// Notes the kernel, unless the guest was given up.
    fn is_given_up_unless(&self, kernel: Process) -> bool {
        let mut state = lock(&self.0);
        state.0 = Some(kernel);
        state.1
    }

    fn is_given_up(&self) -> bool {
        lock(&self.0).1
    }

    fn give_up(&self) {
        let mut state = lock(&self.0);
        state.1 = true;
        if let Some(kernel) = state.0 {
            kernel.kill();
        }
    }
}

/// Carries frames until the guest has ended. Returns an error if it did not become ready.
fn converse(
    name: &str,
    files: &GuestFiles,
    machine: GuestMachine,
    kernel: Process,
    line: UnixStream,
) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot be reached over its serial line: {e}");
    let limit = machine.boot_limit();
    line.set_read_timeout(Some(limit)).map_err(failed)?;
    let mut reader = BufReader::new(line.try_clone().map_err(failed)?);
    let first = skip_to_preamble(&mut reader).and_then(|there| match there {
        true => Frame::read(&mut reader),
        false => Ok(None),
    });
    let facts = match first {
        Ok(Some(Frame::Ready(text))) => serde_json::from_slice(&text).map_err(|_| {
            "runs a different version of crossway from its keeper; boot it again: crossway guest up"
                .to_owned()
        })?,
        Ok(Some(Frame::Failed(why))) => {
            return Err(format!("could not be set up: {}", String::from_utf8_lossy(&why)));
        }
        Ok(Some(_)) => {
            return Err(
                "runs a different version of crossway from its keeper; boot it again: crossway guest up".to_owned()
            );
        }
        Ok(None) => return Err("ended before it was ready".to_owned()),
        Err(_) => return Err(format!("was not ready after {} s", limit.as_secs())),
    };
    line.set_read_timeout(None).map_err(failed)?;
    let listener = UnixListener::bind(files.socket()).map_err(failed)?;
    record::ready(name, &facts).map_err(|e| e.to_string())?;
    say(&Boot::Ready(facts));
    // QEMU has read it.
    let _ = std::fs::remove_file(files.initrd());
    let (wire, room) = Wire::bounded(File::from(OwnedFd::from(line)));
    let sessions = Sessions::default();
    let heartbeat = Arc::new(Heartbeat::new(machine.slowdown()));
    let (watcher, line) = (Arc::clone(&heartbeat), wire.clone());
    std::thread::spawn(move || watcher.watch(kernel, &line));
    let ended = Arc::new(AtomicBool::new(false));
    serve_callers(listener, kernel, wire, Arc::clone(&sessions), Arc::clone(&ended));
    while let Ok(Some(frame)) = Frame::read(&mut reader) {
        heartbeat.beat();
        deliver(&sessions, &room, frame);
    }
    ended.store(true, Ordering::Release);
    room.close();
    let why = match heartbeat.verdict() {
        Some(verdict) => format!("guest '{name}' was ended: {verdict}"),
        None => {
            format!("guest '{name}' ended{}", files.console_end_after("; its console ends with: "))
        }
    };
    for (_, session) in lock(&sessions).drain() {
        session.input.close();
        let _ = session.done.send(Outcome::Failed(why.clone()));
    }
    // The threads of callers pass that on; give them time to do so.
    for _ in 0..100 {
        if Arc::strong_count(&sessions) <= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn deliver(sessions: &Sessions, line: &Window, frame: Frame) {
    match frame {
        Frame::Data { session, lane, bytes } => {
            let sessions = lock(sessions);
            let Some(session) = sessions.get(&session) else { return };
            let to = if lane == Lane::Errors { &session.errors } else { &session.output };
            if let Some(to) = to {
                let _ = to.send(bytes);
            }
        }
        Frame::End { session, lane } => {
            if let Some(session) = lock(sessions).get_mut(&session) {
                match lane {
                    Lane::Output => session.output = None,
                    Lane::Errors => session.errors = None,
                    Lane::Input => session.input.close(),
                }
            }
        }
        Frame::Credit { session, bytes, .. } => {
            if let Some(session) = lock(sessions).get(&session) {
                session.input.widen(bytes as usize);
            }
        }
        Frame::Received { bytes } => line.widen(bytes as usize),
        Frame::Exit { session, report } => {
            if let Some(session) = lock(sessions).remove(&session) {
                session.input.close();
                let outcome = serde_json::from_slice(&report).unwrap_or_else(|e| {
                    Outcome::Failed(format!("cannot read the guest's report on its end: {e}"))
                });
                let _ = session.done.send(outcome);
            }
        }
        // The other frames are sent to a guest, not by it.
        _ => {}
    }
}

/// Starts the kernel on a thread that lives as long as the kernel, because the kernel receives its parent-death signal
/// when that thread ends.
fn start_kernel(
    record: &GuestRecord,
    machine: GuestMachine,
    files: &GuestFiles,
    line: OwnedFd,
) -> Result<Process, NetError> {
    let mut command = match &record.kernel {
        None => user_mode::command(record, files)?,
        Some(kernel) => {
            initrd::make(kernel, files).map_err(|what| NetError::Guest {
                name: record.name.clone(),
                what: format!("cannot get a first file system: {what}"),
                said: String::new(),
            })?;
            qemu::command(record, kernel, machine, files)?
        }
    };
    let hide = record.registers == GuestRegisters::Hidden;
    let preload = record.registers.relay().map(xstate::relay).transpose()?;
    let writable = files.writable();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let child = give_children_a_process_namespace()
            .and_then(|()| {
                let how = Confinement {
                    writable: &writable,
                    hide_extended_state: hide,
                    preload,
                    channel: line,
                };
                confine(&mut command, how)
            })
            .and_then(|()| {
                command.spawn().map_err(|e| crossway_sys::OsError::new("run", KERNEL, e))
            });
        // Only the kernel may hold the channel's far end, so that its end is noticed.
        drop(command);
        match child {
            Ok(mut child) => {
                let process = Process::of(child.id());
                let _ = tell.send(Ok(process));
                let _ = child.wait();
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    });
    let gone = || NetError::Guest {
        name: record.name.clone(),
        what: "ended immediately".to_owned(),
        said: files.console_tail(),
    };
    told.recv().map_err(|_| gone())??.ok_or_else(gone)
}

/// Ends the guest when the process that started this one ends, unless that process asked for the guest to stay.
fn watch_starter(running: Arc<Running>) {
    std::thread::spawn(move || {
        let mut word = String::new();
        let _ = std::io::stdin().lock().read_line(&mut word);
        if word.trim() != STAY {
            running.give_up();
        }
    });
}

fn say(word: &Boot) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, word);
    let _ = writeln!(out);
    let _ = out.flush();
}

fn serve_callers(
    listener: UnixListener,
    kernel: Process,
    wire: Wire,
    sessions: Sessions,
    ended: Arc<AtomicBool>,
) {
    let numbers = Arc::new(AtomicU32::new(1));
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let (wire, sessions) = (wire.clone(), Arc::clone(&sessions));
            let ended = Arc::clone(&ended);
            let session = numbers.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                let mut reply = match caller.try_clone() {
                    Ok(reply) => reply,
                    Err(_) => return,
                };
                let outcome = if ended.load(Ordering::Acquire) {
                    Outcome::Failed("the guest has ended".to_owned())
                } else {
                    serve_caller(caller, session, kernel, &wire, &sessions)
                        .unwrap_or_else(Outcome::Failed)
                };
                let _ = serde_json::to_writer(&mut reply, &outcome);
                let _ = reply.shutdown(std::net::Shutdown::Both);
            });
        }
    });
}

/// Handles the request of one caller: ends the guest, reports that it is alive, or runs a command until it ends.
fn serve_caller(
    caller: UnixStream,
    session: u32,
    kernel: Process,
    wire: &Wire,
    sessions: &Sessions,
) -> Result<Outcome, String> {
    let (request, fds) = receive(&caller)?;
    if request == super::exec::END.as_bytes() {
        kernel.kill();
        return Ok(Outcome::Exited(0));
    }
    if request == super::exec::LIVES.as_bytes() {
        return Ok(Outcome::Exited(0));
    }
    let [stdin, stdout, stderr] = <[OwnedFd; 3]>::try_from(fds)
        .map_err(|fds| format!("the request has {} descriptors; expected three", fds.len()))?
        .map(File::from);
    let place = |lane| Place { wire: wire.clone(), session, lane };
    let (out, out_worker) = sink(stdout, place(Lane::Output));
    let (err, err_worker) = sink(stderr, place(Lane::Errors));
    let (done, ended) = channel();
    let input = Window::new();
    let known = Session { output: Some(out), errors: Some(err), input: Arc::clone(&input), done };
    lock(sessions).insert(session, known);
    wire.send(&Frame::Exec { session, request });
    let (stop, hold) = Lifeline::pair().map_err(|e| e.to_string())?;
    let pump = pump(stdin, stop, input, place(Lane::Input));
    // The caller sends nothing more; its end (killed, or interrupted) ends its command.
    let (killer, all) = (wire.clone(), Arc::clone(sessions));
    std::thread::spawn(move || {
        let _ = (&caller).read(&mut [0]);
        let session_of_caller = lock(&all).remove(&session);
        if let Some(gone) = session_of_caller {
            killer.send(&Frame::Kill { session });
            gone.input.close();
            let _ = gone.done.send(Outcome::Failed(
                "the process that requested the command has ended".to_owned(),
            ));
        }
    });
    let outcome =
        ended.recv().unwrap_or_else(|_| Outcome::Failed("the guest has ended".to_owned()));
    drop(hold);
    lock(sessions).remove(&session);
    for worker in [pump, out_worker, err_worker] {
        let _ = worker.join();
    }
    Ok(outcome)
}

/// Receives a length, to which descriptors may be attached, and then that many bytes. Returns the bytes and the
/// descriptors.
fn receive(mut caller: &UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>), String> {
    let mut length = [0; 4];
    let mut fds = Vec::new();
    let count = fdpass::recv(caller.as_fd(), &mut length, &mut fds).map_err(|e| e.to_string())?;
    caller.read_exact(&mut length[count..]).map_err(|e| e.to_string())?;
    let length = u32::from_le_bytes(length) as usize;
    if length > 4 << 20 {
        return Err(format!(
            "the request is too large ({length} bytes; at most 4 MiB); unset large environment variables"
        ));
    }
    let mut request = vec![0; length];
    caller.read_exact(&mut request).map_err(|e| e.to_string())?;
    Ok((request, fds))
}
