//! The process beside programs whose connections to other hosts travel by TIPC (`crossway run --via
//! tipc`).

use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;
use crossway_run::porter;
use crossway_run::via::Porter;
use crossway_sys::proc;
use crossway_tipc_client::default_path;

use crate::own;

/// What a process that was started for this does.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Step {
    /// Starts the porter and ends, so that the program has no child that it does not know.
    Leave,
    /// Is the porter.
    Stay,
}

/// Starts a porter for a program, and returns its address.
pub(super) fn start() -> anyhow::Result<String> {
    porter::check(default_path()).context("--via tipc needs a tipcd on this host")?;
    let (porter, listener) = Porter::create().context("cannot make a socket for the porter")?;
    if !step(Step::Leave)?.stdin(listener).status().context("cannot start the porter")?.success() {
        bail!("the porter cannot start another process");
    }
    Ok(porter.name().to_owned())
}

fn step(step: Step) -> anyhow::Result<Command> {
    let own = own::program()?;
    let name = match step {
        Step::Leave => "leave",
        Step::Stay => "stay",
    };
    let mut command = Command::new(own);
    command.args(["run", "--porter", name]);
    // Whoever reads the program's output to its end must not wait for this process.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Does one step; the socket at which programs ask is standard input.
pub(super) fn go_on(which: Step) -> anyhow::Result<ExitCode> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned().context("no socket")?;
    match which {
        Step::Leave => {
            let mut stay = step(Step::Stay)?;
            proc::own_session(&mut stay);
            stay.stdin(listener).spawn().context("cannot start the porter")?;
        }
        Step::Stay => {
            proc::raise_descriptor_limit();
            porter::serve(listener, default_path()).context("cannot serve")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
