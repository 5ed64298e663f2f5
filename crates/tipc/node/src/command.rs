//! The `tipcd` command line, shared by the program of that name and `crossway tipcd`.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use crossway_sys::error::RAISE_PROCESSES;
use crossway_sys::heap;
use crossway_tipc_client::admin::{KeyFor, Order, read_key_file};
use crossway_tipc_client::default_path;
use crossway_tipc_proto::addr::{NetworkId, NodeId};
use crossway_tipc_proto::node::Config;

use crate::daemon::Daemon;
use crate::event_text::{describe, is_of_names, summary};
use crate::journal::Journal;
use crate::options::TipcdOptions;
use crate::readiness;
use crate::runner::Runner;
use crate::service::Service;
use crate::spec::BearerSpec;

/// Number of bytes of freed memory that a tipcd keeps for the next large messages.
const HEAP_KEPT_BYTES: u32 = 8 << 20;

/// Number of bytes of memory requested from the system at a time.
const HEAP_STEP_BYTES: u32 = 1 << 20;

/// Lowest limit on open descriptors with which a tipcd starts. It uses a dozen itself, reserves as many for operators,
/// and needs some for each bearer.
const DESCRIPTORS_LEAST: u64 = 40;

/// Maximum size in bytes of the answer to an operator, which may be a page of the name table.
const OUTCOME_BYTES: usize = 2 << 20;

/// Runs a node until SIGINT, SIGTERM or SIGHUP arrives or, if requested, standard input ends. A SIGHUP that was ignored
/// at the start (nohup) remains ignored.
///
/// # Errors
/// The error names the object that cannot be opened, and the remedy.
pub fn run_tipcd(options: &TipcdOptions) -> anyhow::Result<()> {
    heap::keep_freed(HEAP_KEPT_BYTES, HEAP_STEP_BYTES);
    // Before anything exists that a signal must not leave behind.
    let signalled = catch_signals().context("cannot catch signals")?;
    let mut daemon = open(options)?;
    daemon.watch(&signalled).map_err(|e| anyhow!("{e}"))?;
    let mut stdin = File::from(
        std::io::stdin().as_fd().try_clone_to_owned().context("cannot duplicate standard input")?,
    );
    if options.until_stdin_ends {
        // A file or /dev/null has no end to wait for.
        daemon.watch(&stdin).map_err(|_| {
            anyhow!("cannot wait for the end of standard input, which is a file or a null device; connect it to a \
                     pipe, or leave out --until-stdin-ends")
        })?;
    }
    let mut journal = if options.quiet {
        Journal::silent()
    } else {
        let out = std::io::stdout().as_fd().try_clone_to_owned();
        let out = out.context("cannot duplicate standard output")?;
        Journal::to(out.into(), options.log_rate).with_context(|| {
            format!(
                "cannot start the thread that writes the log: {RAISE_PROCESSES}, or use --quiet"
            )
        })?
    };
    introduce(&mut daemon, &mut journal);
    readiness::tell("READY=1");
    loop {
        let other = daemon.turn(Duration::from_secs(60)).map_err(|e| anyhow!("{e}"))?;
        while let Some(event) = daemon.poll_event() {
            if options.names || !is_of_names(&event) {
                journal.say(|| describe(&mut daemon, &event));
            }
        }
        while let Some(notice) = daemon.poll_notice() {
            journal.say(|| notice.to_string());
        }
        journal.tell_of_left_out();
        // Data on standard input is discarded; only its end matters.
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

/// Returns a descriptor that becomes readable when the first signal that ends a tipcd arrives. Also prevents SIGXFSZ
/// from killing the process.
fn catch_signals() -> anyhow::Result<UnixStream> {
    let (signalled, signal) = UnixStream::pair()?;
    signalled.set_nonblocking(true)?;
    let mut numbers = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    if !ignores_hangup() {
        numbers.push(signal_hook::consts::SIGHUP);
    }
    // A log file may reach its size limit: then lines are lost, and nothing else happens.
    signal_hook::flag::register(signal_hook::consts::signal::SIGXFSZ, Arc::default())?;
    for number in numbers {
        signal_hook::low_level::pipe::register(number, signal.try_clone()?)?;
    }
    Ok(signalled)
}

/// Whether SIGHUP is ignored, so that this process must outlive its terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal_hook::consts::SIGHUP - 1) != 0)
}

fn open(options: &TipcdOptions) -> anyhow::Result<Daemon> {
    // Each socket of a program is a descriptor here.
    let descriptors = crossway_sys::proc::raise_descriptor_limit();
    if descriptors < DESCRIPTORS_LEAST {
        bail!(
            "only {descriptors} open files are allowed (RLIMIT_NOFILE): a tipcd needs {DESCRIPTORS_LEAST}, and one more for each socket of a program; \
             raise the limit (ulimit -n, LimitNOFILE= of a systemd unit)"
        );
    }
    // Memory shared with programs counts as a file for the system, although it is not on a disk.
    let file_bytes = options.limits().largest_file_bytes().max(OUTCOME_BYTES) as u64;
    let allowed = crossway_sys::proc::raise_file_size_limit();
    if allowed < file_bytes {
        bail!(
            "files, including the memory shared with programs, are limited to {allowed} bytes (RLIMIT_FSIZE), but a \
             tipcd with these options needs files of {file_bytes} bytes; raise the limit (ulimit -f, LimitFSIZE= of a \
             systemd unit), or reduce --sockets-per-client or --lane-bytes"
        );
    }
    let id = match &options.id {
        Some(text) => Some(NodeId::from_text(text).with_context(|| {
            format!("identity {text:?}: use 1 to 16 of the characters A-Z a-z 0-9 . : _ @ -")
        })?),
        None => None,
    };
    // Each time a node starts, it must use a different session and signature, so these depend on the start time and the process ID.
    let birth = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = birth.as_nanos() as u64 ^ u64::from(std::process::id()) << 40;
    let mut runner = Runner::new(Config {
        id,
        addr: options.address,
        network: NetworkId(options.netid),
        seed,
        limits: options.node_limits(),
        ..Config::default()
    })
    .map_err(|e| anyhow!("{e}"))?;
    runner.set_socket_bytes(options.bearer_buffer);
    let keys = match &options.key_file {
        Some(path) => read_key_file(path).map_err(|e| anyhow!("{e}"))?,
        None => Vec::new(),
    };
    if options.allow_plain || !keys.is_empty() {
        runner.leave_room();
    }
    runner.keyring().allow_plain(options.allow_plain);
    // Before there are bearers, so that nothing is sent in plain. Keys of nodes need this node's identity, though.
    let needs_id = |order: &Order| matches!(order, Order::SetKey { owner: KeyFor::Node(_), .. });
    let (later, first): (Vec<_>, Vec<_>) = keys.into_iter().partition(needs_id);
    set_keys(&mut runner, &first)?;
    // These errors already contain their causes.
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
    set_keys(&mut runner, &later)?;
    let path = options.socket.clone().unwrap_or_else(default_path);
    let service =
        Service::open(&path, options.mode, options.limits()).map_err(|e| anyhow!("{e}"))?;
    Daemon::new(runner, service).map_err(|e| anyhow!("{e}"))
}

fn set_keys(runner: &mut Runner, orders: &[Order]) -> anyhow::Result<()> {
    for order in orders {
        crate::admin::apply_to_keys(runner, order).map_err(|e| anyhow!("cannot set a key: {e}"))?;
    }
    Ok(())
}

/// Logs the state at the start.
fn introduce(daemon: &mut Daemon, journal: &mut Journal) {
    for line in daemon.introduction() {
        journal.say(|| line);
    }
}
