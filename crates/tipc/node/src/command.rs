//! `tipcd` as a command line: what the program of that name and `crossway tipcd` are.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use crossway_sys::heap;
use crossway_tipc_client::default_path;
use crossway_tipc_proto::addr::{NetworkId, NodeId};
use crossway_tipc_proto::node::Config;

use crate::daemon::Daemon;
use crate::happening::{describe, is_of_names, summary};
use crate::journal::Journal;
use crate::options::TipcdOptions;
use crate::readiness;
use crate::runner::Runner;
use crate::service::Service;
use crate::spec::BearerSpec;

/// Freed memory that a tipcd keeps for the next large messages.
const HEAP_KEPT_OCTETS: u32 = 8 << 20;

/// Memory that it takes from the system at a time.
const HEAP_STEP_OCTETS: u32 = 1 << 20;

/// Runs a node until SIGINT, SIGTERM or SIGHUP (unless that is ignored, as by nohup), or until standard input ends if that was asked for.
///
/// # Errors
/// What cannot be opened, by name and with what to do.
pub fn run_tipcd(options: &TipcdOptions) -> anyhow::Result<()> {
    heap::keep_freed(HEAP_KEPT_OCTETS, HEAP_STEP_OCTETS);
    // Before anything is there that a signal must not leave behind.
    let signalled = catch_signals().context("cannot catch signals")?;
    let mut daemon = open(options)?;
    daemon.watch(&signalled)?;
    let mut stdin = File::from(
        std::io::stdin().as_fd().try_clone_to_owned().context("cannot take standard input")?,
    );
    if options.until_stdin_ends {
        // A file or /dev/null has no end to wait for.
        daemon.watch(&stdin).map_err(|_| {
            anyhow!("cannot wait for the end of standard input, which is a file or a null device; give it a pipe, or leave out --until-stdin-ends")
        })?;
    }
    let mut journal = if options.quiet {
        Journal::silent()
    } else {
        let out = std::io::stdout().as_fd().try_clone_to_owned();
        let journal = out.and_then(|out| Journal::to(out.into(), options.log_rate));
        journal.context("cannot take standard output")?
    };
    introduce(&mut daemon, &mut journal);
    readiness::tell("READY=1");
    loop {
        let other = daemon.turn(Duration::from_secs(60))?;
        while let Some(event) = daemon.poll_event() {
            if options.names || !is_of_names(&event) {
                journal.say(|| describe(&mut daemon, &event));
            }
        }
        while let Some(notice) = daemon.poll_notice() {
            journal.say(|| notice.to_string());
        }
        journal.tell_of_left_out();
        // Whatever comes in by standard input is thrown away; only its end matters.
        if other
            && ((&signalled).read(&mut [0]).is_ok()
                || options.until_stdin_ends && matches!(stdin.read(&mut [0; 512]), Ok(0) | Err(_)))
        {
            break;
        }
    }
    readiness::tell("STOPPING=1");
    let words = if options.quiet { String::new() } else { summary(&mut daemon) };
    daemon.stop();
    journal.end(words);
    Ok(())
}

/// A descriptor that becomes readable with the first signal that ends a tipcd.
fn catch_signals() -> anyhow::Result<UnixStream> {
    let (signalled, signal) = UnixStream::pair()?;
    signalled.set_nonblocking(true)?;
    let mut numbers = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    if !ignores_hangup() {
        numbers.push(signal_hook::consts::SIGHUP);
    }
    for number in numbers {
        signal_hook::low_level::pipe::register(number, signal.try_clone()?)?;
    }
    Ok(signalled)
}

/// Whether SIGHUP is ignored: this process is to outlive its terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal_hook::consts::SIGHUP - 1) != 0)
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
        limits: options.node_limits(),
        ..Config::default()
    });
    runner.set_socket_octets(options.bearer_buffer);
    // What these errors say has their causes in it.
    for (n, spec) in options.bearers.iter().enumerate() {
        let name = match spec {
            BearerSpec::Ethernet { device } => device.clone(),
            BearerSpec::Udp { .. } => format!("udp{n}"),
        };
        let bearer = runner.enable(spec, &name).map_err(|e| anyhow!("{e}"))?;
        runner
            .node()
            .set_bearer(bearer, crate::admin::settings(options.settings()))
            .map_err(|e| anyhow!("{e}"))?;
    }
    // Each socket of a program is a descriptor here.
    crossway_sys::proc::raise_descriptor_limit();
    let path = options.socket.clone().unwrap_or_else(default_path);
    let service =
        Service::open(&path, options.mode, options.limits()).map_err(|e| anyhow!("{e}"))?;
    Ok(Daemon::new(runner, service)?)
}

/// Says what is there from the start.
fn introduce(daemon: &mut Daemon, journal: &mut Journal) {
    for line in daemon.introduction() {
        journal.say(|| line);
    }
}
