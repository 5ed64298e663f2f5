//! Mechanisms that the studies or users name and that cannot be measured. Crossway looks for each of them on this
//! machine, and lists what to use instead. docs/HISTORY.md has more.

use std::path::Path;

/// A mechanism that Crossway cannot measure.
#[derive(Clone, Copy)]
pub struct Unmeasurable {
    /// The id, in the same form as the id of a mechanism that can be measured.
    pub id: &'static str,
    /// A one-line description for users.
    pub about: &'static str,
    /// Looks for the mechanism on this machine. Returns what was found, and why it cannot be measured.
    pub why: fn() -> String,
    /// What to use instead.
    pub instead: &'static str,
}

/// All mechanisms that are known and cannot be measured.
pub const ALL: &[Unmeasurable] = &[
    Unmeasurable {
        id: "sockmap",
        about: "TCP whose bytes an eBPF program redirects into the receiver's queue (BPF_MAP_TYPE_SOCKHASH)",
        why: || {
            "a sender never has to wait: the kernel took 2 GB that nobody read, so a stream would measure how fast memory fills"
                .to_owned()
        },
        instead: "crossway run, which puts a UNIX stream in the place of a TCP connection, or uds-stream",
    },
    Unmeasurable {
        id: "rpmsg",
        about: "messages to another processor of the same chip, over virtio rings",
        why: || {
            let devices = std::fs::read_dir("/sys/bus/rpmsg/devices");
            match devices.map(Iterator::count) {
                Ok(0) => "this kernel has it, but there is no other processor to talk to, and rpmsg does not connect \
                          processes of one kernel".to_owned(),
                Ok(_) => "it connects to another processor with its own firmware, not to another process".to_owned(),
                Err(_) => "this kernel is built without it, and rpmsg does not connect processes of one \
                           kernel".to_owned(),
            }
        },
        instead: "a ring in shared memory (shm-*) or a UNIX socket (uds-*)",
    },
    Unmeasurable {
        id: "kdbus",
        about: "D-Bus inside the kernel, proposed from 2014 to 2015",
        why: || found("/sys/fs/kdbus", "kdbus was never part of a Linux release"),
        instead: "dbus-daemon and dbus-peer; memfd passes sealed memory as kdbus did",
    },
    Unmeasurable {
        id: "af-bus",
        about: "sockets with multicast and filters, so that D-Bus needs no daemon between the ends; proposed in 2012",
        // Its number was given to another family, so asking for a socket of it would show nothing.
        why: || {
            "it was never part of a Linux release, and the number of its address family now belongs to another family"
                .to_owned()
        },
        instead: "dbus-peer, or for multicast tipc-kernel-multicast",
    },
    Unmeasurable {
        id: "pvm",
        about: "Parallel Virtual Machine: packed messages through a daemon on each host, or over direct TCP",
        why: || {
            let daemon = ["/usr/bin/pvmd", "/usr/lib/pvm3/lib/pvmd"];
            if daemon.iter().any(|path| Path::new(path).exists()) {
                "it is installed, but its last release is from 2009, and Crossway has no contender for it".to_owned()
            } else {
                "it is not installed, its last release is from 2009, and Crossway has no contender for it".to_owned()
            }
        },
        instead: "mpi",
    },
    Unmeasurable {
        id: "bcl",
        about: "communication with the network card that bypasses the kernel, on the Dawning clusters",
        why: || "it works only with the network cards of those clusters".to_owned(),
        instead: "MPI over RDMA on clusters, or mpi on this machine",
    },
    Unmeasurable {
        id: "pidfd",
        about: "a descriptor of a process: it polls readable when the process ends, and pidfd_send_signal and \
                pidfd_getfd take it",
        why: || {
            "it carries no messages, and it refers to a process, not to a channel: it does not report that a living \
             peer has closed its end".to_owned()
        },
        instead: "signal, which sends through a pidfd, and uring-msg, which takes descriptors through it; to be \
                  notified when a peer ends, any mechanism that detects this (crossway faults measures how fast)",
    },
    Unmeasurable {
        id: "tee",
        about: "a system call that duplicates references to pages from one pipe into another",
        why: || {
            "it does not connect two processes: each receiver reads the duplicate from a pipe of its own".to_owned()
        },
        instead: "splice, which puts pages into a pipe in the same way",
    },
];

fn found(path: &str, otherwise: &str) -> String {
    if Path::new(path).exists() {
        format!("{path} exists, so this kernel is patched: {otherwise}")
    } else {
        format!("{path} does not exist: {otherwise}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn what_is_history_is_no_mechanism_and_has_a_reason() {
        for entry in ALL {
            assert!(registry::find(entry.id).is_none(), "{}", entry.id);
            assert!(!(entry.why)().is_empty() && !entry.instead.is_empty(), "{}", entry.id);
        }
    }
}
