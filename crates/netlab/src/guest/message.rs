//! The JSON messages between the three parties: the process that boots a guest, its keeper, and the program inside.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::GuestMachine;

/// The tasks of a guest's first program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// Modules to load, together with their dependencies; parameters follow behind a space.
    pub(crate) modules: Vec<String>,
    /// The folder of a kernel's modules; `None`: that of user-mode Linux, or the kernel has none.
    pub(crate) modules_folder: Option<PathBuf>,
    pub(crate) interface: Option<Interface>,
}

/// The guest's interface on a network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) tap: String,
    pub(crate) mac: String,
    pub(crate) ipv4: String,
    pub(crate) ipv6: String,
    pub(crate) mtu_bytes: u32,
    pub(crate) offloads: bool,
}

/// Facts that a guest reports once it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFacts {
    /// What runs the kernel.
    #[serde(default)]
    pub machine: GuestMachine,
    /// Release of the guest's kernel, such as `6.1.176`.
    pub kernel: String,
    /// Requested modules that are loaded.
    pub modules: Vec<String>,
    /// Requested modules that are not loaded, with the reason.
    pub missing_modules: Vec<String>,
    /// What went wrong in a check of the C library's string functions, which use the widest registers of the CPU if no
    /// environment variable restricts them; `None`: all results were correct.
    pub string_functions: Option<String>,
    /// Time from the start of the guest's kernel until the guest was ready, in milliseconds of the guest's own clock.
    pub ready_after_ms: u64,
}

/// A command for the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExecRequest {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) folder: String,
}

/// How a command in the guest ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The command exited with this status.
    Exited(i32),
    /// The command was killed by this signal.
    Signalled(i32),
    /// The command did not start, or the guest has ended; the reason.
    Failed(String),
}

/// The keeper's first message to the process that started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Boot {
    Ready(GuestFacts),
    /// What happened, and the last lines of the console.
    Failed(String, String),
}
