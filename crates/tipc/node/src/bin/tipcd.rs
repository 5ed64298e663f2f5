//! tipcd: a TIPC node as an ordinary process. It finds its neighbours, holds links to them, learns their bindings and says what
//! happens, one line an event.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Parser;
use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{NetworkId, NodeAddr, NodeId};
use crossway_tipc_proto::node::{Config, Event};

/// A TIPC node in user space, a peer to Linux kernels and to its like.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Media to use: `eth:DEVICE` (needs root) or `udp:LOCAL-ADDRESS[%DEVICE][,REMOTE...]`; up to three
    #[arg(required = true, value_name = "BEARER")]
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
}

fn parse_addr(text: &str) -> Result<NodeAddr, String> {
    match u32::from_str_radix(text, 16) {
        Ok(0) | Err(_) => Err("expected 1 to 8 hexadecimal digits, not all 0".into()),
        Ok(addr) => Ok(NodeAddr(addr)),
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::AddressSettled(addr) => format!("own address {addr}"),
        Event::DuplicateAddress { id, media } => {
            format!(
                "node {id} at {media:?} uses this node's address; give one of them another identity"
            )
        }
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
        Event::SocketReady(port) => format!("socket {} has news", port.0),
        Event::ConnectFailed { port, error } => {
            format!("socket {}: connection failed: {error}", port.0)
        }
        Event::Withdrawn(b) => format!(
            "withdrawn {{{}, {}, {}}} by {}:{}",
            b.range.service, b.range.lower, b.range.upper, b.socket.node, b.socket.port.0
        ),
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
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
    let (signalled, signal) = UnixStream::pair().context("cannot make the pipe for signals")?;
    for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let end = signal.try_clone().context("cannot make the pipe for signals")?;
        signal_hook::low_level::pipe::register(number, end).context("cannot catch signals")?;
    }
    let mut out = std::io::stdout().lock();
    loop {
        let stop = runner.turn(&[signalled.as_fd()], Duration::from_secs(60))?;
        while let Some(event) = runner.poll_event() {
            writeln!(out, "{}", describe(&event)).context("cannot write to standard output")?;
        }
        out.flush().context("cannot write to standard output")?;
        if stop {
            break;
        }
    }
    for peer in runner.node().peers() {
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
    for (reason, count) in runner.node().drops().iter() {
        writeln!(out, "dropped {count}: {}", reason.name())?;
    }
    runner.stop();
    Ok(())
}
