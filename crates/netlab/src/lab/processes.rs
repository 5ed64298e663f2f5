//! Ends the processes on the hosts of a network.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossway_sys::netns;

use crate::Network;
use crate::network::namespace_path;
use crate::registry::Process;

/// Number of rounds of killing: each kills all processes on a network's hosts, and the next one finds those started
/// meanwhile.
const KILL_ROUNDS: u32 = 20;

/// Time that the processes on the hosts have to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Returns the processes in these namespaces, except this one.
fn processes_in<'a>(namespaces: impl Iterator<Item = &'a str>) -> Vec<Process> {
    let paths: Vec<PathBuf> = namespaces.map(namespace_path).collect();
    let members = netns::members(paths.iter().map(PathBuf::as_path));
    members.into_iter().filter(|pid| *pid != std::process::id()).filter_map(Process::of).collect()
}

/// Asks the processes on the hosts to end by SIGTERM and waits for them for at most [`GRACE`].
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
