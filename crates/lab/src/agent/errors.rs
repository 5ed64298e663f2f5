//! Reasons why a host cannot be used: each message names the host, the cause and the next step.

use std::time::Duration;

use crossway_sys::Obstacle;

use super::greeting::Version;

/// The reason why a host cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The first element of the command prefix could not be run.
    #[error("host '{host}': cannot run '{program}': {why}; {}", self.remedy())]
    NoProgram {
        /// The host.
        host: String,
        /// The program that could not be run: the first element of the host's command prefix.
        program: String,
        /// The system's error.
        why: String,
    },
    /// The command exited before an agent answered.
    #[error("host '{host}': no agent answered: '{command}' {how}; {}", self.remedy())]
    NoAgent {
        /// The host.
        host: String,
        /// The command.
        command: String,
        /// How the command exited, and its output.
        how: String,
    },
    /// The program could not be copied to the host.
    #[error("host '{host}': crossway cannot be copied there: '{command}' {how}; {}", self.remedy())]
    NotCopied {
        /// The host.
        host: String,
        /// The command that failed.
        command: String,
        /// How the command exited, and its output.
        how: String,
    },
    /// There is no file that could be copied to the host, or no place for it.
    #[error("host '{host}': {obstacle}")]
    NoFile {
        /// The host.
        host: String,
        /// Why, and the next step.
        obstacle: Obstacle,
    },
    /// The output did not begin with an agent's greeting.
    #[error("host '{host}': '{command}' printed '{said}' instead of an agent's greeting; {}", self.remedy())]
    Nonsense {
        /// The host.
        host: String,
        /// The command.
        command: String,
        /// The beginning of the output.
        said: String,
    },
    /// The agent has another version.
    #[error("host '{host}' runs crossway {there}, but this is {here}; {}", self.remedy())]
    OtherVersion {
        /// The host.
        host: String,
        /// Version of the agent.
        there: Version,
        /// Version of this program.
        here: Version,
    },
    /// No answer arrived in time.
    #[error("host '{host}': '{command}' did not answer within {} s; {}", limit.as_secs(), self.remedy())]
    Silent {
        /// The host.
        host: String,
        /// The command.
        command: String,
        /// The time limit.
        limit: Duration,
    },
    /// The connection to a working agent was lost.
    #[error("host '{host}': the connection to its agent was lost: '{command}' {how}; {}", self.remedy())]
    Lost {
        /// The host.
        host: String,
        /// The command.
        command: String,
        /// How the command exited, and its output.
        how: String,
    },
    /// The host `from` cannot reach the host `to`.
    #[error("host '{from}' cannot reach host '{to}' ({why}); {}", self.remedy())]
    Unreachable {
        /// The host that tried to connect.
        from: String,
        /// The host that `from` tried to reach.
        to: String,
        /// What happened at each address.
        why: String,
    },
    /// The machine itself failed, e.g. a guest.
    #[error("host '{host}': {obstacle}")]
    Gone {
        /// The host.
        host: String,
        /// What happened to the host, and the next step.
        obstacle: Obstacle,
    },
    /// The user or the system requested a stop.
    #[error("interrupted")]
    Interrupted,
}

impl HostError {
    /// The error as reason and remedy.
    pub fn obstacle(&self) -> Obstacle {
        let (remedy, whole) = (self.remedy(), self.to_string());
        let why = whole.strip_suffix(&format!("; {remedy}")).unwrap_or(&whole);
        Obstacle::new(why, &remedy)
    }

    /// The next step for the user, in words.
    pub fn remedy(&self) -> String {
        match self {
            HostError::NoProgram { .. } => "install it, or correct the command in --hosts".to_owned(),
            HostError::NoAgent { command, how, .. } => {
                let step = step_after(how);
                format!("{step}; test it manually: {command} --version")
            }
            HostError::NotCopied { how, .. } if how.contains("ended with code 127") => {
                "install that command there; or copy crossway there and add --agent-program PATH".to_owned()
            }
            HostError::NotCopied { how, .. } => step_after(how).to_owned(),
            HostError::Nonsense { .. } => "that host's shell start-up files must not print anything without a \
                                           terminal, and the command prefix must transfer bytes unchanged (no ssh -t)"
                .to_owned(),
            HostError::OtherVersion { .. } => "install the same version on both hosts".to_owned(),
            HostError::Silent { command, .. } => format!(
                "test it manually: {command} --version; the command must not ask for a password (use keys)"
            ),
            HostError::Lost { .. } => {
                "look for the cause on that host, e.g. in its kernel log (dmesg)".to_owned()
            }
            HostError::Unreachable { .. } => {
                "open the hosts' firewalls to each other, or state the address to use in --hosts: 'PREFIX=ADDRESS'"
                    .to_owned()
            }
            HostError::Gone { obstacle, .. } | HostError::NoFile { obstacle, .. } => obstacle.remedy.clone(),
            HostError::Interrupted => "start again".to_owned(),
        }
    }
}

/// The next step if a command did not start an agent, derived from the usual error messages of ssh and shells.
fn step_after(how: &str) -> &'static str {
    let said = |words: &str| how.contains(words);
    if said("ended with code 127") {
        "install crossway there, or state its path: --agent-program PATH"
    } else if said("Exec format error") || said("cannot execute binary file") {
        "the crossway there is for another kind of processor: install the file for that host's ('uname -m' names it)"
    } else if said("Host key verification failed") {
        "log in manually once and confirm the host's key"
    } else if said("Permission denied") {
        "logging in must not require a password: set up a key (ssh-copy-id), and load it into ssh-agent if it has a passphrase"
    } else if said("Could not resolve") || said("not known") {
        "correct the host's name in --hosts"
    } else if said("timed out") || said("No route to host") || said("Connection refused") {
        "check that the machine is up and that you can log in"
    } else {
        "check that the command prefix in --hosts runs commands on that host; if crossway is not in the PATH there, \
         add --agent-program PATH"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_for_another_processor_is_named_as_the_cause() {
        for how in [
            "ended with code 126: bash: /tmp/crossway: cannot execute binary file: Exec format error",
            "ended with code 1: exec: /tmp/crossway: Exec format error",
        ] {
            assert!(step_after(how).contains("another kind of processor"), "{how}");
        }
    }
}
