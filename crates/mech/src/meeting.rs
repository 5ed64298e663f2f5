//! What two processes must have in common to open a channel: where its ends meet.

use serde::Serialize;

/// A thing that both ends must reach so that they can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meeting {
    /// An address of IP or TIPC in networks that reach each other.
    Network,
    /// One kernel, or a virtual machine and its host: an address of AF_VSOCK is in no namespace.
    Kernel,
    /// The name of a UNIX socket: a path in a file system that both ends see, or an abstract name in one network namespace.
    UnixName,
    /// An address in one network namespace.
    Netns,
    /// A path in a file system that both ends see.
    Path,
    /// A descriptor that one end inherits from the other or from a common parent, or receives over a UNIX socket.
    Descriptor,
    /// A name in one `/dev/shm`.
    DevShm,
    /// A key or name in one IPC namespace.
    Ipc,
    /// A process id in one PID namespace.
    Pid,
}

impl Meeting {
    /// All of them.
    pub const ALL: [Meeting; 9] = [
        Meeting::Network,
        Meeting::Kernel,
        Meeting::UnixName,
        Meeting::Netns,
        Meeting::Path,
        Meeting::Descriptor,
        Meeting::DevShm,
        Meeting::Ipc,
        Meeting::Pid,
    ];

    /// The name in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Meeting::Network => "network",
            Meeting::Kernel => "kernel",
            Meeting::UnixName => "unix-name",
            Meeting::Netns => "netns",
            Meeting::Path => "path",
            Meeting::Descriptor => "descriptor",
            Meeting::DevShm => "dev-shm",
            Meeting::Ipc => "ipc",
            Meeting::Pid => "pid",
        }
    }

    /// What both ends need, as the object of a sentence: `a path that both ends see`.
    pub fn words(self) -> &'static str {
        match self {
            Meeting::Network => "an address in a network that both ends reach",
            Meeting::Kernel => "one kernel, or a virtual machine and its host",
            Meeting::UnixName => {
                "the name of a UNIX socket: a path that both ends see, or an abstract name in one network namespace"
            }
            Meeting::Netns => "an address in one network namespace",
            Meeting::Path => "a path that both ends see",
            Meeting::Descriptor => {
                "a descriptor, inherited from one parent or passed over a UNIX socket"
            }
            Meeting::DevShm => "a name in one /dev/shm",
            Meeting::Ipc => "a name in one IPC namespace",
            Meeting::Pid => "a process id in one PID namespace",
        }
    }

    /// What the ends of several ways to meet need, any one of which is enough.
    pub fn any_of(ways: &[Meeting]) -> String {
        ways.iter().map(|way| way.words()).collect::<Vec<_>>().join("; or ")
    }
}
