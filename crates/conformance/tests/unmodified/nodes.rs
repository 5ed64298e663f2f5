//! Nodes on which unmodified programs run: a `tipcd` of this machine, or the kernel of a guest; one alone or two linked
//! ones.

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crossway_netlab::{Guest, GuestSpec, HostSpec, Lab, Link, NetError, Topology};
use crossway_tipc_client::LoneTipcd;

use crate::{WATCHDOG, built};

/// The implementation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Tipcd,
    Kernel,
}

/// A tipcd, and the library that makes programs use it.
pub(crate) struct Site {
    pub(crate) tipcd: LoneTipcd,
    pub(crate) library: PathBuf,
    pub(crate) dir: tempfile::TempDir,
}

/// Builds the preload library and returns its path.
fn library() -> PathBuf {
    built::build(&["crossway-tipc-preload"]).join("libcrossway_tipc_preload.so")
}

/// The command of a tipcd.
pub(crate) fn tipcd_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-guest-part"));
    command.arg("tipcd");
    command
}

impl Site {
    /// Starts a lone node.
    pub(crate) fn new() -> Self {
        Self::start(tipcd_command())
    }

    fn start(command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tipcd = LoneTipcd::start(command, &dir.path().join("tipcd.sock")).unwrap();
        Self { tipcd, library: library(), dir }
    }

    /// A command that runs a program on the node, with a watchdog.
    pub(crate) fn command(&self, words: &[&Path]) -> Command {
        self.command_within(WATCHDOG, words)
    }

    /// As [`Site::command`], with another time limit of the watchdog, in seconds.
    pub(crate) fn command_within(&self, seconds: &str, words: &[&Path]) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg(seconds)
            .args(words)
            .env("LD_PRELOAD", &self.library)
            .env("TIPCD_SOCKET", self.tipcd.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&Path]) -> Output {
        self.command(words).output().unwrap()
    }
}

/// One of two linked nodes.
pub(crate) enum Node {
    Tipcd(Site),
    Kernel(Box<Guest>),
}

impl Node {
    /// A command that runs a program on the node, with a watchdog.
    pub(crate) fn command(&self, words: &[&Path]) -> Command {
        self.command_within(WATCHDOG, words)
    }

    /// As [`Node::command`], with another time limit of the watchdog, in seconds.
    pub(crate) fn command_within(&self, seconds: &str, words: &[&Path]) -> Command {
        match self {
            Self::Tipcd(site) => site.command_within(seconds, words),
            Self::Kernel(guest) => {
                let prefix = guest.prefix();
                let mut command = Command::new(&prefix[0]);
                command.args(&prefix[1..]).args(["timeout", seconds]).args(words);
                command.stdin(Stdio::null());
                command
            }
        }
    }
}

/// Two nodes with a link between them, over UDP. Dropping this value ends the nodes first and then their network.
pub(crate) struct Two {
    pub(crate) nodes: [Node; 2],
    pub(crate) lab: Option<Lab>,
}

impl Two {
    /// Creates two linked nodes. Returns `None` after printing the reason if a prerequisite is missing. `name`
    /// distinguishes tests that run at the same time.
    pub(crate) fn new(name: &str, what: [What; 2]) -> Option<Self> {
        Self::with(name, what, &[])
    }

    /// As [`Two::new`], with further options of the second node, if it is a tipcd.
    pub(crate) fn with(name: &str, what: [What; 2], options: &[&str]) -> Option<Self> {
        if what == [What::Tipcd; 2] {
            return Some(Self::tipcds(options));
        }
        Self::over(name, what, Link::default(), options)
    }

    /// As [`Two::with`], in a network whose links have these properties.
    pub(crate) fn over(name: &str, what: [What; 2], link: Link, options: &[&str]) -> Option<Self> {
        match Self::in_lab(name, what, link, options) {
            Ok(two) => Some(two),
            Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
                eprintln!("SKIP {what:?}: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    fn tipcds(options: &[&str]) -> Self {
        // An address and a network of their own: clusters of tests that run at the same time must not meet. The ports
        // are fixed, because any program may take one that the system chose, before the tipcd is bound to it; and they
        // are not TIPC's, at which a kernel may receive at every address.
        let random = RandomState::new().hash_one(());
        let [_, x, y, z] = (random as u32).to_be_bytes();
        let own = Ipv4Addr::new(127, x.max(1), y, z.clamp(1, 254));
        let netid = (random >> 32) % 9_000 + 1;
        let site = |id: &str, at: u16, other: u16, options: &[&str]| {
            let mut command = tipcd_command();
            command
                .args(["--netid", &netid.to_string(), "--id", id, "--address", id])
                .args(options);
            command.arg(format!("udp:{own}:{at},{own}:{other}"));
            Node::Tipcd(Site::start(command))
        };
        let [a, b] = [16_118, 16_119];
        Self { nodes: [site("a1", a, b, &[]), site("b2", b, a, options)], lab: None }
    }

    fn in_lab(name: &str, what: [What; 2], link: Link, options: &[&str]) -> Result<Self, NetError> {
        // Two runs of this test on one machine must not collide.
        let name = &format!("{name}{:x}", std::process::id() % 0x1_0000);
        let mut topology = Topology::of(&[], link);
        topology.name = Some(name.clone());
        topology.hosts = [("one", what[0]), ("two", what[1])]
            .map(|(host, what)| match what {
                What::Tipcd => HostSpec::namespace(host),
                What::Kernel => HostSpec::tap(host),
            })
            .to_vec();
        let lab = Lab::up(&topology)?;
        let node = |host: &str, what, options: &[&str]| -> Result<Node, NetError> {
            let at = lab.host(host)?;
            let ip = at.ipv4.to_string();
            if what == What::Tipcd {
                let mut command = at.command(env!("CARGO_BIN_EXE_conformance-guest-part"));
                command.args(["tipcd", &format!("udp:{ip}")]).args(options);
                return Ok(Node::Tipcd(Site::start(command)));
            }
            let mut spec = GuestSpec::usual(&format!("{name}{}", &host[..1]))?;
            spec.program = PathBuf::from(env!("CARGO_BIN_EXE_conformance-guest-part"));
            let node = Node::Kernel(Box::new(Guest::boot(&spec, Some((lab.network(), host)))?));
            let words = ["tipc", "bearer", "enable", "media", "udp", "name", "U", "localip", &ip];
            let done = node.command(&words.map(Path::new)).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Ok(node)
        };
        let nodes = [node("one", what[0], &[])?, node("two", what[1], options)?];
        Ok(Self { nodes, lab: Some(lab) })
    }
}
