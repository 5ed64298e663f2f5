//! The names that identify a machine and its user.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crossway_records::testbed::{HostWords, LOCAL};
use crossway_sys::proc;

/// Names that countless machines have, so that they identify none.
const COMMON: &[&str] = &[
    "localhost",
    "localhost.localdomain",
    "localdomain",
    "root",
    "nobody",
    "user",
    "debian",
    "ubuntu",
    "fedora",
    "raspberrypi",
    "linux",
    "(none)",
    "home",
];
/// Words of command prefixes that are not names.
const COMMANDS: &[&str] = &[
    "ssh", "ip", "netns", "exec", "env", "docker", "podman", "kubectl", "srun", "mpirun",
    "mpiexec", "nsenter", "chroot", "sudo", "sh", "bash", "crossway", "guest", "net", "yes", "no",
    "none",
];
/// Shorter names cannot be told from other words.
pub(super) const SHORTEST: usize = 3;

/// The names of hosts and users that a bundle must not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Hosts as written on the command line, in the order in which they were named.
    pub(super) hosts: Vec<String>,
    /// Names of hosts.
    pub(super) host_names: BTreeSet<String>,
    /// Names of users.
    pub(super) users: BTreeSet<String>,
    /// The user's home folder.
    pub(super) home: Option<String>,
}

impl Identity {
    /// The names of this machine and of the user who runs this program.
    pub fn here() -> Identity {
        let mut identity = Identity::default();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        identity.add_host_name(read("/proc/sys/kernel/hostname").trim());
        identity.add_host_name(read("/etc/hostname").trim());
        for variable in ["USER", "LOGNAME", "SUDO_USER"] {
            identity.add_user(&std::env::var(variable).unwrap_or_default());
        }
        let uid = proc::effective_user().to_string();
        for account in read("/etc/passwd").lines() {
            let fields: Vec<&str> = account.split(':').collect();
            if fields.get(2) == Some(&uid.as_str()) {
                identity.add_user(fields[0]);
            }
        }
        identity.add_home(&std::env::var("HOME").unwrap_or_default());
        identity
    }

    /// Adds the name of a host, and its first part if it has a domain.
    pub fn add_host_name(&mut self, name: &str) {
        let first = name.split('.').next().unwrap_or_default();
        for name in [name, first] {
            if is_telling(name) && !name.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
                self.host_names.insert(name.to_owned());
            }
        }
    }

    /// Adds the name of a user.
    pub fn add_user(&mut self, name: &str) {
        if is_telling(name) {
            self.users.insert(name.to_owned());
        }
    }

    /// Adds a home folder.
    pub fn add_home(&mut self, path: &str) {
        let path = path.trim_end_matches('/');
        if Path::new(path).is_absolute() && path != "/root" {
            self.home = Some(path.to_owned());
        }
    }

    /// Adds the hosts of a list as on the command line.
    pub(super) fn add_hosts(&mut self, list: &str) {
        for host in HostWords::list(list).unwrap_or_else(|_| vec![list.to_owned()]) {
            self.add_host(&host);
        }
    }

    /// Adds a host as written on the command line, and the names in it.
    pub(super) fn add_host(&mut self, text: &str) {
        let Ok(words) = HostWords::parse(text) else {
            self.hosts.push(text.to_owned());
            return;
        };
        // `a` and `b` are the hosts of testbeds that were made for the run.
        if words.name == LOCAL || words.name.len() < 2 || self.hosts.contains(&words.name) {
            return;
        }
        self.hosts.push(words.name);
        for word in &words.prefix {
            // The value of an option; the options themselves are no names.
            let word = word.rsplit('=').next().unwrap_or(word);
            if word.starts_with('-') || word.starts_with('/') || COMMANDS.contains(&word) {
                continue;
            }
            let (user, host) = word.rsplit_once('@').unwrap_or(("", word));
            self.add_user(user);
            host.split([',', ':']).for_each(|name| self.add_host_name(name));
        }
    }
}

fn is_telling(name: &str) -> bool {
    name.len() >= SHORTEST && !COMMON.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn names_are_found_in_prefixes() {
        let mut identity = Identity::default();
        identity.add_hosts(
            "ssh -p 22 alice@board7.example.com=192.0.2.7,local,mpirun -np 1 --host=node12",
        );
        identity.add_host("a");
        assert_eq!(
            identity.hosts,
            ["ssh -p 22 alice@board7.example.com", "mpirun -np 1 --host=node12"]
        );
        assert_eq!(words(&identity.users), ["alice"]);
        assert_eq!(words(&identity.host_names), ["board7", "board7.example.com", "node12"]);
    }

    #[test]
    fn names_that_many_have_identify_nobody() {
        let mut identity = Identity::default();
        identity.add_user("root");
        identity.add_host_name("localhost");
        identity.add_home("/root");
        assert_eq!(identity, Identity::default());
    }
}
