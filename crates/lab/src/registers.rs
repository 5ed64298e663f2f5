//! Refuses to measure in a guest whose kernel does not preserve the CPU's wide registers.

use crossway_netlab::registers_lost;

/// The kernel of this guest does not preserve the registers beyond SSE. This program detects and uses them itself, for
/// example to verify payloads, so that its records could be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "nothing can be measured in this guest: its kernel does not preserve the CPU's registers beyond SSE ({0}), which \
     crossway uses; on the host, `crossway doctor` says how to preserve them (guest-registers); then boot the guest again"
)]
pub struct RegistersLost(String);

impl RegistersLost {
    /// # Errors
    /// This process is in such a guest.
    pub(crate) fn check() -> Result<(), RegistersLost> {
        registers_lost().map_or(Ok(()), |why| Err(RegistersLost(why)))
    }
}
