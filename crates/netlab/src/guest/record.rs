//! The records of running guests, and the folders with their files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{GuestFacts, GuestKernel, GuestMachine, GuestRegisters};
use crate::NetError;
use crate::registry::{Claim, Process, RUN_DIR, Registry};

/// A guest that is running or starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRecord {
    /// The name of the guest, unique on this machine.
    pub name: String,
    /// The guest's memory in MiB.
    pub memory_mib: u32,
    /// The kernel that QEMU boots; `None`: user-mode Linux.
    #[serde(default)]
    pub kernel: Option<GuestKernel>,
    /// Number of the guest's CPUs.
    #[serde(default = "one")]
    pub cpu_count: u32,
    /// What the user wants to run the kernel; `None`: what works.
    #[serde(default)]
    pub asked_machine: Option<GuestMachine>,
    /// The path, on the host, of the program that runs as the guest's keeper and as the guest's first program.
    pub program: PathBuf,
    /// The guest's place on a network; `None` if it has none.
    pub network: Option<GuestPlace>,
    /// Logical CPUs on which the guest's kernel runs; empty: any.
    pub cpus: Vec<u32>,
    /// Whether the guest's kernel does not preserve registers beyond SSE, so that programs inside must not use AVX.
    pub legacy_state_only: bool,
    /// How the guest's programs keep their registers beyond SSE (AVX, AVX-512).
    #[serde(default)]
    pub registers: GuestRegisters,
    /// The process that boots the guest.
    pub starter: Process,
    /// The process that keeps the guest; `None` until the guest is ready.
    pub keeper: Option<Process>,
    /// The facts that the guest reported; `None` until it is ready.
    pub facts: Option<GuestFacts>,
}

/// A guest's place on a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPlace {
    /// The place as `network/host`.
    pub host: String,
    /// The guest's tap, in the namespace of the network's switch.
    pub tap: String,
    /// Ethernet address of the guest's interface, as text: six bytes in hexadecimal, separated by colons.
    pub mac: String,
    /// IPv4 address.
    pub ipv4: std::net::Ipv4Addr,
    /// IPv6 address.
    pub ipv6: std::net::Ipv6Addr,
    /// Largest IP packet in bytes.
    pub mtu_bytes: u32,
}

fn one() -> u32 {
    1
}

impl GuestRecord {
    fn is_held(&self) -> bool {
        match self.keeper {
            Some(keeper) => keeper.is_alive(),
            None => self.starter.is_alive(),
        }
    }
}

/// A guest's folder.
pub(crate) struct GuestFiles {
    folder: PathBuf,
}

impl GuestFiles {
    pub(crate) fn of(name: &str) -> GuestFiles {
        GuestFiles { folder: Path::new(RUN_DIR).join("guest").join(name) }
    }

    /// Creates the folder, accessible only to its owner.
    pub(crate) fn make(&self) -> Result<(), NetError> {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(self.writable()).map_err(|e| self.error("", e))?;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700))
            .map_err(|e| self.error("", e))
    }

    /// The socket that accepts commands.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// The file with the output of the guest's kernel.
    pub(crate) fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    /// The file with the error output of the guest's keeper.
    pub(crate) fn keeper_errors(&self) -> PathBuf {
        self.folder.join("keeper")
    }

    pub(crate) fn create(&self, file: &str) -> Result<fs::File, NetError> {
        fs::File::create(self.folder.join(file)).map_err(|e| self.error(file, e))
    }

    /// The setup file with the tasks of the guest's first program.
    pub(crate) fn setup(&self) -> PathBuf {
        self.folder.join("setup.json")
    }

    /// The first file system of a guest under QEMU.
    pub(crate) fn initrd(&self) -> PathBuf {
        self.folder.join("initrd")
    }

    /// The folder over which the guest's kernel gets a tmpfs of its own.
    pub(crate) fn writable(&self) -> PathBuf {
        self.folder.join("own")
    }

    pub(crate) fn error(&self, file: &str, why: std::io::Error) -> NetError {
        NetError::State { path: self.folder.join(file), why: why.to_string() }
    }

    /// The last lines of the guest's console output.
    pub(crate) fn console_tail(&self) -> String {
        let text = fs::read(self.console()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// The last line of the guest's console output, preceded by `separator`; empty if there is none.
    pub(crate) fn console_end_after(&self, separator: &str) -> String {
        let tail = self.console_tail();
        tail.lines().last().map_or_else(String::new, |line| format!("{separator}{line}"))
    }
}

fn registry() -> Registry {
    Registry::new("guest")
}

/// Removes the remains of guests whose keeper has ended; returns the other guests. The caller must hold the claim on
/// the names ([`Registry::claim`]).
fn sweep() -> Result<Vec<GuestRecord>, NetError> {
    let mut there = Vec::new();
    registry().remove_drafts();
    for name in registry().names() {
        let Some(record) = registry().read_if_known::<GuestRecord>(&name) else { continue };
        if record.is_held() {
            there.push(record);
        } else {
            tracing::info!("removing guest '{name}', whose keeper was killed");
            remove(&name);
        }
    }
    Ok(there)
}

/// Removes the remains of guests whose keeper was killed.
pub(crate) fn remove_abandoned() -> Result<(), NetError> {
    list().map(drop)
}

/// Lists the guests that are running or starting, after removing the remains of the others.
pub(crate) fn list() -> Result<Vec<GuestRecord>, NetError> {
    if registry().names().is_empty() {
        return Ok(Vec::new());
    }
    let _claim = registry().claim()?;
    sweep()
}

/// Reserves the record's name; fails with [`NetError::Busy`] if it is not free.
pub(crate) fn claim(record: &GuestRecord) -> Result<(), NetError> {
    let _claim: Claim = registry().claim()?;
    if let Some(other) = sweep()?.into_iter().find(|other| other.name == record.name) {
        let keeper = other.keeper.unwrap_or(other.starter);
        return Err(NetError::Busy {
            kind: "guest",
            name: other.name.clone(),
            holder: format!("kept by process {}", keeper.pid),
            remedy: format!("guest down {}", other.name),
        });
    }
    registry().write(&record.name, record)
}

pub(crate) fn write(record: &GuestRecord) -> Result<(), NetError> {
    registry().write(&record.name, record)
}

pub(crate) fn read(name: &str) -> Result<GuestRecord, NetError> {
    registry().read(name)?.ok_or_else(|| unknown(name, &[]))
}

/// Adds the facts that the guest reported, and the calling process as its keeper.
pub(crate) fn ready(name: &str, facts: &GuestFacts) -> Result<(), NetError> {
    let record = read(name)?;
    write(&GuestRecord { keeper: Some(Process::own()), facts: Some(facts.clone()), ..record })
}

pub(crate) fn remove(name: &str) {
    let _ = fs::remove_dir_all(GuestFiles::of(name).folder);
    registry().remove(name);
}

/// The error for a name that no guest has.
pub(crate) fn unknown(name: &str, there: &[GuestRecord]) -> NetError {
    let names: Vec<&str> = there.iter().map(|guest| guest.name.as_str()).collect();
    NetError::Unknown {
        kind: "guest",
        name: name.to_owned(),
        known: if names.is_empty() {
            "no guest is up; boot one with: crossway guest up".to_owned()
        } else {
            format!("existing guests: {}", names.join(", "))
        },
    }
}
