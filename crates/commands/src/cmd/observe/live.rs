//! `crossway observe --record` of running processes: by eBPF, or by strace.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossway_observe::ebpf::{self, ProbeError, Probes};
use crossway_observe::import::{Assembly, BLIND_TO, read_strace};
use crossway_observe::live::{Tracer, measured_cost_ns};
use crossway_observe::recording::{Method, Origin, Recorder};
use crossway_observe::snapshot::Snapshot;
use crossway_observe::target;
use crossway_report::units::Quantity;
use crossway_sys::awake::Awake;
use crossway_sys::clock::monotonic_ns;
use crossway_sys::processes::ProcessFiles;
use crossway_sys::{proc, start};

use super::record::{head, tell};
use crate::ui::{Interrupts, Ui};

/// How to record running processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// Programs in the kernel: cheap; needs root
    Ebpf,
    /// The program strace, which stops the processes at each call
    Strace,
}

/// What is recorded, and where to.
pub(super) struct Order<'a> {
    pub(super) pids: &'a BTreeSet<u32>,
    /// A command that waits to be resumed.
    pub(super) child: Option<&'a Child>,
    pub(super) into: &'a Path,
    pub(super) time: Option<Duration>,
    pub(super) anonymous: bool,
    /// Whether CPUs may be kept from sleeping at its end.
    pub(super) awake_part: bool,
    pub(super) by: Option<By>,
}

/// Records processes for a time, or until an interrupt, or until they end.
pub(super) fn live(
    ui: &Ui,
    order: &Order<'_>,
    interrupts: &Interrupts,
) -> anyhow::Result<ExitCode> {
    match order.by {
        Some(By::Strace) => by_strace(ui, order, interrupts),
        Some(By::Ebpf) => {
            let probes = Probes::attach().context("cannot record by eBPF")?;
            by_ebpf(ui, order, probes, interrupts)
        }
        None => match Probes::attach() {
            Ok(probes) => by_ebpf(ui, order, probes, interrupts),
            Err(why) => {
                ui.note(&instead(&why));
                by_strace(ui, order, interrupts)
            }
        },
    }
}

/// Why the next best way is taken.
fn instead(why: &ProbeError) -> String {
    format!(
        "recording with strace, because eBPF, which slows programs down less, is not possible: {why}"
    )
}

fn by_ebpf(
    ui: &Ui,
    order: &Order<'_>,
    mut probes: Probes,
    interrupts: &Interrupts,
) -> anyhow::Result<ExitCode> {
    let cost = probes.cost();
    let method = Method {
        name: "ebpf".to_owned(),
        cost_ns_per_call: Some(cost.observed_ns),
        cost_note: cost.note(),
        blind_to: ebpf::BLIND_TO.to_owned(),
    };
    let recorder = Recorder::create(order.into, head(method, true), order.anonymous)?;
    let mut pids = order.pids.clone();
    // What they start from now on is followed by the kernel; what they started just before is in the next snapshot.
    while probes.follow(pids.iter().copied())? > 0 {
        let snapshot = Snapshot::take().context("cannot read /proc; mount it")?;
        pids = target::with_descendants(&snapshot, pids);
    }
    let mut assembly = Assembly::new(recorder);
    name_processes(&mut assembly, &pids);
    started(ui, order, "eBPF", cost.observed_ns);
    let awake = order.time.filter(|_| order.awake_part).map_or(Duration::ZERO, awake_part);
    let until = |time: Duration| {
        let deadline = Instant::now().checked_add(time);
        move || interrupts.any() || deadline.is_some_and(|at| Instant::now() >= at)
    };
    let asleep = order.time.map_or(Duration::MAX, |time| time - awake);
    let goes_on = probes.record(&mut assembly, until(asleep))?;
    ask_cpu(&mut assembly);
    let cpus = probes.busy_cpus();
    if goes_on && !interrupts.any() && !awake.is_zero() && !cpus.is_empty() {
        assembly.awake_from(Some(monotonic_ns() as i64));
        let kept = Awake::keep(&cpus, awake);
        probes.record(&mut assembly, until(awake))?;
        if let Some(why) = kept.map_or_else(Some, |kept| kept.trouble()) {
            assembly.awake_from(None);
            ui.note(&format!("the last fifth is recorded as the rest: {why}"));
        }
        ask_cpu(&mut assembly);
    }
    let not_followed = probes.finish(&mut assembly)?;
    let totals = assembly.finish()?;
    tell(ui, order.into, &totals);
    if not_followed > 0 {
        ui.note(&format!(
            "{not_followed} threads were not recorded: more ran than the table holds"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The part of a recording's time in which CPUs are kept from sleeping, at its end: a fifth, so that the programs are
/// hardly disturbed. Shorter ones than a tenth of a second would say little.
fn awake_part(time: Duration) -> Duration {
    let part = (time / 5).min(Duration::from_secs(1));
    if part < Duration::from_millis(100) { Duration::ZERO } else { part }
}

fn by_strace(ui: &Ui, order: &Order<'_>, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let pids: Vec<u32> = order.pids.iter().copied().collect();
    let cost = measured_cost_ns()?;
    let method = Method {
        name: "strace".to_owned(),
        cost_ns_per_call: Some(cost),
        cost_note: "measured just before the recording with dd, which copied single bytes with and without strace"
            .to_owned(),
        blind_to: BLIND_TO.to_owned(),
    };
    let recorder = Recorder::create(order.into, head(method, true), order.anonymous)?;
    let (tracer, log) = match Tracer::attach(&pids) {
        Ok(attached) => attached,
        Err(error) => {
            // Nothing was recorded: leave nothing behind.
            drop(recorder);
            let _ = std::fs::remove_dir_all(order.into);
            return Err(error.into());
        }
    };
    let mut assembly = Assembly::new(recorder);
    name_processes(&mut assembly, order.pids);
    started(ui, order, "strace", cost);
    let (done, strace) = (AtomicBool::new(false), tracer.pid());
    let deadline = order.time.and_then(|time| Instant::now().checked_add(time));
    let read = std::thread::scope(|scope| {
        scope.spawn(|| {
            let due = || deadline.is_some_and(|at| Instant::now() >= at);
            while !done.load(Ordering::Relaxed) {
                if interrupts.any() || due() {
                    // It detaches, and its log ends.
                    proc::terminate(strace);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let read = read_strace(log, &mut assembly, || true);
        done.store(true, Ordering::Relaxed);
        read
    });
    drop(tracer);
    read?;
    ask_cpu(&mut assembly);
    let totals = assembly.finish()?;
    tell(ui, order.into, &totals);
    Ok(ExitCode::SUCCESS)
}

/// Lets a command begin, and says that the recording runs.
fn started(ui: &Ui, order: &Order<'_>, by: &str, cost_ns: u64) {
    if let Some(child) = order.child {
        // It waits for this before it executes the command.
        proc::resume(child.id());
    }
    ui.note(&format!(
        "recording with {by}, which adds about {} to each call{}",
        Quantity::Duration.show(cost_ns as f64),
        if order.time.is_some() { "" } else { "; Ctrl-C ends the recording, not the programs" }
    ));
}

/// Ends a command that still waits to be resumed. One that runs already does not notice that it is not recorded.
pub(super) fn abandon(child: &mut Child) {
    let state = ProcessFiles::new().identity(child.id()).map(|identity| identity.state);
    if state.is_ok_and(|state| state == 'T') {
        let _ = child.kill();
    }
}

/// Starts a command that stops before it is executed, so that nothing of it is missed. It has a
/// process group of its own, so that Ctrl-C ends the recording and not the command. Such a group
/// may not read from the terminal, and would be stopped if it did, so its standard input is empty
/// instead, as that of a shell's command in the background.
///
/// # Errors
/// There is no shell, or it does not stop.
pub(super) fn start_stopped(command: &[OsString]) -> anyhow::Result<Child> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).args(command);
    start::pass_on(&mut shell);
    shell.process_group(0);
    if std::io::stdin().is_terminal() {
        shell.stdin(Stdio::null());
    }
    let mut child = shell.spawn().context("cannot start /bin/sh, which starts the command")?;
    let files = ProcessFiles::new();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match files.identity(child.id()) {
            Ok(identity) if identity.state == 'T' => return Ok(child),
            Ok(identity) if !identity.is_zombie() && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("/bin/sh did not stop before it executed the command; record by its number");
            }
        }
    }
}

/// Gives the threads that run already their processes, and these their names and origins.
fn name_processes(assembly: &mut Assembly, pids: &BTreeSet<u32>) {
    let files = ProcessFiles::new();
    for pid in pids {
        if let Ok(identity) = files.identity(*pid) {
            assembly.rename(*pid, &identity.name);
        }
        if let Some(origin) = Origin::of(&files, *pid) {
            assembly.set_origin(*pid, origin);
        }
        for thread in files.threads(*pid).unwrap_or_default() {
            if thread != *pid {
                assembly.started(*pid, thread, true);
            }
            if let Ok(ns) = files.thread_cpu_ns(thread) {
                assembly.had_used_cpu(thread, ns);
            }
        }
    }
}

/// Writes down the CPU time of the threads that still run.
fn ask_cpu(assembly: &mut Assembly) {
    let files = ProcessFiles::new();
    assembly.ask_cpu(|thread| files.thread_cpu_ns(thread).ok());
}
