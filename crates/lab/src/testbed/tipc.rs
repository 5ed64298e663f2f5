//! TIPC on a testbed: bearers on, links waited for.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossway_netlab::Guest;

use super::bed::BedError;

/// How long two kernels may take to find each other; they do it within a second.
const LINK_LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Puts every guest's kernel on the network as a TIPC node and waits until each has a link to the other.
pub(super) fn join_kernels(guests: &[Guest]) -> Result<(), BedError> {
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

fn wait_for_link(guest: &Guest) -> Result<(), BedError> {
    let until = Instant::now() + LINK_LIMIT;
    loop {
        let links = run(guest, &["tipc", "link", "list"])?;
        let links = String::from_utf8_lossy(&links.stdout).into_owned();
        // The broadcast link is always there, and up.
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

fn run(guest: &Guest, words: &[&str]) -> Result<Output, BedError> {
    let prefix = guest.prefix();
    Command::new(&prefix[0])
        .args(&prefix[1..])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| obstacle(guest, &format!("{}: {e}", words.join(" "))))
}

fn obstacle(guest: &Guest, what: &str) -> BedError {
    BedError::Obstacle(
        format!("guest '{}': {what}", guest.record().name),
        "try by hand: crossway guest up, crossway guest exec NAME -- tipc bearer enable ..."
            .to_owned(),
    )
}
