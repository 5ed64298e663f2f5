//! Where a recorded process comes from, and what two of them have in common: by what they can meet.

use std::collections::HashMap;

use crossway_sys::processes::ProcessFiles;
use serde::{Deserialize, Serialize};

use super::{Head, RecordedChannel};

/// The kinds of namespaces in [`Namespaces`], as `/proc/PID/ns` names them.
const KINDS: [&str; 4] = ["net", "ipc", "mnt", "pid"];

/// Where a process comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The number of the process that started it, or that has adopted it; missing if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Its session, which daemons begin for themselves; missing if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// Its namespaces; missing if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Namespaces>,
}

/// The namespaces of a process. Equal numbers are one namespace; the numbers have no other meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Network: loopback, abstract socket names.
    pub network: u64,
    /// System V objects and POSIX message queues.
    pub ipc: u64,
    /// Mounts: which files have which path.
    pub mount: u64,
    /// Process numbers.
    pub pid: u64,
}

impl Origin {
    /// What the kernel says about a running process; `None` if it has ended.
    pub fn of(files: &ProcessFiles, pid: u32) -> Option<Origin> {
        let identity = files.identity(pid).ok()?;
        let [network, ipc, mount, in_pid] = KINDS.map(|kind| files.namespace(pid, kind).ok());
        let namespaces =
            || Some(Namespaces { network: network?, ipc: ipc?, mount: mount?, pid: in_pid? });
        Some(Origin {
            parent: Some(identity.parent),
            session: Some(identity.session),
            namespaces: namespaces(),
        })
    }

    /// That of a process which this one starts.
    pub(crate) fn of_child(origin: Option<&Origin>, parent: u32) -> Origin {
        Origin { parent: Some(parent), ..origin.cloned().unwrap_or_default() }
    }

    /// Replaces all numbers by ones that say only which of them are equal.
    pub(super) fn renumber(&mut self, pids: &mut Renumbered, others: &mut Renumbered) {
        self.parent =
            self.parent.map(|pid| if pid > 1 { pids.add(pid.into()) as u32 } else { pid });
        self.session = self.session.map(|session| others.add(session.into()) as u32);
        if let Some(spaces) = &mut self.namespaces {
            for space in [&mut spaces.network, &mut spaces.ipc, &mut spaces.mount, &mut spaces.pid]
            {
                *space = others.add(*space);
            }
        }
    }
}

/// Numbers from 1 in place of others, in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct Renumbered(HashMap<u64, u64>);

impl Renumbered {
    /// The number in place of this one.
    pub(super) fn add(&mut self, number: u64) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(number).or_insert(next)
    }
}

/// How two processes of a recording came to run: whether one can inherit descriptors from the other, or both from one
/// parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// One is an ancestor of the other.
    Descends,
    /// One parent started both in one session.
    Siblings,
    /// They have inherited a channel that has no name.
    Inherited,
    /// They were started apart.
    Apart,
    /// The recording does not say.
    Unknown,
}

impl Kinship {
    /// How it is known, as a clause.
    pub fn words(self) -> &'static str {
        match self {
            Kinship::Descends => "one started the other",
            Kinship::Siblings => "one parent started both",
            Kinship::Inherited => "they have a channel without a name, which both inherited",
            Kinship::Apart => "they were started apart",
            Kinship::Unknown => "the recording does not say who started them",
        }
    }

    /// Whether descriptors can be inherited. If it is unknown, nobody can rely on that.
    pub fn shares_descriptors(self) -> bool {
        !matches!(self, Kinship::Apart | Kinship::Unknown)
    }
}

/// Carriers of which both ends were inherited if they have no name.
const INHERITED: [&str; 5] = ["pipe", "unix-stream", "unix-datagram", "unix-seqpacket", "eventfd"];

impl Head {
    /// How two processes (indices) came to run.
    pub fn kinship(&self, a: u32, b: u32) -> Kinship {
        let inherits = |channel: &RecordedChannel| {
            let has = |process| channel.from.contains(&process) || channel.to.contains(&process);
            // Names are left out of anonymous recordings; pipes never have one.
            let no_name = channel.name.is_empty() && (!self.anonymous || channel.carrier == "pipe");
            no_name && INHERITED.contains(&channel.carrier.as_str()) && has(a) && has(b)
        };
        let origin = |process: u32| self.processes.get(process as usize)?.origin.as_ref();
        let (of_a, of_b) = (origin(a), origin(b));
        if self.descends(a, b) || self.descends(b, a) {
            return Kinship::Descends;
        }
        if self.channels.iter().any(inherits) {
            return Kinship::Inherited;
        }
        let parents = of_a.zip(of_b).and_then(|(a, b)| a.parent.zip(b.parent));
        match parents {
            None => Kinship::Unknown,
            // What process 1 has adopted was started by others. A service manager gives each service a session of its own.
            Some((a, b))
                if a == b && a > 1 && of_a.map(|o| o.session) == of_b.map(|o| o.session) =>
            {
                Kinship::Siblings
            }
            Some(_) => Kinship::Apart,
        }
    }

    /// Whether `ancestor` started `process`, directly or through other recorded ones.
    fn descends(&self, process: u32, ancestor: u32) -> bool {
        let Some(wanted) = self.processes.get(ancestor as usize).map(|p| p.pid) else {
            return false;
        };
        let mut at = process as usize;
        // A number that was used twice could lead in a circle.
        for _ in 0..self.processes.len() {
            let parent = self.processes.get(at).and_then(|p| p.origin.as_ref()?.parent);
            match parent {
                Some(parent) if parent == wanted => return true,
                Some(parent) => match self.processes.iter().position(|p| p.pid == parent) {
                    Some(next) => at = next,
                    None => return false,
                },
                None => return false,
            }
        }
        false
    }

    /// The namespaces of two processes (indices), if both are known.
    pub fn namespaces(&self, a: u32, b: u32) -> Option<[Namespaces; 2]> {
        let of = |process: u32| self.processes.get(process as usize)?.origin.as_ref()?.namespaces;
        Some([of(a)?, of(b)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Method, RecordedProcess};

    /// The head of a recording of a client and a server, processes 10 and 20, with two channels over TCP.
    fn unknown() -> Head {
        let method = Method {
            name: "test".to_owned(),
            cost_ns_per_call: None,
            cost_note: String::new(),
            blind_to: String::new(),
        };
        let process = |pid| RecordedProcess { pid, name: "p".to_owned(), origin: None };
        let channel = RecordedChannel {
            carrier: "tcp-local".to_owned(),
            name: String::new(),
            from: [0].into(),
            to: [1].into(),
        };
        let processes = vec![process(10), process(20)];
        Head { processes, channels: vec![channel.clone(), channel], ..Head::new("t", 1, method) }
    }

    /// The same with these parents and sessions.
    fn head(origins: [(u32, u32); 2]) -> Head {
        let mut head = unknown();
        for (process, (parent, session)) in head.processes.iter_mut().zip(origins) {
            process.origin = Some(Origin {
                parent: Some(parent),
                session: Some(session),
                namespaces: Some(Namespaces {
                    network: 7,
                    ipc: 8,
                    mount: u64::from(parent),
                    pid: 9,
                }),
            });
        }
        head
    }

    #[test]
    fn descriptors_pass_only_between_kin() {
        assert_eq!(head([(5, 5), (6, 6)]).kinship(0, 1), Kinship::Apart);
        assert_eq!(head([(5, 5), (5, 5)]).kinship(0, 1), Kinship::Siblings);
        // Two services of one manager, and two that process 1 has adopted.
        assert_eq!(head([(5, 10), (5, 20)]).kinship(0, 1), Kinship::Apart);
        assert_eq!(head([(1, 3), (1, 3)]).kinship(0, 1), Kinship::Apart);
        assert_eq!(head([(5, 5), (10, 5)]).kinship(0, 1), Kinship::Descends);
        assert_eq!(head([(20, 5), (6, 5)]).kinship(0, 1), Kinship::Descends);
        let mut far = head([(5, 5), (30, 5)]);
        far.processes.push(RecordedProcess {
            pid: 30,
            name: "shell".to_owned(),
            origin: Some(Origin { parent: Some(10), ..Origin::default() }),
        });
        assert_eq!(far.kinship(0, 1), Kinship::Descends);
        assert_eq!(unknown().kinship(0, 1), Kinship::Unknown);
    }

    #[test]
    fn a_channel_without_a_name_was_inherited() {
        let with = |carrier: &str, name: &str| {
            let mut head = head([(5, 5), (6, 6)]);
            head.channels[1].carrier = carrier.to_owned();
            head.channels[1].name = name.to_owned();
            head
        };
        assert_eq!(with("pipe", "").kinship(0, 1), Kinship::Inherited);
        assert_eq!(with("unix-stream", "").kinship(0, 1), Kinship::Inherited);
        assert_eq!(with("unix-stream", "/run/a").kinship(0, 1), Kinship::Apart);
        let mut anonymous = with("unix-stream", "/run/a");
        anonymous.anonymise();
        assert_eq!(anonymous.kinship(0, 1), Kinship::Apart, "its name was left out");
    }

    #[test]
    fn anonymous_recordings_say_only_which_numbers_are_equal() {
        let mut head = head([(500, 500), (10, 500)]);
        head.anonymise();
        let of = |at: usize| head.processes[at].origin.clone().unwrap();
        assert_eq!((head.processes[0].pid, of(1).parent), (1, Some(1)));
        assert_eq!(of(0).parent, Some(3));
        assert_eq!(of(0).session, of(1).session);
        let [a, b] = head.namespaces(0, 1).unwrap();
        assert!(a.network == b.network && a.mount != b.mount, "{a:?} {b:?}");
        assert!(toml::to_string(&head).is_ok_and(|text| !text.contains("500")));
        assert_eq!(head.kinship(0, 1), Kinship::Descends);
    }
}
