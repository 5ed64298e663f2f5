//! The command that runs a guest's kernel as user-mode Linux.

use std::process::{Command, Stdio};

use crossway_sys::program;

use super::record::GuestFiles;
use super::registers::tunables;
use super::{GuestRecord, GuestRegisters, KERNEL, SETUP_VARIABLE};
use crate::NetError;

/// The parameter for the serial line, which uses the descriptor that a confined child inherits.
const LINE_WORDS: &str = "ssl0=fd:3";

/// The command that runs the guest: user-mode Linux, whose standard error is the guest's console, and descriptor 3 the line.
pub(super) fn command(record: &GuestRecord, files: &GuestFiles) -> Result<Command, NetError> {
    let kernel = program::find(KERNEL)
        .ok_or(NetError::MissingTool { tool: KERNEL, package: "user-mode-linux" })?;
    let console = files.create("console")?;
    let errors = console.try_clone().map_err(|e| files.error("console", e))?;
    let writable = files.writable();
    let mut command = Command::new(kernel);
    command
        .arg(format!("mem={}M", record.memory_mib))
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
        .args(["con=null", "con0=null,fd:2", "ssl=null", LINE_WORDS])
        .arg(format!("uml_dir={}", writable.display()))
        .arg(format!("umid={}", record.name))
        .arg(format!("init={}", record.program.display()))
        .arg(format!("{SETUP_VARIABLE}={}", files.setup().display()));
    if let Some(network) = &record.network {
        // Without gro=1 the driver drops the large frames created by another guest's segmentation offload; depth is the
        // number of frames it reads and writes with one system call.
        command.arg(format!(
            "vec0:transport=tap,ifname={},depth=128,gro=1,mac={},mtu={}",
            network.tap, network.mac, network.mtu_bytes
        ));
    }
    if record.registers == GuestRegisters::Hidden {
        command.arg(tunables());
    }
    command
        .args(["--", "guest-init"])
        .env_clear()
        .env("PATH", program::search_path())
        .env("TMPDIR", &writable)
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors);
    Ok(command)
}
