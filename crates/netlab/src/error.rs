//! What can go wrong with a network or a guest, each with the next step.

use std::path::PathBuf;

use crossway_sys::OsError;

/// A network or a guest could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// Namespaces need privilege.
    #[error(
        "making network namespaces needs root; run it with sudo, or in a user namespace of its own: \
         unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run; crossway ...'"
    )]
    NoPrivilege,
    /// A program is not installed.
    #[error("the program '{tool}' was not found; install it: apt-get install {package}")]
    MissingTool {
        /// Its name.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The name is taken.
    #[error(
        "{kind} '{name}' is already up ({holder}); take another name or run: crossway {remedy}"
    )]
    Busy {
        /// `network` or `guest`.
        kind: &'static str,
        /// The name.
        name: String,
        /// Who holds it.
        holder: String,
        /// The command that removes it.
        remedy: String,
    },
    /// No such network or guest.
    #[error("there is no {kind} '{name}'; {known}")]
    Unknown {
        /// `network`, `host` or `guest`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// What was asked for cannot be.
    #[error("{what} '{given}': {why}")]
    Impossible {
        /// The property, e.g. `rate`.
        what: &'static str,
        /// The value given.
        given: String,
        /// Why not, and what can be.
        why: String,
    },
    /// A tool refused.
    #[error("{doing}: {said}")]
    Refused {
        /// What was being done, with the object's name.
        doing: String,
        /// The tool's own words, one line.
        said: String,
    },
    /// The files that describe what is up cannot be used.
    #[error("{path}: {why}", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The guest did not become ready, or ended.
    #[error("guest '{name}' {what}{tail}", tail = tail(said))]
    Guest {
        /// The guest.
        name: String,
        /// What happened, and the next step.
        what: String,
        /// The last lines of its console.
        said: String,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

fn tail(said: &str) -> String {
    if said.trim().is_empty() {
        return String::new();
    }
    format!("; its console's last lines:\n  {}", said.trim().replace('\n', "\n  "))
}
