//! A listening process hands its channels to another one while messages flow, again and again, and the client notices
//! nothing.

mod serving;
mod stream;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossway_channel::{
    Channel, Directory, Error, EventKind, Listener, Options, Reason, Receiver, RecvError,
    TakenOver, Transport,
};
use crossway_sys::poll::{Interest, wait_ready};
use serving::serve;
use stream::{drain, pump, soon};

const ROLE: &str = "CROSSWAY_CHANNEL_TEST_ROLE";
const DIR: &str = "CROSSWAY_CHANNEL_TEST_DIR";
const NAME: &str = "moves/around";
/// How often a channel is handed over while switches are requested.
const ROUNDS: u8 = 40;

fn options(dir: &Path) -> Options {
    Options {
        max_message: 4096,
        capacity_bytes: Some(64 << 10),
        directory: Directory::at(dir),
        ..Options::default()
    }
}

/// The child process: a server that listens or takes over, and serves until its client closes or another process wants
/// to take over.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = std::env::var(DIR).expect("the parent says where");
    let options = options(Path::new(&dir));
    let (listener, mut channel) = if role == "listen" {
        let listener = options.listen(NAME).unwrap();
        let channel = listener.accept(soon()).unwrap();
        (listener, channel)
    } else {
        let TakenOver { listener, channels, incomplete } = options.take_over(NAME, soon()).unwrap();
        assert!(incomplete.is_none(), "{incomplete:?}");
        (listener, channels.into_iter().next().expect("one channel is handed over"))
    };
    if serve(&listener, &mut channel, 0).unwrap() {
        assert_eq!(listener.hand_over(vec![channel], soon()).unwrap(), 1);
    } else {
        let (sender, _receiver) = channel.split();
        sender.close(soon()).unwrap();
    }
}

#[test]
fn the_channels_of_an_incomplete_hand_over_are_taken_and_its_error_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let listener = options(dir.path()).listen(NAME).unwrap();
    let mut client = options(dir.path()).connect(NAME, soon()).unwrap();
    let channel = listener.accept(soon()).unwrap();
    let foreign = options(dir.path()).connect(NAME, soon()).unwrap();
    let _accepted = listener.accept(soon()).unwrap();
    let next = options(dir.path());
    let taking = std::thread::spawn(move || next.take_over(NAME, soon()).unwrap());
    // The second one cannot be handed over, because it is the end that connected.
    let handed = listener.hand_over(vec![channel, foreign], soon());
    assert!(matches!(handed, Err(Error::HandOver(_))), "{handed:?}");
    let mut taken = taking.join().unwrap();
    assert_eq!(taken.channels.len(), 1);
    assert!(matches!(taken.incomplete, Some(Error::HandOver(_))), "{:?}", taken.incomplete);
    taken.channels[0].sender().send(b"after", soon()).unwrap();
    assert_eq!(client.receiver().recv(&mut [0; 8], soon()).unwrap(), 5);
}

#[test]
fn a_switch_that_is_requested_at_any_moment_of_a_hand_over_does_not_break_the_channel() {
    let dir = tempfile::tempdir().unwrap();
    let mut listener = options(dir.path()).listen(NAME).unwrap();
    let mut client = options(dir.path()).connect(NAME, soon()).unwrap();
    let mut channel = listener.accept(soon()).unwrap();
    for round in 0..ROUNDS {
        let (handle, next) = (channel.handle(), options(dir.path()));
        let over = AtomicBool::new(false);
        let mut taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                let wanted = [Transport::ShmFutex, Transport::UdsSeqpacket].into_iter().cycle();
                for to in wanted.take_while(|_| !over.load(Ordering::Relaxed)) {
                    // Only begins the switch.
                    let _ = handle.switch_to(to, Some(Instant::now()));
                    // Without a pause, the channel's lock is hardly ever free when the other end wakes up for it.
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            let taking = scope.spawn(move || next.take_over(NAME, soon()).unwrap());
            let handed = listener.hand_over(vec![channel], soon());
            over.store(true, Ordering::Relaxed);
            assert_eq!(handed.unwrap(), 1);
            taking.join().unwrap()
        });
        (listener, channel) = (taken.listener, taken.channels.remove(0));
        channel.sender().send(&[round], soon()).unwrap();
        let mut buf = [0; 8];
        assert_eq!(
            client.receiver().recv(&mut buf, soon()).unwrap(),
            1,
            "{:?}",
            channel.handle().log()
        );
        assert_eq!(buf[0], round);
    }
}

/// Hands over a channel whose client has sent two messages and its end, before its program has received them.
fn handed_over(polls: bool) -> (Listener, Channel, Receiver) {
    let dir = tempfile::tempdir().unwrap();
    let mut serves = options(dir.path());
    serves.policy.pollable = polls;
    let listener = serves.clone().listen(NAME).unwrap();
    let (mut sender, receiver) = options(dir.path()).connect(NAME, soon()).unwrap().split();
    let channel = listener.accept(soon()).unwrap();
    sender.send(b"one", soon()).unwrap();
    sender.send(b"two", soon()).unwrap();
    sender.close(soon()).unwrap();
    let taking = std::thread::spawn(move || serves.take_over(NAME, soon()).unwrap());
    assert_eq!(listener.hand_over(vec![channel], soon()).unwrap(), 1);
    let TakenOver { listener, mut channels, .. } = taking.join().unwrap();
    (listener, channels.remove(0), receiver)
}

#[test]
fn what_a_closed_client_has_sent_is_handed_over() {
    let (_listener, mut channel, _receiver) = handed_over(false);
    let mut buf = [0; 8];
    for message in [b"one", b"two"] {
        let len = channel.receiver().recv(&mut buf, soon()).unwrap();
        assert_eq!(&buf[..len], message);
    }
    assert!(matches!(channel.receiver().recv(&mut buf, soon()), Err(RecvError::Closed)));
}

#[test]
fn a_program_that_polls_finds_what_the_process_before_it_had_taken_in() {
    let (_listener, mut channel, _receiver) = handed_over(true);
    let fd = channel.receiver().poll_fd().unwrap().try_clone_to_owned().unwrap();
    let mut receive = || loop {
        assert!(wait_ready(&fd, Interest::Readable, soon()).unwrap(), "nothing to read");
        let mut buf = [0; 8];
        match channel.receiver().try_recv(&mut buf) {
            Err(RecvError::Empty) => {}
            outcome => break outcome.map(|len| buf[..len].to_vec()),
        }
    };
    assert_eq!(receive().unwrap(), b"one");
    assert_eq!(receive().unwrap(), b"two");
    assert!(matches!(receive(), Err(RecvError::Closed)));
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, dir: &Path) -> Server {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(ROLE, role).env(DIR, dir);
    Server(command.stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_client_streams_on_while_its_server_is_replaced_three_times() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start("listen", dir.path());
    let channel = options(dir.path()).connect(NAME, soon()).unwrap();
    let handle = channel.handle();
    let (sender, receiver) = channel.split();
    let stop = AtomicBool::new(false);
    let (there, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| pump(sender, 1, &stop, &there));
        let receiving = scope.spawn(|| drain(receiver, 2, &back));
        for _ in 0..3 {
            // Messages flow both ways before each replacement.
            let begun = [&there, &back].map(|count| (count, count.load(Ordering::Relaxed) + 10));
            while begun.iter().any(|(count, enough)| count.load(Ordering::Relaxed) < *enough) {
                assert!(!sending.is_finished() && !receiving.is_finished(), "a stream ended early");
                std::thread::yield_now();
            }
            let next = start("take-over", dir.path());
            assert!(server.0.wait().unwrap().success(), "the old server ends in order");
            server = next;
        }
        // Once messages flow again, the last process has taken over.
        while handle.transport() == Transport::Parked {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        (sending.join().unwrap(), receiving.join().unwrap())
    });
    // The server ends normally only if its client received every message once.
    assert!(server.0.wait().unwrap().success());
    eprintln!("{sent} messages there, {received} back");
    assert!(sent > 10 && received > 10);
    let parked = handle
        .log()
        .iter()
        .any(|event| matches!(&event.what, EventKind::Switched { why: Reason::HandOver, .. }));
    assert!(parked, "{:?}", handle.log());
    drop(handle);
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "no name is left");
}

#[test]
fn nobody_to_take_over_from_and_nobody_to_hand_over_to_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let now = Some(Instant::now());
    let Err(Error::NobodyListens { name, .. }) = options(dir.path()).take_over("none", now) else {
        panic!("it takes over")
    };
    assert_eq!(name, "none");
    let listener = options(dir.path()).listen("none").unwrap();
    assert!(!listener.is_asked_to_hand_over());
    let Err(Error::NobodyTookOver { .. }) = listener.hand_over(Vec::new(), now) else {
        panic!("it hands over")
    };
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "no name is left");
}
