//! Asymmetric fences, with membarrier(2): one thread executes a fence for others, which then need only a compiler fence.

use rustix::thread::{MembarrierCommand, MembarrierQuery};

use crate::OsError;

/// The threads for which a fence is executed, while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The threads of this process.
    Process,
    /// The threads of all registered processes, but for a gap in Linux since 5.4: if a thread of a process has ended on
    /// a CPU, or the CPU was idle when the process registered, then the CPU is left out until it has run another
    /// process. Whoever relies on such a fence must bear that a store passes it, and look again a little later.
    Registered,
}

impl Reach {
    const fn commands(self) -> (MembarrierCommand, MembarrierCommand, &'static str) {
        use MembarrierCommand as Command;
        match self {
            Reach::Process => (
                Command::RegisterPrivateExpedited,
                Command::PrivateExpedited,
                "membarrier(PRIVATE_EXPEDITED)",
            ),
            Reach::Registered => (
                Command::RegisterGlobalExpedited,
                Command::GlobalExpedited,
                "membarrier(GLOBAL_EXPEDITED)",
            ),
        }
    }
}

/// Registers this process for the [`heavy`] fences of this reach; returns false where the kernel does not support them
/// (before Linux 4.16) or a sandbox forbids them.
pub fn register(reach: Reach) -> bool {
    let (register, run, _) = reach.commands();
    let supported: MembarrierQuery = rustix::thread::membarrier_query();
    supported.contains_command(run)
        && supported.contains_command(register)
        && rustix::thread::membarrier(register).is_ok()
}

/// Executes a full memory fence in this thread and in the others within reach. It costs an inter-processor interrupt.
///
/// # Errors
/// This process is not registered for [`Reach::Process`], or the kernel has no memory.
pub fn heavy(reach: Reach) -> Result<(), OsError> {
    let (_, run, name) = reach.commands();
    rustix::thread::membarrier(run).map_err(|e| OsError::new(name, "", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heavy_fences_work_once_registered() {
        for reach in [Reach::Process, Reach::Registered] {
            if register(reach) {
                heavy(reach).unwrap();
            } else {
                eprintln!(
                    "SKIP {reach:?}: this kernel has no such membarrier; remedy: Linux 4.16 or later"
                );
            }
        }
    }
}
