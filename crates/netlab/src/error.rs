//! Errors of networks and guests, each with the next step.

use std::path::PathBuf;

use crossway_sys::OsError;

/// A network or a guest could not be created, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// Creating namespaces, which networks and guests are made of, needs privilege.
    #[error(
        "networks and guests need root, to create network namespaces; run the command with sudo or in a new user \
         namespace: unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run; crossway ...'"
    )]
    NoPrivilege,
    /// A program is not installed.
    #[error("the program '{tool}' was not found; install it: apt-get install {package}")]
    MissingTool {
        /// The name of the program, as it is looked for in PATH.
        tool: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// The name is already in use.
    #[error(
        "{kind} '{name}' is already up ({holder}); choose another name or run: crossway {remedy}"
    )]
    Busy {
        /// What has the name: `network` or `guest`.
        kind: &'static str,
        /// The name in use.
        name: String,
        /// The process that holds the name, or the reason why the name is still in use.
        holder: String,
        /// The subcommand of `crossway` that removes the network or guest, with its arguments.
        remedy: String,
    },
    /// There is no such network, host or guest.
    #[error("there is no {kind} '{name}'; {known}")]
    Unknown {
        /// `network`, `host` or `guest`.
        kind: &'static str,
        /// The name that was not found.
        name: String,
        /// A clause that lists the names that exist.
        known: String,
    },
    /// The request cannot be satisfied.
    #[error("{what} '{given}': {why}")]
    Impossible {
        /// The property, such as `rate`.
        what: &'static str,
        /// The value that was given.
        given: String,
        /// Why not, and which values are possible.
        why: String,
    },
    /// A tool, such as `ip` or `tc`, ended with an error.
    #[error("{doing}: {said}")]
    Refused {
        /// What the tool was run for, with the object's name.
        doing: String,
        /// The tool's error output, as one line.
        said: String,
    },
    /// A state file of a network or guest cannot be used.
    #[error("{path}: {why}", path = path.display())]
    State {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        why: String,
    },
    /// The guest did not become ready, or ended.
    #[error("guest '{name}' {what}{tail}", tail = tail(said))]
    Guest {
        /// The name of the guest.
        name: String,
        /// What happened, and the next step.
        what: String,
        /// The last lines of the guest's console.
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
    format!("; the last lines of its console:\n  {}", said.trim().replace('\n', "\n  "))
}
