//! The command that runs a guest's kernel under QEMU, and whether the processor or an emulator runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crossway_sys::program;
use serde::{Deserialize, Serialize};

use super::initrd::SETUP;
use super::record::GuestFiles;
use super::{GuestKernel, GuestRecord, MACHINE_VARIABLE, SETUP_VARIABLE};
use crate::NetError;
use crate::registry::RUN_DIR;

/// The emulator, and Debian's package of it.
pub const QEMU: (&str, &str) = if cfg!(target_arch = "aarch64") {
    ("qemu-system-aarch64", "qemu-system-arm")
} else {
    ("qemu-system-x86_64", "qemu-system-x86")
};
/// The machine that QEMU imitates, and its console.
const BOARD: (&str, &str) =
    if cfg!(target_arch = "aarch64") { ("virt", "ttyAMA0") } else { ("q35", "ttyS0") };
const KVM: &str = "/dev/kvm";
/// The name of the line's port, by which the guest finds it.
pub(super) const PORT: &str = "crossway";
/// The name under which the guest mounts this machine's files.
pub(super) const SHARE: &str = "host";
/// Time limit of an attempt with KVM. A guest that the processor runs is ready within two seconds; some virtual machines
/// accept a guest and then do not run it.
const KVM_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of an emulated guest: normally ten to twenty seconds.
const EMULATED_LIMIT: Duration = Duration::from_secs(600);

/// What runs a guest's kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestMachine {
    /// The kernel is a user-mode Linux, an ordinary process.
    #[default]
    UserMode,
    /// QEMU with KVM: the processor runs the kernel.
    Kvm,
    /// QEMU translates the kernel's instructions, some things 3 times and some 20 times slower than the processor. Its times compare only with
    /// other times of emulated guests on the same machine.
    Emulated,
}

impl GuestMachine {
    /// Returns the name for people.
    pub fn about(self) -> &'static str {
        match self {
            GuestMachine::UserMode => "user-mode Linux",
            GuestMachine::Kvm => "QEMU with KVM",
            GuestMachine::Emulated => "QEMU, emulated",
        }
    }

    /// Returns how long a guest may take to become ready.
    pub(super) fn boot_limit(self) -> Duration {
        match self {
            // It normally takes two seconds; a slow and busy machine may be fifty times slower.
            GuestMachine::UserMode => Duration::from_secs(180),
            GuestMachine::Kvm => KVM_LIMIT,
            GuestMachine::Emulated => EMULATED_LIMIT,
        }
    }

    /// Returns how much slower programs run than on this machine's processor, roughly and at worst.
    pub(super) fn slowdown(self) -> u32 {
        if self == GuestMachine::Emulated { 20 } else { 1 }
    }
}

/// The file in a guest that says which [`GuestMachine`] it is in.
pub(super) const MACHINE: &str = "/run/crossway-guest";

impl GuestMachine {
    /// What the first program of a guest was started with.
    pub(super) fn of_first_program() -> GuestMachine {
        parse(&std::env::var(MACHINE_VARIABLE).unwrap_or_default()).unwrap_or_default()
    }

    /// Makes [`guest_machine`] work in the guest.
    pub(super) fn tell_programs(self) -> std::io::Result<()> {
        fs::write(MACHINE, self.word())
    }

    fn word(self) -> String {
        let text = serde_json::to_string(&self).unwrap_or_default();
        text.trim_matches('"').to_owned()
    }
}

fn parse(word: &str) -> Option<GuestMachine> {
    serde_json::from_value(word.into()).ok()
}

/// What runs the kernel under this process, if this is a guest of Crossway; `None` outside.
pub fn guest_machine() -> Option<GuestMachine> {
    parse(&fs::read_to_string(MACHINE).ok()?)
}

/// What a guest of a kernel can be run by, in the order in which it is tried.
pub(super) fn ways(record: &GuestRecord) -> Vec<GuestMachine> {
    match (&record.kernel, record.asked_machine) {
        (None, _) => vec![GuestMachine::UserMode],
        (Some(_), Some(asked)) => vec![asked],
        (Some(_), None) if kvm_refusal().is_none() => {
            vec![GuestMachine::Kvm, GuestMachine::Emulated]
        }
        (Some(_), None) => vec![GuestMachine::Emulated],
    }
}

/// Why guests on this machine cannot use KVM, as far as it is known; `None`: it may work.
pub fn kvm_refusal() -> Option<String> {
    if let Err(e) = fs::File::options().read(true).write(true).open(KVM) {
        return Some(format!("{KVM}: {e}"));
    }
    fs::read_to_string(refusal()).ok()
}

/// Remembers until the machine's next start that a guest did not run with KVM.
pub(super) fn remember_refusal(why: &str) {
    let first = why.lines().next().unwrap_or_default();
    let _ = fs::write(refusal(), format!("a guest with {KVM} {first}"));
}

fn refusal() -> PathBuf {
    Path::new(RUN_DIR).join("kvm-refused")
}

/// Finds QEMU.
///
/// # Errors
/// It is not installed; the error names the package.
pub fn check_qemu() -> Result<PathBuf, NetError> {
    let (tool, package) = QEMU;
    program::find(tool).ok_or(NetError::MissingTool { tool, package })
}

/// The command that runs the guest. Its standard output is the guest's console, and descriptor 3 the line.
pub(super) fn command(
    record: &GuestRecord,
    kernel: &GuestKernel,
    machine: GuestMachine,
    files: &GuestFiles,
) -> Result<Command, NetError> {
    let mut command = Command::new(check_qemu()?);
    let console = files.create("console")?;
    let errors = console.try_clone().map_err(|e| files.error("console", e))?;
    let (accel, cpu) = match machine {
        GuestMachine::Kvm => ("kvm", "host"),
        _ => ("tcg,thread=multi", "max"),
    };
    let (board, line) = BOARD;
    let words = format!(
        "console={line} quiet panic=-1 random.trust_cpu=on rdinit=/init {SETUP_VARIABLE}={SETUP} \
         {MACHINE_VARIABLE}={} -- guest-init",
        machine.word()
    );
    command
        .args(["-name", &format!("crossway-{}", record.name)])
        .args(["-M", board, "-accel", accel, "-cpu", cpu])
        .args(["-smp", &record.cpu_count.to_string(), "-m", &record.memory_mib.to_string()])
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(files.initrd())
        .args(["-append", &words])
        .args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"])
        .args(["-device", "virtio-rng-pci"])
        .args(["-chardev", "socket,id=line,fd=3", "-device", "virtio-serial-pci"])
        .args(["-device", &format!("virtserialport,chardev=line,name={PORT}")])
        .args(["-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"])
        .args(["-device", &format!("virtio-9p-pci,fsdev=files,mount_tag={SHARE}")]);
    if let Some(network) = &record.network {
        let wire = format!("tap,id=wire,ifname={},script=no,downscript=no", network.tap);
        let device = format!("virtio-net-pci,netdev=wire,mac={},romfile=", network.mac);
        command.args(["-netdev", &wire, "-device", &device]);
    }
    command
        .env_clear()
        .env("PATH", program::search_path())
        .env("TMPDIR", files.writable())
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors);
    Ok(command)
}
