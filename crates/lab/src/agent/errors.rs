//! Why a host cannot be used: each names the host, the cause and the next step.

use std::time::Duration;

use super::greeting::Version;

/// Why a host cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The prefix's first word is no program.
    #[error("host '{host}': cannot run '{program}': {why}; {}", self.remedy())]
    NoProgram {
        /// The host.
        host: String,
        /// The first word of its prefix.
        program: String,
        /// What the system says.
        why: String,
    },
    /// The command ended before an agent spoke.
    #[error("host '{host}': no agent answered: '{command}' {how}; {}", self.remedy())]
    NoAgent {
        /// The host.
        host: String,
        /// What was run.
        command: String,
        /// How it ended and what it wrote.
        how: String,
    },
    /// What came was no agent's greeting.
    #[error("host '{host}': '{command}' said '{said}' where an agent would greet; {}", self.remedy())]
    Nonsense {
        /// The host.
        host: String,
        /// What was run.
        command: String,
        /// The beginning of it.
        said: String,
    },
    /// Another version.
    #[error("host '{host}' runs crossway {there}, and this is {here}; {}", self.remedy())]
    OtherVersion {
        /// The host.
        host: String,
        /// Its version.
        there: Version,
        /// Ours.
        here: Version,
    },
    /// Nothing came in time.
    #[error("host '{host}': '{command}' did not answer within {} s; {}", limit.as_secs(), self.remedy())]
    Silent {
        /// The host.
        host: String,
        /// What was run.
        command: String,
        /// The time it had.
        limit: Duration,
    },
    /// The agent was there and is gone.
    #[error("host '{host}': its agent was lost: '{command}' {how}; {}", self.remedy())]
    Lost {
        /// The host.
        host: String,
        /// What was run.
        command: String,
        /// How it ended and what it wrote.
        how: String,
    },
    /// Another host cannot reach it.
    #[error("host '{from}' cannot reach host '{to}' ({why}); {}", self.remedy())]
    Unreachable {
        /// Who tried.
        from: String,
        /// Whom.
        to: String,
        /// What happened at each address.
        why: String,
    },
    /// The machine itself is gone.
    #[error("host '{host}': {why}; {remedy}")]
    Gone {
        /// The host.
        host: String,
        /// What happened to it.
        why: String,
        /// The next step.
        remedy: String,
    },
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl HostError {
    /// The next step.
    pub fn remedy(&self) -> String {
        match self {
            HostError::NoProgram { program, .. } => {
                format!("install it, or correct the words of --hosts; try: {program} --version")
            }
            HostError::NoAgent { command, how, .. } => {
                let step = step_after(how);
                format!("{step}; try it by hand: {command} --version")
            }
            HostError::Nonsense { .. } => "a shell's start-up files must print nothing when there is no terminal, \
                                           and the prefix must pass bytes unchanged (no ssh -t)"
                .to_owned(),
            HostError::OtherVersion { .. } => "install the same version on both hosts".to_owned(),
            HostError::Silent { command, .. } => format!(
                "try it by hand: {command} --version; the prefix must not ask for a password (use keys)"
            ),
            HostError::Lost { .. } => "see its log; the next trial starts another agent".to_owned(),
            HostError::Unreachable { .. } => {
                "open the hosts' firewalls to each other, or say which address leads there: 'PREFIX=ADDRESS'"
                    .to_owned()
            }
            HostError::Gone { remedy, .. } => remedy.clone(),
            HostError::Interrupted => "start again".to_owned(),
        }
    }
}

/// What mends it, from what a command said that brought no agent: the usual complaints of ssh and shells.
fn step_after(how: &str) -> &'static str {
    let said = |words: &str| how.contains(words);
    if said("ended with code 127") {
        "install crossway there, or say where it is: --agent-program PATH"
    } else if said("Host key verification failed") {
        "log in by hand once and confirm the host's key"
    } else if said("Permission denied") {
        "logging in must not need a password: set up a key (ssh-copy-id), and let an agent hold its passphrase"
    } else if said("Could not resolve") || said("not known") {
        "correct the host's name in --hosts"
    } else if said("timed out") || said("No route to host") || said("Connection refused") {
        "see that the machine is up and lets you log in"
    } else {
        "see that these words run a command there; where crossway is not in the PATH there: --agent-program PATH"
    }
}
