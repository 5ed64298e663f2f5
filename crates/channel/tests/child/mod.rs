//! A child process that runs this test program and is killed, by itself at a given step or by the parent.

use std::process::{Child, Command, Stdio};

/// A child process; dropping it kills it.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the test `child` of this program with environment variables. If `fault` is `STEP@COUNT`, the child dies when
/// it has reached that step COUNT times.
pub(crate) fn start(environment: &[(&str, String)], fault: Option<&str>) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).envs(environment.iter().cloned());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(fault) = fault {
        command.env("CROSSWAY_CHANNEL_FAULT", fault);
    }
    Killed(command.spawn().unwrap())
}
