//! Ends the processes on the hosts of a network.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossway_sys::netns;

use crate::Network;
use crate::network::namespace_path;
use crate::registry::Process;

/// Maximum number of rounds in which all processes on a network's hosts are killed. Each round also kills the processes
/// that were started during the previous one.
const KILL_ROUNDS: u32 = 20;

/// Time that the processes on the hosts have to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Returns the processes in these namespaces, except this one.
fn processes_in<'a>(namespaces: impl Iterator<Item = &'a str>) -> Vec<Process> {
    let paths: Vec<PathBuf> = namespaces.map(namespace_path).collect();
    let members = netns::members(paths.iter().map(PathBuf::as_path));
    members.into_iter().filter(|pid| *pid != std::process::id()).filter_map(Process::of).collect()
}

/// Sends SIGTERM to the processes on the hosts, and waits at most [`GRACE`] for them to end.
pub(super) fn ask_to_end(network: &Network) {
    // Not the network's switch: programs may still have something to say to each other.
    let asked = processes_in(network.host_namespaces());
    asked.iter().for_each(Process::terminate);
    let deadline = Instant::now() + GRACE;
    for process in asked {
        process.await_end(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Kills the processes on the hosts, including those started between listing and killing.
pub(super) fn kill(network: &Network) {
    for _ in 0..KILL_ROUNDS {
        let living = processes_in(network.namespaces());
        if living.is_empty() {
            return;
        }
        living.iter().for_each(Process::kill);
    }
    tracing::warn!("network '{}': not all processes on its hosts could be killed", network.name);
}
