//! Programs into which no library can be loaded: this process supervises them.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use crossway_run::explain;
use crossway_run::supervisor::{self, CannotSupervise};
use crossway_sys::supervision::Supervisor;
use crossway_sys::{Errno, proc, start};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::own;

/// Runs a program until it ends, and returns its exit code, as a shell does. Programs that it has started and that go on are
/// left to another process.
pub(super) fn run(
    program: &OsStr,
    arguments: &[OsString],
    explain: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    if let Some(place) = &explain {
        explain::explain_at(place.into());
    }
    let command = || {
        let mut command = Command::new(program);
        command.args(arguments);
        start::pass_on(&mut command);
        command
    };
    // Before the program can be known to anybody.
    let signals = catch_signals()?;
    let cannot = || format!("cannot run {}", program.display());
    let supervised = match supervisor::start(command()) {
        // This process is supervised itself, and so will be the program.
        Err(CannotSupervise::Kernel(Errno::BUSY)) => {
            return Err(command().exec()).with_context(cannot);
        }
        outcome => outcome.with_context(cannot)?,
    };
    pass_signals_on(signals, supervised.pid());
    let (status, rest) = supervised.attend().context("cannot wait for the program")?;
    if let Some(rest) = rest {
        leave(rest, explain)?;
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Catches the signals that would end this process before its program. Those that it ignores (nohup) stay ignored, because
/// the program inherits that, but not that they are caught.
fn catch_signals() -> anyhow::Result<Signals> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let caught = all.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    Signals::new(caught).context("cannot handle signals")
}

/// Passes the signals that are sent to this process on to the program. Those of the keyboard reach the program anyway.
fn pass_signals_on(mut signals: Signals, pid: u32) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal != SIGINT && signal != SIGQUIT {
                // A child that has not been waited for.
                proc::signal(pid, signal);
            }
        }
    });
}

/// Leaves the programs that remain to another process, which has the supervisor as its standard input.
fn leave(supervisor: Supervisor, explain: Option<PathBuf>) -> anyhow::Result<()> {
    let own = own::program()?;
    let mut command = Command::new(own);
    command.args(["run", "--supervise"]).stdin(Stdio::from(supervisor.into_descriptor()));
    // Whoever reads the program's output to its end must not wait for this process.
    command.stdout(Stdio::null());
    match explain {
        Some(place) => {
            let mut argument = OsString::from("--explain=");
            argument.push(place);
            command.arg(argument);
        }
        None => {
            command.stderr(Stdio::null());
        }
    }
    proc::own_session(&mut command);
    command.spawn().context("cannot start a supervisor for the programs that go on")?;
    Ok(())
}

/// Supervises the programs whose supervisor is standard input, until none is left.
pub(super) fn go_on(explain: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    if let Some(place) = explain {
        explain::explain_at(place.into());
    }
    let supervisor = std::io::stdin().as_fd().try_clone_to_owned().context("no supervisor")?;
    proc::raise_descriptor_limit();
    supervisor::go_on(Supervisor::from(supervisor));
    Ok(ExitCode::SUCCESS)
}
