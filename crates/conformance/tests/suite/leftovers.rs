//! Tests that nothing remains of a channel (no name, queue, segment, file, descriptor or thread), no matter which end
//! died and how.
//!
//! The places to check belong to the whole machine, where other programs create and remove things. So the check runs in
//! a child with its own IPC namespace and mounts, where everything found comes from the mechanism.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use super::bench::*;
use super::peer::{Job, Peer, Side};
use crossway_mech::{Mechanism, Rx, Tx};

/// The shell commands that mount empty file systems over the places to check and then run a program. The program is
/// opened first, since it may be below /tmp. If there is no /dev/shm, nothing is mounted over it.
const PRIVATE: &str = "exec 9<\"$0\" && if [ -d /dev/shm ]; then mount -t tmpfs crossway /dev/shm; fi \
     && mount -t tmpfs crossway /tmp && mkdir /tmp/mqueue \
     && if grep -q mqueue /proc/filesystems; then mount -t mqueue crossway /tmp/mqueue; fi \
     && exec /proc/self/fd/9 \"$@\"";

pub(crate) fn nothing_is_left_behind<M: Mechanism>() {
    check::<M>(|| {
        let mut command = private_shell();
        command.arg("/bin/true");
        match command.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                return skip::<M>(&format!("no private places: {}; run as root", why.trim()));
            }
            Err(error) => return skip::<M>(&format!("unshare: {error}; install util-linux")),
        }
        let mut command = private_shell();
        command
            .arg(std::env::current_exe().unwrap())
            .env("TMPDIR", "/tmp")
            .env_remove("XDG_RUNTIME_DIR");
        let spec = natural_spec::<M>();
        Peer::start(M::ID, &spec, Side::Connects, Job::LeaveNothing, command).must_end_well();
    });
}

fn private_shell() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--ipc", "--mount", "sh", "-c", PRIVATE]);
    command
}

/// The time after which nothing more disappears by itself, however busy the machine.
const TIME_TO_GO: Duration = Duration::from_secs(60);

/// Lists everything that exists now in the places to check.
fn look_around() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for dir in ["/dev/shm", "/tmp/mqueue", "/tmp"] {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            found.insert(entry.unwrap().path().display().to_string());
        }
    }
    for table in ["msg", "sem", "shm"] {
        let text = std::fs::read_to_string(format!("/proc/sysvipc/{table}")).unwrap();
        found.extend(text.lines().skip(1).map(|line| format!("sysv {table}: {line}")));
    }
    // By target, so that a reused number does not hide a descriptor that remained.
    let fds: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().collect();
    for fd in fds {
        let path = fd.unwrap().path();
        // The descriptor of the listing itself is closed by now.
        if let Ok(target) = std::fs::read_link(&path) {
            found.insert(format!("{} -> {}", path.display(), target.display()));
        }
    }
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    found.extend((0..threads).map(|n| format!("thread {n}")));
    found
}

/// Runs in the child: opens and ends channels of the mechanism in several ways, and compares what exists before and
/// after each.
pub(crate) fn in_private_places<M: Mechanism>() {
    // What a first use creates permanently (a handler, a clock) is not left by the mechanism.
    use_once::<M>();
    let mut before = calm();
    for (what, deed) in [
        ("a channel that was used and closed", use_once::<M> as fn()),
        ("a listener that nobody connected to", listen_in_vain::<M>),
        ("a peer that was killed", survive_a_peer::<M>),
        ("two ends that were killed", lose_both_ends::<M>),
    ] {
        // On a busy machine, something that the first use started may still be ending after a calm moment. That happens
        // once; if a use removes something that it did not create, that happens every time.
        for attempt in 1.. {
            deed();
            let after = settled(|now| now.is_subset(&before));
            let left: Vec<_> = after.difference(&before).collect();
            assert!(left.is_empty(), "{} left {left:?} after {what}", M::ID);
            if before == after {
                break;
            }
            assert!(
                attempt < 4,
                "{} removed more than it created after {what}: {before:?} {after:?}",
                M::ID
            );
            before = after;
        }
    }
}

/// Waits until nothing has changed for a while, because something that the first use started may still be ending.
/// Returns what exists then.
fn calm() -> BTreeSet<String> {
    let (begin, mut since, mut last) = (Instant::now(), Instant::now(), settled(|_| true));
    while since.elapsed() < Duration::from_millis(200) && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(2));
        let now = look_around();
        if now != last {
            (since, last) = (Instant::now(), now);
        }
    }
    last
}

/// Lists what exists until `done` accepts the list, or until everything had enough time to disappear; returns the last
/// list.
fn settled(done: impl Fn(&BTreeSet<String>) -> bool) -> BTreeSet<String> {
    let begin = Instant::now();
    loop {
        // Leased objects of killed processes are removed at the latest when the next run starts.
        crossway_sys::lease::sweep_dead_runs().unwrap();
        let now = look_around();
        if done(&now) || begin.elapsed() > TIME_TO_GO {
            return now;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn use_once<M: Mechanism>() {
    let (mut here, mut there) = open::<M>(&natural_spec::<M>());
    let len = fits::<M>(64);
    here.tx.send(&[1; 64][..len], soon()).unwrap();
    here.tx.flush().unwrap();
    there.rx.recv(&mut [0; 64], soon()).unwrap();
    // One message is not read.
    there.tx.send(&[2; 64][..len], soon()).unwrap();
}

fn listen_in_vain<M: Mechanism>() {
    drop(M::listen(&natural_spec::<M>()).unwrap());
    let (listener, offer) = M::listen(&natural_spec::<M>()).unwrap();
    drop(offer);
    drop(listener);
}

fn survive_a_peer<M: Mechanism>() {
    for side in [Side::Connects, Side::Listens] {
        let (here, mut peer) = Peer::open::<M>(&natural_spec::<M>(), side, Job::Idle);
        peer.wait_until_at_work();
        peer.kill();
        drop(here);
    }
}

fn lose_both_ends<M: Mechanism>() {
    let spec = natural_spec::<M>();
    let (mut a, mut b) = Peer::introduce::<M>(&spec, Job::Idle);
    a.wait_until_at_work();
    b.wait_until_at_work();
    a.kill();
    b.kill();
}
