//! Sets up TIPC on a testbed: enables bearers and waits for links.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crossway_netlab::Guest;
use crossway_sys::{Obstacle, proc};

use super::error::TestbedError;

/// Time limit for two kernels to find each other; it usually takes less than a second.
const LINK_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Path of the socket of a guest's `tipcd`. It is the same in every guest, because each has its own /run.
pub(super) const GUEST_SOCKET: &str = "/run/tipcd.sock";

/// Makes each of these guests' kernels a TIPC node on the network and waits until it has a link to another node.
pub(super) fn join_kernels(guests: &[&Guest]) -> Result<(), TestbedError> {
    for guest in guests {
        let words = ["tipc", "bearer", "enable", "media", "eth", "device", "eth0"];
        let done = run(guest, &words)?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(obstacle(guest, &format!("{} failed: {said}", words.join(" "))));
        }
    }
    for guest in guests {
        wait_for_link(guest)?;
    }
    Ok(())
}

fn wait_for_link(guest: &Guest) -> Result<(), TestbedError> {
    let until = Instant::now() + LINK_LIMIT;
    loop {
        let links = run(guest, &["tipc", "link", "list"])?;
        let links = String::from_utf8_lossy(&links.stdout).into_owned();
        // The broadcast link always exists and is up.
        let up = |line: &&str| line.ends_with(": up") && !line.starts_with("broadcast-link");
        if links.lines().any(|line| up(&line.trim())) {
            return Ok(());
        }
        if Instant::now() >= until {
            let what = format!("no TIPC link came up within {} s: {links}", LINK_LIMIT.as_secs());
            return Err(obstacle(guest, &what));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The TIPC network id of Crossway's own nodes; it differs from the kernel's, which may be on the same interface.
const NODES_NETID: &str = "4712";

/// A host's `tipcd`. It exits when this value is dropped.
#[derive(Debug)]
pub(super) struct Tipcd {
    child: Child,
    /// The lines of the tipcd's output.
    lines: Receiver<String>,
    host: String,
}

impl Tipcd {
    /// Starts a `tipcd` with the command prefix `prefix`, which serves programs at `socket`.
    pub(super) fn start(
        host: &str,
        prefix: &[String],
        program: &str,
        socket: &str,
    ) -> Result<Tipcd, TestbedError> {
        let own = [program, "tipcd", "--socket", socket, "--netid", NODES_NETID, "eth:eth0"];
        let words: Vec<&str> = prefix.iter().map(String::as_str).chain(own).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        proc::own_session(&mut command);
        proc::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|e| tipcd_obstacle(host, &e.to_string()))?;
        let (tell, lines) = channel();
        if let Some(out) = child.stdout.take() {
            // Read until the end, or the node would block on its output.
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
        }
        Ok(Tipcd { child, lines, host: host.to_owned() })
    }

    /// Waits until the tipcd has a link to another node.
    pub(super) fn wait_for_link(&self) -> Result<(), TestbedError> {
        let until = Instant::now() + LINK_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with("node ") && line.ends_with(" up") => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("no TIPC link came up within {} s", LINK_LIMIT.as_secs());
                    return Err(tipcd_obstacle(&self.host, &what));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(tipcd_obstacle(&self.host, "it exited before a TIPC link came up"));
                }
            }
        }
    }
}

impl Drop for Tipcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error if a `tipcd` on a host of a network does not start or has no link.
pub(crate) fn tipcd_obstacle(host: &str, what: &str) -> TestbedError {
    let remedy = "test tipcd manually: crossway net up; crossway net exec NET/HOST -- crossway tipcd eth:eth0";
    Obstacle::new(format!("tipcd on host '{host}': {what}"), remedy).into()
}

fn run(guest: &Guest, words: &[&str]) -> Result<Output, TestbedError> {
    let prefix = guest.prefix();
    Command::new(&prefix[0])
        .args(&prefix[1..])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| obstacle(guest, &format!("{}: {e}", words.join(" "))))
}

fn obstacle(guest: &Guest, what: &str) -> TestbedError {
    let remedy = "test a guest manually: crossway guest up, crossway guest exec NAME -- tipc bearer enable ...";
    Obstacle::new(format!("guest '{}': {what}", guest.record().name), remedy).into()
}
