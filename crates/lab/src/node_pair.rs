//! Two hosts of a virtual network, with a `tipcd` each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crossway_netlab::{Host, Lab, Link, Topology};
use crossway_sys::lease;
use crossway_tipc_client::LoneTipcd;

use crate::live_testbed::{TestbedError, tipcd_obstacle};

/// Time limit for the two nodes to find each other, seconds; it usually takes less than a second.
const LINK_LIMIT_S: &str = "60";

/// The hosts and their `tipcd`s. Both are gone when this value is dropped.
pub(crate) struct NodePair {
    // In the order in which they end: a tipcd needs its host's interface.
    tipcds: [(PathBuf, LoneTipcd); 2],
    lab: Lab,
}

impl NodePair {
    /// Creates the hosts `a` and `b` on an unshaped link, and starts the `tipcd`s of `program`.
    pub(crate) fn up(program: &Path) -> Result<NodePair, TestbedError> {
        let lab = Lab::up(&Topology::of(&["a", "b"], Link::default()))?;
        let start = |n: usize| {
            let host = &lab.network().hosts[n];
            let socket = lease::fresh_path("node")
                .map_err(|error| tipcd_obstacle(&host.name, &error.to_string()))?;
            let mut command = host.command(program);
            command.args(["tipcd", "--id", &host.name, "--address", &format!("100{}", n + 1)]);
            command.arg(format!("eth:{}", host.interface));
            LoneTipcd::start(command, &socket)
                .map(|tipcd| (socket, tipcd))
                .map_err(|error| tipcd_obstacle(&host.name, &error.to_string()))
        };
        let tipcds = [start(0)?, start(1)?];
        Ok(NodePair { tipcds, lab })
    }

    /// The two hosts.
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.lab.network().hosts
    }

    /// The paths of the `tipcd`s' sockets, in the order of the hosts.
    pub(crate) fn sockets(&self) -> [PathBuf; 2] {
        self.tipcds.each_ref().map(|(socket, _)| socket.clone())
    }

    /// Waits until the two nodes have a link. `program` asks the first `tipcd`.
    pub(crate) fn wait_for_link(&self, program: &Path) -> Result<(), TestbedError> {
        let failed = |what: String| tipcd_obstacle(&self.hosts()[0].name, &what);
        let mut command = Command::new(program);
        command.args(["tipc", "--socket"]).arg(&self.tipcds[0].0);
        command.args(["wait", "--peers", "1", "--timeout", LINK_LIMIT_S]);
        let out = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(format!("cannot ask for its links: {error}")))?;
        match out.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_owned())),
        }
    }
}
