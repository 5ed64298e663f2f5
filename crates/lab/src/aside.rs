//! What measurements beside a plan's trials have in common ([`crate::moves`], [`crate::mpi`]).

use std::path::Path;

use crossway_sys::OsError;
use crossway_sys::lease::Run;

/// The reason why the trials were not completed.
#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    /// A stop was requested; the records are incomplete.
    #[error("interrupted")]
    Interrupted,
    /// A directory for the two nodes cannot be created.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Runs trials in a directory of their own, which is gone afterwards, also if this process is killed.
pub(crate) fn in_room<T>(
    name: &str,
    trials: impl FnOnce(&Path) -> Result<T, AsideError>,
) -> Result<T, AsideError> {
    let leases = Run::begin(None)?;
    let room = leases.room(name)?;
    let done = trials(&room);
    leases.clear_room(&room);
    done
}
