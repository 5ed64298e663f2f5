//! How programs in a guest keep their registers beyond SSE (AVX, AVX-512), which the guest's kernel saves and restores
//! through `ptrace`.

use crossway_sys::xstate::{self, RelayKind};
use serde::{Deserialize, Serialize};

/// Size in bytes of the kernel's buffer for extended CPU state (`FP_SIZE` of arch/x86/um in Linux 6.1), up to AVX-512
/// and protection keys. The state of CPUs with tile registers is larger, and then the kernel cannot write back what it
/// has read.
const MAX_KERNEL_BYTES: usize = 2696;

/// The environment variable that selects the method for tests: `emulated` or `hidden`.
const VARIABLE: &str = "CROSSWAY_GUEST_REGISTERS";

/// How programs in a guest keep their registers beyond SSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestRegisters {
    /// The guest's kernel has enough space for this CPU's state.
    #[default]
    Kernel,
    /// This CPU has tile registers; one of Crossway's libraries completes what the guest's kernel writes back.
    Relay,
    /// As [`GuestRegisters::Relay`], but the tile registers are emulated, for tests.
    EmulatedRelay,
    /// The registers are not preserved: the kernel treats the CPU as one without them, and programs inside must not use
    /// them. Used only where Crossway was built without a C compiler, on a CPU with tile registers.
    Hidden,
}

impl GuestRegisters {
    /// The method for guests on this machine.
    pub fn here() -> GuestRegisters {
        let asked = std::env::var(VARIABLE).unwrap_or_default();
        match asked.as_str() {
            "emulated" if xstate::has_relay() => GuestRegisters::EmulatedRelay,
            "hidden" => GuestRegisters::Hidden,
            _ if xstate::extended_state_bytes() <= MAX_KERNEL_BYTES => GuestRegisters::Kernel,
            _ if xstate::has_relay() => GuestRegisters::Relay,
            _ => GuestRegisters::Hidden,
        }
    }

    /// Describes the method in a sentence.
    pub fn explanation(self) -> String {
        let bytes = xstate::extended_state_bytes();
        match self {
            GuestRegisters::Kernel => {
                format!(
                "this CPU's extended state ({bytes} bytes) fits into the buffer of the guest's kernel ({MAX_KERNEL_BYTES} bytes)"
            )
            }
            GuestRegisters::Relay => format!(
                "this CPU's extended state ({bytes} bytes) exceeds the buffer of the guest's kernel ({MAX_KERNEL_BYTES} bytes); a preloaded library preserves the rest"
            ),
            GuestRegisters::EmulatedRelay => {
                "the state of a CPU with tile registers is emulated; a preloaded library completes it"
                    .to_owned()
            }
            GuestRegisters::Hidden if bytes <= MAX_KERNEL_BYTES => format!(
                "{VARIABLE}=hidden hides the registers beyond SSE from the guest's kernel, although this CPU's extended state ({bytes} bytes) would fit into its buffer ({MAX_KERNEL_BYTES} bytes)"
            ),
            GuestRegisters::Hidden if xstate::has_relay() => format!(
                "{VARIABLE}=hidden hides the registers beyond SSE from the guest's kernel, although crossway has the library that preserves them"
            ),
            GuestRegisters::Hidden => format!(
                "this CPU's extended state ({bytes} bytes) exceeds the buffer of the guest's kernel ({MAX_KERNEL_BYTES} bytes), and crossway was built without a C compiler"
            ),
        }
    }

    /// The step that preserves the registers where they are hidden.
    pub fn remedy() -> String {
        match xstate::has_relay() || xstate::extended_state_bytes() <= MAX_KERNEL_BYTES {
            true => format!("unset {VARIABLE}"),
            false => "sudo apt-get install gcc, then build crossway again".to_owned(),
        }
    }

    /// The library that the guest's kernel must load before all others; `None` if it needs none.
    pub(crate) fn relay(self) -> Option<RelayKind> {
        match self {
            GuestRegisters::Relay => Some(RelayKind::Real),
            GuestRegisters::EmulatedRelay => Some(RelayKind::Emulated),
            GuestRegisters::Kernel | GuestRegisters::Hidden => None,
        }
    }
}

/// File in a guest that says that its kernel does not preserve the registers beyond SSE, and what the check at its boot
/// found.
pub(super) const LOST: &str = "/run/crossway-registers-lost";

/// What the check of registers found when this guest booted; `None` if its kernel preserves them, or if this process is
/// not in a guest. This program uses wide registers itself, so no result of it can be trusted where they are lost.
pub fn registers_lost() -> Option<String> {
    std::fs::read_to_string(LOST).ok()
}

/// Environment setting (`NAME=VALUE`) that stops the C library of programs in a guest from using registers that the
/// guest's kernel does not preserve.
pub(crate) fn tunables() -> String {
    let off = [
        "AVX",
        "AVX2",
        "AVX2_Usable",
        "AVX512F",
        "AVX512VL",
        "AVX512BW",
        "XSAVE",
        "XSAVEC",
        "ERMS",
        "EVEX",
        "AVX_Fast_Unaligned_Load",
    ];
    format!("GLIBC_TUNABLES=glibc.cpu.hwcaps={}", off.map(|word| format!("-{word}")).join(","))
}
