//! What the three parties tell each other as JSON: whoever boots a guest, its keeper, and the program inside.

use serde::{Deserialize, Serialize};

/// What the first program of a guest must do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// Modules to load, each with what it needs.
    pub(crate) modules: Vec<String>,
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

/// What a guest says of itself once it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFacts {
    /// Release of its kernel, e.g. `6.1.176`.
    pub kernel: String,
    /// Modules that were asked for and are loaded.
    pub modules: Vec<String>,
    /// Those that are not, with the reason.
    pub missing_modules: Vec<String>,
    /// What went wrong in a program that runs the C library's string functions without an environment, which then use the widest
    /// registers of the CPU; `None`: all answers were right.
    pub string_functions: Option<String>,
    /// Milliseconds of the guest's own clock from its kernel's start to ready.
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
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It did not start, or the guest is gone; why.
    Failed(String),
}

/// The keeper's first word to whoever started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Boot {
    Ready(GuestFacts),
    /// What happened, and the console's last lines.
    Failed(String, String),
}
