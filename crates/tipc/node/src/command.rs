//! `tipcd` as a command line: what the program of that name and `crossway tipcd` are.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use crossway_sys::heap;
use crossway_tipc_client::default_path;
use crossway_tipc_proto::addr::{NetworkId, NodeAddr, NodeId};
use crossway_tipc_proto::node::{Config, Event};

use crate::daemon::Daemon;
use crate::runner::Runner;
use crate::service::{Service, ServiceLimits};
use crate::spec::BearerSpec;

/// Freed memory that a tipcd keeps for the next large messages.
const HEAP_KEPT_OCTETS: u32 = 8 << 20;

/// Memory that it takes from the system at a time.
const HEAP_STEP_OCTETS: u32 = 1 << 20;

/// The arguments of a tipcd.
#[derive(Debug, clap::Args)]
pub struct TipcdOptions {
    /// Media to use: `eth:DEVICE` (needs root) or `udp:LOCAL-ADDRESS[%DEVICE][,mtu=OCTETS][,REMOTE...]`; up to three. `mtu` is the largest packet
    /// without IP and UDP headers (14000 over IPv4, 1280 over IPv6); where packets fit the device, 1472 and 1452 at its usual 1500, the
    /// system is given runs of them at once [default: none, a lone node]
    #[arg(value_name = "BEARER")]
    bearers: Vec<BearerSpec>,
    /// Identity: up to 16 of A-Z a-z 0-9 . : _ @ - [default: from the first bearer's address]
    #[arg(long)]
    id: Option<String>,
    /// Fixed 32-bit address in hexadecimal, used without asking the neighbours first [default: from the identity]
    #[arg(long, value_parser = parse_addr)]
    address: Option<NodeAddr>,
    /// Number of the cluster; nodes of different numbers ignore each other
    #[arg(long, default_value_t = 4711)]
    netid: u32,
    /// Where programs come in [default: $TIPCD_SOCKET, /run/tipcd.sock, or tipcd.sock in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Permissions of that socket, in octal: who may write to it may use the node
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    mode: u32,
    /// Programs that may use the node at a time
    #[arg(long, value_name = "N", default_value_t = ServiceLimits::default().clients)]
    clients: usize,
    /// Sockets that one program may have
    #[arg(long, value_name = "N", default_value_t = ServiceLimits::default().sockets_per_client)]
    sockets_per_client: usize,
    /// Octets that may wait for one socket
    #[arg(long, value_name = "OCTETS", default_value_t = ServiceLimits::default().receive_octets)]
    queue: usize,
    /// Ends when its standard input does, and so with whoever started it
    #[arg(long)]
    until_stdin_ends: bool,
    /// Says nothing of what happens
    #[arg(short, long)]
    quiet: bool,
}

impl TipcdOptions {
    /// A lone, silent node that serves at a path and ends with its standard input.
    pub fn lone(path: PathBuf) -> Self {
        let limits = ServiceLimits::default();
        Self {
            bearers: Vec::new(),
            id: None,
            address: None,
            netid: NetworkId::default().0,
            socket: Some(path),
            mode: 0o600,
            clients: limits.clients,
            sockets_per_client: limits.sockets_per_client,
            queue: limits.receive_octets,
            until_stdin_ends: true,
            quiet: true,
        }
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected permissions in octal, 0 to 0777".into()),
    }
}

fn parse_addr(text: &str) -> Result<NodeAddr, String> {
    match u32::from_str_radix(text, 16) {
        Ok(0) | Err(_) => Err("expected 1 to 8 hexadecimal digits, not all 0".into()),
        Ok(addr) => Ok(NodeAddr(addr)),
    }
}

/// What happened, for people.
fn describe(event: &Event) -> String {
    match event {
        Event::AddressSettled(addr) => format!("own address {addr}"),
        Event::DuplicateAddress { id, media } => {
            format!(
                "node {id} at {media:?} uses this node's address; give one of them another identity"
            )
        }
        Event::TooOld { peer, missing } => format!(
            "node {peer} lacks capabilities {:#05x}, as kernels before Linux 4.17 do, and is ignored; give it a later kernel",
            missing.bits()
        ),
        Event::LinkUp { peer, bearer } => format!("link to {peer} up on bearer {}", bearer.0),
        Event::LinkDown { peer, bearer, reason } => {
            format!("link to {peer} down on bearer {}: {reason:?}", bearer.0)
        }
        Event::PeerUp { peer } => format!("node {peer} up"),
        Event::PeerDown { peer } => format!("node {peer} down"),
        Event::Published(b) => format!(
            "published {{{}, {}, {}}} by {}:{}",
            b.range.service, b.range.lower, b.range.upper, b.socket.node, b.socket.port.0
        ),
        Event::GroupShrank { group } => format!("a member of group {group} is gone"),
        Event::SocketReady(port) => format!("socket {} has news", port.0),
        Event::Connected { port, peer } => {
            format!("socket {} is connected to {}:{}", port.0, peer.node, peer.port.0)
        }
        Event::ConnectFailed { port, error } => {
            format!("socket {}: connection failed: {error}", port.0)
        }
        Event::Withdrawn(b) => format!(
            "withdrawn {{{}, {}, {}}} by {}:{}",
            b.range.service, b.range.lower, b.range.upper, b.socket.node, b.socket.port.0
        ),
    }
}

/// Runs a node until SIGINT or SIGTERM, or until standard input ends if that was asked for.
///
/// # Errors
/// What cannot be opened, by name and with what to do.
pub fn run_tipcd(options: &TipcdOptions) -> anyhow::Result<()> {
    heap::keep_freed(HEAP_KEPT_OCTETS, HEAP_STEP_OCTETS);
    let mut daemon = open(options)?;
    let (signalled, signal) = UnixStream::pair().context("cannot make the pipe for signals")?;
    for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let end = signal.try_clone().context("cannot make the pipe for signals")?;
        signal_hook::low_level::pipe::register(number, end).context("cannot catch signals")?;
    }
    daemon.watch(&signalled)?;
    let mut stdin = File::from(
        std::io::stdin().as_fd().try_clone_to_owned().context("cannot take standard input")?,
    );
    if options.until_stdin_ends {
        daemon.watch(&stdin).context("cannot watch standard input: give it a pipe")?;
    }
    signalled.set_nonblocking(true).context("cannot make the pipe for signals")?;
    let mut out = std::io::stdout().lock();
    loop {
        let other = daemon.turn(Duration::from_secs(60))?;
        let mut said = false;
        while let Some(event) = daemon.poll_event() {
            if !options.quiet {
                writeln!(out, "{}", describe(&event)).context("cannot write to standard output")?;
                said = true;
            }
        }
        while let Some(notice) = daemon.poll_notice() {
            if !options.quiet {
                writeln!(out, "{notice}").context("cannot write to standard output")?;
                said = true;
            }
        }
        if said {
            out.flush().context("cannot write to standard output")?;
        }
        // Whatever comes in by standard input is thrown away; only its end matters.
        if other
            && ((&signalled).read(&mut [0]).is_ok()
                || options.until_stdin_ends && matches!(stdin.read(&mut [0; 512]), Ok(0) | Err(_)))
        {
            break;
        }
    }
    if !options.quiet {
        summarise(&mut daemon, &mut out).context("cannot write to standard output")?;
    }
    daemon.stop();
    Ok(())
}

fn open(options: &TipcdOptions) -> anyhow::Result<Daemon> {
    let id = match &options.id {
        Some(text) => Some(NodeId::from_text(text).with_context(|| {
            format!("identity {text:?}: use 1 to 16 of the characters A-Z a-z 0-9 . : _ @ -")
        })?),
        None => None,
    };
    // Two lives of one node must differ in session and signature; the time of birth and the process tell them apart.
    let birth = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = birth.as_nanos() as u64 ^ u64::from(std::process::id()) << 40;
    let mut runner = Runner::new(Config {
        id,
        addr: options.address,
        network: NetworkId(options.netid),
        seed,
        ..Config::default()
    });
    for (n, spec) in options.bearers.iter().enumerate() {
        let name = match spec {
            BearerSpec::Ethernet { device } => device.clone(),
            BearerSpec::Udp { .. } => format!("udp{n}"),
        };
        runner.enable(spec, &name)?;
    }
    // Each socket of a program is a descriptor here.
    crossway_sys::proc::raise_descriptor_limit();
    let limits = ServiceLimits {
        clients: options.clients,
        sockets_per_client: options.sockets_per_client,
        receive_octets: options.queue,
        ..ServiceLimits::default()
    };
    let path = options.socket.clone().unwrap_or_else(default_path);
    let service = Service::open(&path, options.mode, limits)?;
    if !options.quiet {
        println!("serving programs at {}", path.display());
    }
    Ok(Daemon::new(runner, service)?)
}

fn summarise(daemon: &mut Daemon, out: &mut impl Write) -> std::io::Result<()> {
    for peer in daemon.node().peers() {
        for link in &peer.links {
            let s = &link.stats;
            writeln!(
                out,
                "peer {} {} bearer {}: {:?}, mtu {}, sent {} packets ({} again), received {} ({} early, {} twice)",
                peer.addr,
                peer.id,
                link.bearer.0,
                link.state,
                link.mtu,
                s.packets_sent,
                s.packets_resent,
                s.packets_received,
                s.packets_early,
                s.packets_duplicate
            )?;
        }
    }
    for (reason, count) in daemon.node().drops().iter() {
        writeln!(out, "dropped {count}: {}", reason.name())?;
    }
    Ok(())
}
