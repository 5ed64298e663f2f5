//! Two containers on one kernel, set up as a container engine would, but with util-linux and, for the network, with
//! [`Lab`].
//!
//! Each role runs in new namespaces, which disappear when the role ends. As with a container engine, the ends find each
//! other by names in whatever the containers share, and pass descriptors over a socket that both were given (the
//! control connection).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_mech::Bind;
use crossway_netlab::{Lab, Topology};
use crossway_sys::{Obstacle, OsError, lease};

use super::error::TestbedError;
use crossway_records::testbed::{NAMES, Share, Testbed};

/// Prefix of environment variables that name directories hidden from a container; the suffix is a number.
const HIDDEN: &str = "CROSSWAY_HIDDEN_";

/// How roles are started in their containers.
#[derive(Debug)]
pub(crate) struct Containers {
    shares: Vec<Share>,
    /// For each container, the command prefix that enters the container's network; empty if the network is shared.
    prefixes: Vec<Vec<String>>,
    /// Address of the listening end; `None` for loopback.
    address: Option<IpAddr>,
    _lab: Option<Lab>,
}

impl Containers {
    /// Creates the network unless the containers share it, and checks that namespaces can be created.
    pub(super) fn make(testbed: &Testbed) -> Result<Containers, TestbedError> {
        let mut containers = Containers::without_network(testbed);
        if !containers.share(Share::Network) {
            let lab = Lab::up(&Topology::of(&NAMES, testbed.link()))?;
            let hosts = &lab.network().hosts;
            containers.prefixes = hosts.iter().map(|host| host.prefix()).collect();
            containers.address = hosts.get(1).map(|host| host.ipv4.into());
            containers._lab = Some(lab);
        }
        containers.check()?;
        Ok(containers)
    }

    /// The containers before their network is created.
    fn without_network(testbed: &Testbed) -> Containers {
        Containers {
            shares: testbed.shares.clone(),
            prefixes: vec![Vec::new(); NAMES.len()],
            address: None,
            _lab: None,
        }
    }

    /// Checks whether such containers can be created here, without creating their network.
    pub(super) fn possible(testbed: &Testbed) -> Result<(), TestbedError> {
        let containers = Containers::without_network(testbed);
        if !containers.share(Share::Network) {
            Lab::check()?;
        }
        containers.check()
    }

    /// Checks that the namespaces can be created.
    fn check(&self) -> Result<(), TestbedError> {
        let tried = self.command(0, &["/tmp".into()], Path::new("/bin/true")).output();
        let refused = |why: String| -> TestbedError {
            let remedy =
                "run as root, and install the tools: sudo apt-get install util-linux iproute2";
            Obstacle::new(format!("cannot create containers: {why}"), remedy).into()
        };
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            Err(error) => Err(refused(format!("unshare: {error}"))),
        }
    }

    fn share(&self, what: Share) -> bool {
        self.shares.contains(&what)
    }

    /// Where the listening end can be found.
    pub(crate) fn bind(&self) -> Bind {
        // An abstract name is one of a network namespace.
        let unix_path = self.share(Share::Volume) && !self.share(Share::Network);
        Bind { address: self.address, unix_path }
    }

    /// Creates a directory for the role with this number, below the run's directory.
    pub(crate) fn room(&self, run: &lease::Run, role: usize) -> Result<PathBuf, OsError> {
        run.room(&format!("c{role}"))
    }

    /// A command that runs `program` in the container of the connecting (0) or the listening (1) end; arguments can be
    /// appended. Without a shared volume, the directories `others` are hidden from the container. The container's own
    /// directory is visible from outside, so that its leases can be removed if its role is killed.
    pub(crate) fn command(&self, at: usize, others: &[PathBuf], program: &Path) -> Command {
        let mut words = self.prefixes[at].clone();
        words.extend(["unshare", "--mount"].map(str::to_owned));
        if !self.share(Share::Ipc) {
            words.push("--ipc".to_owned());
        }
        if !self.share(Share::Pid) {
            words.extend(["--pid", "--fork", "--kill-child", "--mount-proc"].map(str::to_owned));
        }
        // The program is opened first, since it may be in a directory that will be hidden.
        let mut script = "exec 9<\"$0\"".to_owned();
        if !self.share(Share::Shm) {
            script.push_str(" && mount -t tmpfs -o mode=1777 crossway /dev/shm");
        }
        let hidden = if self.share(Share::Volume) { &[] } else { others };
        for nth in 0..hidden.len() {
            let mount = format!(" && mount -t tmpfs -o mode=0700 crossway \"${HIDDEN}{nth}\"");
            script.push_str(&mount);
        }
        script.push_str(" && exec /proc/self/fd/9 \"$@\"");
        words.extend(["sh".to_owned(), "-c".to_owned(), script]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        for (nth, path) in hidden.iter().enumerate() {
            command.env(format!("{HIDDEN}{nth}"), path);
        }
        command
    }
}
