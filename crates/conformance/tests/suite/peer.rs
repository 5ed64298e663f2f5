//! The other end in a separate process: this test program, started again with a job.
//!
//! The child's standard input is a socket that carries offers, descriptors and reports.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::poll::is_hung_up;
use crossway_sys::{fdpass, proc};
use serde::{Deserialize, Serialize};

use super::bench::*;
use crossway_mech::registry::{self, Visitor};
use crossway_mech::{Listener, Mechanism, Offer, RecvError, Rx, SendError, Spec, Tx, Wait};

/// The environment variable with a [`Task`]; without it, the test that is the child's entry point does nothing.
const TASK: &str = "CROSSWAY_CONFORMANCE_TASK";

/// The end of the channel that a process opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    Listens,
    Connects,
}

/// What the child does with its end of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Sends back every message of 64 bytes until its peer has ended.
    Echo,
    /// Does nothing.
    Idle,
    /// Waits for a message that is never sent.
    Receive,
    /// Sends until there is no room, and then waits for room.
    FillUp,
    /// Waits for ever inside the closure that writes a message in place.
    WriteInPlace,
    /// Runs the leftovers check; `side` does not matter.
    LeaveNothing,
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    id: String,
    side: Side,
    job: Job,
    max_message: usize,
    wait: Wait,
}

/// A message on the control socket.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    /// The strings of an offer, and the names of the descriptors sent with it.
    Offer { words: std::collections::BTreeMap<String, String>, fds: Vec<String> },
    /// The job starts now, in the thread with this id.
    Begun { tid: u32 },
}

fn write_note(control: &UnixStream, note: &Note, fds: &[OwnedFd]) {
    let mut line = serde_json::to_vec(note).unwrap();
    line.push(b'\n');
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let sent = fdpass::send(control, &line, &borrowed).unwrap();
    assert_eq!(sent, line.len());
}

fn read_note(control: &UnixStream) -> Option<(Note, Vec<OwnedFd>)> {
    let (mut line, mut fds) = (Vec::new(), Vec::new());
    loop {
        let mut byte = [0];
        if fdpass::recv(control, &mut byte, &mut fds).unwrap() == 0 {
            return None;
        }
        if byte == *b"\n" {
            return Some((serde_json::from_slice(&line).unwrap(), fds));
        }
        line.push(byte[0]);
    }
}

fn send_offer(control: &UnixStream, offer: Offer) {
    let (names, fds): (Vec<_>, Vec<_>) = offer.fds.into_iter().unzip();
    write_note(control, &Note::Offer { words: offer.words, fds: names }, &fds);
}

fn receive_offer(control: &UnixStream) -> Offer {
    match read_note(control) {
        Some((Note::Offer { words, fds: names }, fds)) => {
            Offer { words, fds: names.into_iter().zip(fds).collect() }
        }
        other => panic!("expected an offer, got {other:?}"),
    }
}

/// Opens this process's end; the process at the other end of `control` opens its own.
fn open_over<M: Mechanism>(control: &UnixStream, side: Side, spec: &Spec) -> End<M> {
    let (tx, rx) = match side {
        Side::Listens => {
            let (mut listener, offer) = M::listen(spec).unwrap();
            send_offer(control, offer);
            listener.accept(soon()).unwrap()
        }
        Side::Connects => M::connect(spec, &mut receive_offer(control)).unwrap(),
    };
    End { tx, rx }
}

/// A child; killed when dropped.
pub(crate) struct Peer {
    child: Child,
    control: UnixStream,
    wait: Wait,
}

impl Peer {
    /// Starts a child and opens a channel with it; `side` is the child's.
    pub(crate) fn open<M: Mechanism>(spec: &Spec, side: Side, job: Job) -> (End<M>, Peer) {
        let peer = Peer::start(M::ID, spec, side, job, Command::new(this_program()));
        let here = match side {
            Side::Listens => Side::Connects,
            Side::Connects => Side::Listens,
        };
        (open_over::<M>(&peer.control, here, spec), peer)
    }

    /// Starts a child with `command`, to which the test's name and the job are added.
    pub(crate) fn start(id: &str, spec: &Spec, side: Side, job: Job, mut command: Command) -> Peer {
        let (here, there) = UnixStream::pair().unwrap();
        let (id, wait) = (id.to_owned(), spec.wait);
        let task = Task { id, side, job, max_message: spec.max_message, wait };
        command
            .args(["peer::as_a_peer_this_process_does_its_job", "--exact"])
            .args(["--nocapture", "--test-threads=1"])
            .env(TASK, serde_json::to_string(&task).unwrap())
            .stdin(OwnedFd::from(there))
            .stdout(Stdio::null());
        if let Some((name, path)) = crossway_mech::mechanisms::tipc_node::variable() {
            command.env(name, path);
        }
        proc::die_with_parent(&mut command);
        Peer { child: command.spawn().unwrap(), control: here, wait }
    }

    /// Starts two children and opens a channel between them.
    pub(crate) fn introduce<M: Mechanism>(spec: &Spec, job: Job) -> (Peer, Peer) {
        let child = |side| Peer::start(M::ID, spec, side, job, Command::new(this_program()));
        let (listens, connects) = (child(Side::Listens), child(Side::Connects));
        send_offer(&connects.control, receive_offer(&listens.control));
        (listens, connects)
    }

    /// Waits until the child has started its job. If the child's end waits by blocking, also waits until the child
    /// sleeps.
    pub(crate) fn wait_until_at_work(&self) {
        let tid = match read_note(&self.control) {
            Some((Note::Begun { tid }, _)) => tid,
            other => panic!("the peer did not start its job: {other:?}"),
        };
        if self.wait != Wait::Block {
            return;
        }
        let stat = format!("/proc/{}/task/{tid}/stat", self.child.id());
        let begin = Instant::now();
        while begin.elapsed() < STEP_WATCHDOG {
            let text = std::fs::read_to_string(&stat).unwrap();
            if text[text.rfind(')').unwrap()..].starts_with(") S") {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the peer never sleeps");
    }

    /// Kills the child (kill -9), and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the child (kill -9), without waiting until it is dead.
    pub(crate) fn kill_soon(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for the end of a job that ends by itself, and asserts that it succeeded.
    pub(crate) fn must_end_well(mut self) {
        // No more messages follow; a child that the mechanism does not inform checks for this.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "the peer failed: {status}");
                return;
            }
            assert!(begin.elapsed() < 2 * STEP_WATCHDOG, "the peer does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of this test program.
pub(crate) fn this_program() -> std::path::PathBuf {
    // Not the path of the file, over which a check may have mounted something else.
    std::path::PathBuf::from("/proc/self/exe")
}

struct Work(Task);

impl Visitor for Work {
    type Out = ();

    fn visit<M: Mechanism>(self) {
        let Task { side, job, max_message, wait, .. } = self.0;
        if would_be_killed::<M>() {
            // Some shells unblock the signals that they inherit.
            return again_with_signals_blocked();
        }
        if job == Job::LeaveNothing {
            return crate::leftovers::in_private_places::<M>();
        }
        let spec = Spec { max_message, wait, ..Spec::default() };
        let control = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
        let end = open_over::<M>(&control, side, &spec);
        if job == Job::Echo {
            return echo(end, M::caps().detects_peer_death, &control);
        }
        let tid = thread_id();
        let begun = || write_note(&control, &Note::Begun { tid }, &[]);
        work(end, job, max_message, begun);
        // The parent kills this process.
        loop {
            std::thread::park();
        }
    }
}

/// The calling thread's id, from the link that the kernel keeps for it.
pub(crate) fn thread_id() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn echo<M: Mechanism>(mut end: End<M>, told_of_death: bool, control: &UnixStream) {
    let mut buf = [0; 64];
    // If the mechanism does not report the end of the peer, the process that started this one does.
    let silence = Duration::from_millis(100);
    loop {
        let until = if told_of_death { soon() } else { Some(Instant::now() + silence) };
        match end.rx.recv(&mut buf, until) {
            Ok(len) => match end.tx.send(&buf[..len], soon()) {
                Ok(()) => {}
                Err(SendError::PeerClosed) => return,
                Err(error) => panic!("{error}"),
            },
            Err(RecvError::PeerClosed) => return,
            Err(RecvError::TimedOut) if !told_of_death => {
                if is_hung_up(control).unwrap() {
                    return;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn work<M: Mechanism>(mut end: End<M>, job: Job, max: usize, begun: impl Fn()) {
    match job {
        Job::Idle => {
            begun();
            std::thread::park();
        }
        Job::Receive => {
            begun();
            let _ = end.rx.recv(&mut vec![0; max], None);
        }
        Job::FillUp => {
            let msg = vec![1; max.min(4096)];
            while end.tx.try_send(&msg).is_ok() {}
            begun();
            let _ = end.tx.send(&msg, None);
        }
        Job::WriteInPlace => {
            let mut scratch = vec![0; max];
            let _ = end.tx.send_in_place(max.min(64), &mut scratch, None, |_| {
                begun();
                loop {
                    std::thread::park();
                }
            });
        }
        Job::Echo | Job::LeaveNothing => unreachable!("handled by the caller"),
    }
}

#[test]
fn as_a_peer_this_process_does_its_job() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task: Task = serde_json::from_str(&task).unwrap();
    registry::dispatch(&task.id.clone(), Work(task)).unwrap();
}
