//! Finds the channels that the kernel's objects belong to, and passes calls on to the recording.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::records::{AF_INET, AF_INET6, AF_UNIX, Described, Moved, Record};
use crate::import::{Assembly, Call, End, Place, one_way, over_ip};
use crate::recording::{Operation, RecordingError};

/// Classes of objects, in the highest byte of an object's number: `bpf/recorder.bpf.c`.
const CLASS: u32 = 56;
const PIPE: u64 = 1;
const SOCKET: u64 = 2;
const QUEUE: u64 = 3;

/// Types of sockets and numbers of protocols and families, as Linux defines them.
const SOCK_DGRAM: u16 = 2;
const SOCK_SEQPACKET: u16 = 5;
const IPPROTO_SCTP: u16 = 132;
const AF_NETLINK: u16 = 16;
const AF_TIPC: u16 = 30;
const AF_VSOCK: u16 = 40;

/// Where calls on an object move bytes.
enum Known {
    /// The same place for sends and receives.
    Socket(Place),
    /// One place for the writer, one for the reader.
    OneWay { sends: Place, receives: Place },
    /// A socket that exchanges with anyone: a channel for each address.
    Anyone { described: Described, by_address: HashMap<Option<SocketAddr>, Place> },
}

/// The objects that have been described.
#[derive(Default)]
pub(super) struct Objects {
    known: HashMap<u64, Known>,
    /// The channels of UNIX sockets, and which end of them each socket is.
    unix: HashMap<u64, (String, String)>,
}

impl Objects {
    /// Takes in a record.
    pub(super) fn take(
        &mut self,
        record: Record,
        assembly: &mut Assembly,
    ) -> Result<(), RecordingError> {
        match record {
            Record::Call(moved) => return self.call(&moved, assembly),
            Record::Object(described) => {
                let known = self.identify(described, assembly);
                self.known.insert(known.0, known.1);
            }
            Record::Started { thread, child, same_process } => {
                assembly.started(thread, child, same_process);
            }
            Record::Named { thread, name } => assembly.rename(thread, &name),
            Record::Ended { thread, cpu_ns } => assembly.used_cpu(thread, cpu_ns),
        }
        Ok(())
    }

    fn call(&mut self, moved: &Moved, assembly: &mut Assembly) -> Result<(), RecordingError> {
        let place = match self.known.get_mut(&moved.object) {
            None if moved.operation == Operation::Wait => None,
            None => {
                assembly.lost.not_understood += 1;
                return Ok(());
            }
            Some(Known::Socket(place)) => Some(*place),
            Some(Known::OneWay { sends, .. }) if moved.operation == Operation::Send => Some(*sends),
            Some(Known::OneWay { receives, .. }) => Some(*receives),
            Some(Known::Anyone { described, by_address }) => {
                let place = || assembly.place(&inet(described, moved.with));
                Some(*by_address.entry(moved.with).or_insert_with(place))
            }
        };
        let call = Call {
            thread: moved.thread,
            at_ns: i64::try_from(moved.began_ns).unwrap_or(i64::MAX),
            took_ns: moved.took_ns,
            operation: moved.operation,
            size_bytes: moved.size_bytes,
            cpu: Some(moved.cpu),
            off_cpu_ns: Some(moved.off_cpu_ns),
        };
        assembly.add(call, place)
    }

    /// What an object is.
    fn identify(&mut self, described: Described, assembly: &mut Assembly) -> (u64, Known) {
        let object = described.object;
        let id = object.to_string();
        let known = match (object >> CLASS, described.family) {
            (SOCKET, AF_UNIX) => Known::Socket(assembly.place(&self.unix(&described))),
            (SOCKET, AF_INET | AF_INET6) if described.remote.port() == 0 => {
                Known::Anyone { described, by_address: HashMap::new() }
            }
            (SOCKET, AF_INET | AF_INET6) => {
                Known::Socket(assembly.place(&inet(&described, Some(described.remote))))
            }
            (SOCKET, family) => {
                let (carrier, name) = match family {
                    AF_NETLINK => ("netlink", String::new()),
                    AF_TIPC => ("tipc", String::new()),
                    AF_VSOCK => ("vsock", String::new()),
                    other => ("other-socket", format!("address family {other}")),
                };
                let end = "program".to_owned();
                let channel = format!("socket:{id}");
                Known::Socket(assembly.place(&End { channel, end, carrier, name }))
            }
            (class, _) => {
                let carrier = match class {
                    PIPE if described.named => "fifo",
                    PIPE => "pipe",
                    QUEUE => "posix-queue",
                    _ => "sysv-queue",
                };
                let name = if described.named { path(&described) } else { String::new() };
                let mut place = |operation| {
                    let end = one_way(carrier, &id, operation);
                    assembly.place(&End { name: name.clone(), ..end })
                };
                Known::OneWay { sends: place(Operation::Send), receives: place(Operation::Receive) }
            }
        };
        (object, known)
    }

    /// The end of a UNIX socket. Of two connected ones, the first one seen names the channel. A socket that was not
    /// accepted yet when its peer sent to it is recognised later, when it names its peer.
    fn unix(&mut self, described: &Described) -> End {
        let carrier = match described.socket_type {
            SOCK_DGRAM => "unix-datagram",
            SOCK_SEQPACKET => "unix-seqpacket",
            _ => "unix-stream",
        };
        let (own, peer) = (described.object, described.peer);
        let channel = match self.unix.get(&peer).or_else(|| self.unix.get(&own)) {
            Some((channel, _)) => channel.clone(),
            None => format!("unix:{}", if peer == 0 { own } else { peer }),
        };
        // Many datagram sockets may send to one, which receives from all of them in one channel.
        let is_sender =
            described.socket_type == SOCK_DGRAM && peer != 0 && channel == format!("unix:{peer}");
        let end = if is_sender { "senders".to_owned() } else { own.to_string() };
        self.unix.insert(own, (channel.clone(), end.clone()));
        End { channel, end, carrier, name: described.path.clone() }
    }
}

/// The end of a socket over IP.
fn inet(described: &Described, with: Option<SocketAddr>) -> End {
    let protocol = match (described.socket_type, described.protocol) {
        (_, IPPROTO_SCTP) => "sctp",
        (SOCK_DGRAM, _) => "udp",
        _ => "tcp",
    };
    let remote = with.map(|with| with.to_string());
    let mut end = over_ip(protocol, &described.local.to_string(), remote.as_deref());
    // A loopback address means a different host in each network namespace.
    if with.is_some_and(|with| with.ip().is_loopback()) {
        end.channel = format!("{}@{}", end.channel, described.namespace);
    }
    end
}

/// The path of a FIFO or a queue, if the thread still has it open.
fn path(described: &Described) -> String {
    let files = crossway_sys::processes::ProcessFiles::new();
    let held = files.descriptors(described.thread).unwrap_or_default();
    let found = held.into_iter().find(|d| i64::from(d.number) == i64::from(described.descriptor));
    found.map_or(String::new(), |descriptor| descriptor.target)
}
