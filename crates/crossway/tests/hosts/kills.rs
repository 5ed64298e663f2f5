//! Controllers that are killed at random times between their start and the trials on a network.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use super::*;

/// Number of kills per test run; the environment variable `CROSSWAY_KILLS` overrides it.
const KILLS: u32 = 24;
/// Time limit for the clean-up after a kill. It usually takes a fraction of a second.
const CLEANUP_LIMIT: Duration = Duration::from_secs(120);

/// A plan with mechanisms whose objects have names, on this machine and on hosts that are namespaces.
const NAMED: &str = r#"
[testbed.net]
kind = "netlab"
rate = "1gbit"
tipc = "node"
[defaults]
mechanisms = ["fifo", "posix-mq", "sysv-mq", "sysv-shm", "tcp", "tipc-node-rdm"]
workload = "ping-pong"
size_bytes = 64
trials = 100
warmup_ms = 5
measure_ms = 20
[group.here]
[group.between]
testbed = "net"
mechanisms = ["tcp", "tipc-node-rdm"]
[group.within]
testbed = "net"
ends = "within"
"#;

/// Namespaces in which all named objects belong to this test: /run with the networks in it, shared memory, and System V
/// and POSIX objects.
struct OwnNames {
    holder: Child,
}

impl OwnNames {
    /// Creates the namespaces; returns `None` without root privileges.
    fn make() -> Option<OwnNames> {
        let script = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && \
                      mkdir -p /run/mq && mount -t mqueue none /run/mq && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--ipc", "sh", "-c", script])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare of util-linux");
        let mut word = String::new();
        let _ = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut word);
        let own = OwnNames { holder };
        (word.trim() == "ready").then_some(own)
    }

    fn start(&self, place: &Place) -> Child {
        let crossway = place.command(&[]);
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--ipc", "--target", &self.holder.id().to_string()])
            .arg(format!("--wd={}", place.dir.path().display()))
            .arg(crossway.get_program())
            .args(["measure", "plan.toml"])
            .stdout(Stdio::null());
        for (name, value) in crossway.get_envs() {
            command.env(name, value.unwrap());
        }
        command.spawn().unwrap()
    }

    /// Returns named objects in these namespaces that should have been removed.
    fn leftovers(&self) -> Vec<String> {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        let mut left = Vec::new();
        for dir in ["run/netns", "run/crossway/net", "run/crossway/guest", "dev/shm", "run/mq"] {
            let Ok(entries) = fs::read_dir(root.join(dir)) else { continue };
            let names = entries.flatten().map(|entry| entry.file_name().into_string().unwrap());
            // The lock of the registry, and the facts about this machine's kernel, stay.
            let names = names.filter(|name| name != "lock" && name != "without-netem");
            left.extend(names.map(|name| format!("/{dir}/{name}")));
        }
        let tables = Command::new("nsenter")
            .args(["--ipc", "--target", &self.holder.id().to_string(), "cat"])
            .args(["/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sysvipc/shm"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&tables.stdout).into_owned();
        left.extend(text.lines().filter(|line| !line.contains("key")).map(str::to_owned));
        left
    }
}

impl Drop for OwnNames {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns a random number in [0, 1).
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[test]
fn a_controller_killed_at_any_instant_leaves_nothing() {
    let Some(names) = OwnNames::make() else {
        eprintln!("SKIP kills at random instants: namespaces need root; run with sudo");
        return;
    };
    let place = Place::new(NAMED);
    let kills = std::env::var("CROSSWAY_KILLS").map_or(KILLS, |n| n.parse().expect("a number"));
    // The first run shows how long it takes until trials run; then it is killed, too.
    let mut span = Duration::ZERO;
    for kill in 0..kills {
        let _ = fs::remove_dir_all(place.dir.path().join("out"));
        let begin = Instant::now();
        let mut child = names.start(&place);
        if kill == 0 {
            let running = |child: &mut Child| child.try_wait().unwrap().is_none();
            await_that("records", || !running(&mut child) || place.count_records() >= 12);
            assert!(running(&mut child), "the controller ended by itself");
            span = begin.elapsed();
        } else {
            std::thread::sleep(span.mul_f64(random() * 1.1));
        }
        let lived = begin.elapsed();
        child.kill().unwrap();
        child.wait().unwrap();
        let until = Instant::now() + CLEANUP_LIMIT;
        loop {
            let mut left = place.leftovers();
            left.extend(names.leftovers());
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "kill {kill}, {lived:?} after the start: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
