//! A network of two hosts, a guest and a host for the node in user space, and the programs that run on them.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossway_netlab::{Guest, GuestSpec, HostSpec, Lab, Link, NetError, Topology};
use crossway_tipc_proto::addr::NodeId;

use super::user_side::LINKS_UP;
use super::{KERNEL_SIDE, PYTHON, WATCHDOG};

/// A network of two hosts: a guest, and a host for the node in user space.
pub(crate) struct Site {
    pub(crate) guest: Guest,
    pub(crate) lab: Lab,
}

/// Medium between the two ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Medium {
    UdpV4,
    UdpV4Unicast,
    UdpV6,
    UdpV6Unicast,
    Ethernet,
}

impl Site {
    pub(crate) fn up(name: &str) -> Result<Self, NetError> {
        // Two concurrent runs of this test on one machine must not interfere.
        let name = &format!("{name}{:x}", std::process::id() % 0x1_0000);
        let mut topology = Topology::of(&[], Link::default());
        topology.name = Some(name.to_owned());
        topology.hosts = vec![HostSpec::namespace("user"), HostSpec::tap("kernel")];
        let lab = Lab::up(&topology)?;
        let spec = GuestSpec::usual(name)?;
        let guest = Guest::boot(&spec, Some((lab.network(), "kernel")))?;
        Ok(Self { guest, lab })
    }

    pub(crate) fn in_guest(&self, words: &[&str]) -> Command {
        let prefix = self.guest.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(words);
        command
    }

    /// Kills the kernel and boots another one in its place.
    pub(crate) fn with_another_kernel(self) -> Result<Self, NetError> {
        let Self { guest, lab } = self;
        drop(guest);
        let name = lab.network().name.clone();
        let guest = Guest::boot(&GuestSpec::usual(&name)?, Some((lab.network(), "kernel")))?;
        Ok(Self { guest, lab })
    }

    /// The command that disables the kernel's bearer.
    pub(crate) const fn disabling(medium: Medium) -> &'static [&'static str] {
        match medium {
            Medium::Ethernet => &["tipc", "bearer", "disable", "media", "eth", "device", "eth0"],
            _ => &["tipc", "bearer", "disable", "media", "udp", "name", "U"],
        }
    }

    /// Runs a command in the guest, which must succeed, and returns its output.
    pub(crate) fn guest_does(&self, words: &[&str]) -> String {
        let out =
            self.in_guest(words).stdin(Stdio::null()).output().expect("the guest runs commands");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
        text
    }

    /// Enables the kernel's bearer and returns the specification of the node's bearer.
    pub(crate) fn bearers(&self, medium: Medium) -> String {
        let (user, kernel) = (self.lab.host("user").unwrap(), self.lab.host("kernel").unwrap());
        let (k4, k6) = (kernel.ipv4.to_string(), kernel.ipv6.to_string());
        let (u4, u6, device) = (user.ipv4.to_string(), user.ipv6.to_string(), &user.interface);
        if let Medium::UdpV4Unicast = medium {
            // Packets that IP need not fragment. A kernel whose own bearer has larger packets than its peer's loses multicasts sent as
            // copies.
            self.guest_does(&["tipc", "media", "set", "mtu", "1472", "media", "udp"]);
        }
        let mut words = vec!["tipc", "bearer", "enable", "media"];
        match medium {
            Medium::UdpV4 => words.extend(["udp", "name", "U", "localip", &k4]),
            Medium::UdpV4Unicast => {
                words.extend(["udp", "name", "U", "localip", &k4, "remoteip", &u4])
            }
            Medium::UdpV6 => words.extend(["udp", "name", "U", "localip", &k6]),
            Medium::UdpV6Unicast => {
                words.extend(["udp", "name", "U", "localip", &k6, "remoteip", &u6])
            }
            Medium::Ethernet => words.extend(["eth", "device", "eth0"]),
        }
        self.guest_does(&words);
        match medium {
            Medium::UdpV4 => format!("udp:{u4}"),
            Medium::UdpV4Unicast => format!("udp:{u4},mtu=1472,{k4}"),
            Medium::UdpV6 => format!("udp:{u6}%{device}"),
            Medium::UdpV6Unicast => format!("udp:{u6},{k6}"),
            Medium::Ethernet => format!("eth:{device}"),
        }
    }

    pub(crate) fn user_side(&self, bearer: &str) -> UserSide {
        self.user_side_as(bearer, NodeId::from_text("user-space").expect("legal"))
    }

    pub(crate) fn user_side_as(&self, bearer: &str, id: NodeId) -> UserSide {
        self.user_program("user-side", bearer, id)
    }

    pub(crate) fn user_program(&self, role: &str, bearer: &str, id: NodeId) -> UserSide {
        self.program_on("user", role, bearer, id)
    }

    pub(crate) fn program_on(&self, host: &str, role: &str, bearer: &str, id: NodeId) -> UserSide {
        self.program_with(host, role, (bearer, id), &[])
    }

    /// The node in user space, with these environment variables.
    pub(crate) fn user_side_with(&self, bearer: &str, variables: &[(&str, &str)]) -> UserSide {
        let id = NodeId::from_text("user-space").expect("legal");
        self.program_with("user", "user-side", (bearer, id), variables)
    }

    fn program_with(
        &self,
        host: &str,
        role: &str,
        (bearer, id): (&str, NodeId),
        variables: &[(&str, &str)],
    ) -> UserSide {
        let own = std::env::current_exe().expect("this program has a file");
        let mut command = self.lab.host(host).unwrap().command(own);
        let mut child = command
            .envs(variables.iter().copied())
            .args([role, bearer, &format!("{:x}", u128::from_be_bytes(id.0))])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let links_up = Arc::new(AtomicUsize::new(0));
        let told = links_up.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(Ok(count)) = line.strip_prefix(LINKS_UP).map(str::parse) {
                    told.store(count, Ordering::Relaxed);
                }
            }
        });
        UserSide { child, stdin, links_up }
    }
}

/// The node in user space; it ends when this value is dropped.
pub(crate) struct UserSide {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    links_up: Arc<AtomicUsize>,
}

impl UserSide {
    /// Returns the number of links that the node reports as up.
    pub(crate) fn links_up(&self) -> usize {
        self.links_up.load(Ordering::Relaxed)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for UserSide {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("wait");
        if !std::thread::panicking() {
            assert!(
                status.success() || status.code().is_none(),
                "the node in user space ended with {status}"
            );
        }
    }
}

/// The program of the kernel's side, whose output is read line by line.
pub(crate) struct KernelSide {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    start: Instant,
}

impl KernelSide {
    pub(crate) fn start(site: &Site, words: &[&str]) -> Self {
        Self::run(site, KERNEL_SIDE, words)
    }

    pub(crate) fn run(site: &Site, script: &str, words: &[&str]) -> Self {
        let mut command = site.in_guest(&[PYTHON, script]);
        command.args(words);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out, start: Instant::now() }
    }

    /// Reads until a line contains this text. This comes to an end because the guest's program has its own deadlines.
    pub(crate) fn until(&mut self, wanted: &str) {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let len = self.out.read_line(&mut line).expect("reads");
            assert!(len > 0, "the kernel's side ended before it said {wanted:?}; it said:\n{said}");
            assert!(self.start.elapsed() < WATCHDOG, "the kernel's side hangs; it said:\n{said}");
            eprint!("  {line}");
            let _ = write!(said, "{line}");
            if line.contains(wanted) {
                return;
            }
        }
    }

    pub(crate) fn finish(mut self) {
        self.until("all checks held");
        let status = self.child.wait().expect("waits");
        assert!(status.success(), "the kernel's side ended with {status}");
    }
}
