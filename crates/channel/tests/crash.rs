//! Ends that are killed at every step of a switch, while messages flow both ways: the survivor receives a prefix of
//! what was sent and then the end of the channel, and no resources remain.
//!
//! The end to be killed is a child process that runs this test program with a role.

mod child;
mod holdings;
mod stream;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use child::{Killed, start};
use crossway_channel::{
    Channel, Directory, EventKind, Handle, Options, Policy, Receiver, RecvError, SendError, Sender,
    Transport,
};
use holdings::{nothing_is_left, settled_holdings};
use stream::{Stream, check, fill, soon};

const ROLE: &str = "CROSSWAY_CHANNEL_TEST_ROLE";
const DIR: &str = "CROSSWAY_CHANNEL_TEST_DIR";
const NAME: &str = "crash/test";

/// Descriptors and mappings are counted for the whole process, so its tests run one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn options(dir: &Path) -> Options {
    Options {
        max_message: 4096,
        capacity_bytes: Some(64 << 10),
        policy: Policy { dry_run: true, ..Policy::default() },
        directory: Directory::at(dir),
        ..Options::default()
    }
}

/// Sends until `stop` is set or the peer has ended; returns the number of messages.
fn pump(mut sender: Sender, seed: u64, stop: &AtomicBool) -> u64 {
    let (mut stream, mut msg) = (Stream::new(seed), [0; 4096]);
    while !stop.load(Ordering::Relaxed) {
        let len = fill(&mut stream, &mut msg);
        match sender.send(&msg[..len], soon()) {
            Ok(()) => {}
            Err(SendError::PeerClosed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.count()
}

/// Receives and checks messages until an error; returns the number of messages and the error.
fn drain(mut receiver: Receiver, seed: u64) -> (u64, RecvError) {
    let mut stream = Stream::new(seed);
    loop {
        match receiver.recv_in_place(soon(), |msg| check(&mut stream, msg)) {
            Ok(()) => {}
            Err(error) => return (stream.count(), error),
        }
    }
}

/// Switches from transport to transport until the channel is over.
fn switch_on(handle: &Handle) {
    for to in Transport::LOCAL.into_iter().cycle() {
        if handle.is_over() {
            return;
        }
        if to != handle.transport() && handle.switch_to(to, soon()).is_err() {
            return;
        }
    }
}

/// The child process: an end that sends and receives, and switches if it leads, until it is killed.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = std::env::var(DIR).expect("the parent says where");
    let options = options(Path::new(&dir));
    let (leads, channel) = if role == "listen" {
        let listener = options.listen(NAME).unwrap();
        (true, listener.accept(soon()).unwrap())
    } else {
        (false, options.connect(NAME, soon()).unwrap())
    };
    let handle = channel.handle();
    let (sender, receiver) = channel.split();
    std::thread::spawn(move || pump(sender, 2, &AtomicBool::new(false)));
    std::thread::spawn(move || drain(receiver, 1));
    if leads {
        switch_on(&handle);
    }
    std::thread::sleep(Duration::from_secs(300));
}

fn start_child(role: &str, dir: &Path, fault: Option<&str>) -> Killed {
    start(&[(ROLE, role.to_owned()), (DIR, dir.to_str().unwrap().to_owned())], fault)
}

/// Runs a channel whose other end, a child with a role, is killed; returns how long after the death the receiver got an
/// error.
fn survive(role: &str, fault: Option<&str>) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let (mut child, channel): (Killed, Channel);
    if role == "listen" {
        child = start_child(role, dir.path(), fault);
        channel = options.connect(NAME, soon()).unwrap();
    } else {
        let listener = options.listen(NAME).unwrap();
        child = start_child(role, dir.path(), fault);
        channel = listener.accept(soon()).unwrap();
    }
    let handle = channel.handle();
    let (sender, receiver) = channel.split();
    let stop = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let sending = scope.spawn(|| pump(sender, 1, &stop));
        let receiving = scope.spawn(|| (drain(receiver, 2), Instant::now()));
        let switching = (role == "connect").then(|| scope.spawn(|| switch_on(&handle)));
        if fault.is_none() {
            // The death comes while there are traffic and switches.
            while handle.epoch() < 3 {
                std::thread::yield_now();
            }
            child.0.kill().unwrap();
        }
        child.0.wait().unwrap();
        let death = Instant::now();
        let ((count, end), told) = receiving.join().unwrap();
        assert!(matches!(end, RecvError::PeerDied), "{role} {fault:?}: {end} after {count}");
        // The sender notices the death by itself.
        sending.join().unwrap();
        if let Some(thread) = switching {
            thread.join().unwrap();
        }
        told.saturating_duration_since(death)
    });
    let last = handle.log().pop().map(|event| event.what);
    assert_eq!(last, Some(EventKind::PeerDied), "{role} {fault:?}");
    drop(handle);
    let limit = soon().unwrap();
    while std::fs::read_dir(dir.path()).unwrap().next().is_some() {
        assert!(Instant::now() < limit, "{role} {fault:?}: a name is left");
        std::thread::yield_now();
    }
    told
}

fn every_step(role: &str, steps: &[&str]) {
    let _turn = TURN.lock();
    // The control thread and its descriptors are there for good.
    survive(role, None);
    let before = settled_holdings();
    let mut told = Vec::new();
    for step in steps {
        for count in [1, 3] {
            let fault = format!("{step}@{count}");
            told.push(survive(role, Some(&fault)));
            nothing_is_left(before, &fault);
        }
    }
    told.sort_unstable();
    eprintln!("{role}: {} deaths, told after {:?} at the latest", told.len(), told.last());
}

#[test]
fn a_listening_end_that_is_killed_at_any_step_is_missed_and_leaves_nothing() {
    every_step("listen", &["Made", "Offer", "Go", "Marked", "Followed", "Moved", "Settled"]);
}

#[test]
fn a_connecting_end_that_is_killed_at_any_step_is_missed_and_leaves_nothing() {
    every_step("connect", &["Opened", "Ready", "Marked", "Followed", "Moved", "Settled"]);
}
