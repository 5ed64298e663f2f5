//! Groups what processes hold by object, and pairs the sockets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crossway_sys::sock_diag::{InetSocket, Transport, UnixKind};

use super::{Carrier, Channel, Party, moved};
use crate::snapshot::{Holding, Object, Snapshot, Socket, user_name};

/// All channels, those within one process included.
pub(super) fn channels(snapshot: &Snapshot) -> Vec<Channel> {
    let mut held: BTreeMap<&Object, Vec<&Holding>> = BTreeMap::new();
    for holding in &snapshot.holdings {
        held.entry(&holding.object).or_default().push(holding);
    }
    let mut found = Vec::new();
    for (object, holders) in &held {
        match object {
            Object::Pipe(inode) => {
                found.push(one_way(snapshot, Carrier::Pipe, format!("pipe:{inode}"), holders));
            }
            Object::Fifo(device, inode) => {
                let id = format!("fifo:{device}:{inode}");
                found.push(one_way(snapshot, Carrier::Fifo, id, holders));
            }
            Object::Queue(device, inode) => {
                let id = format!("queue:{device}:{inode}");
                found.push(one_way(snapshot, Carrier::PosixQueue, id, holders));
            }
            Object::Memory(device, inode) => {
                found.extend(memory(format!("memory:{device}:{inode}"), holders));
            }
            Object::Event(id) => {
                found.extend(shared(Carrier::Eventfd, format!("eventfd:{id}"), holders));
            }
            Object::Uring(pid, fd) => {
                found.extend(shared(Carrier::Uring, format!("io_uring:{pid}:{fd}"), holders));
            }
            Object::Terminal(number) => {
                found.extend(terminal(format!("terminal:{number}"), holders));
            }
            Object::Socket(_) => {}
        }
    }
    let holders: HashMap<u64, BTreeSet<u32>> = held
        .iter()
        .filter_map(|(object, holders)| match object {
            Object::Socket(inode) => Some((*inode, pids(holders, |_| true))),
            _ => None,
        })
        .collect();
    found.extend(sockets(snapshot, &holders));
    found.extend(snapshot.sysv_queues.iter().filter_map(|queue| {
        let party = |pid: u32| match pid {
            0 => Party::Unknown { why: "nobody yet".to_owned() },
            pid if snapshot.processes.contains_key(&pid) => Party::Process { pid },
            pid => Party::Unknown { why: format!("process {pid}, which has ended") },
        };
        let used = queue.last_sender != 0 || queue.last_receiver != 0;
        used.then(|| Channel {
            queued_bytes: Some(queue.queued_bytes),
            one_way: true,
            ..plain(
                Carrier::SysvQueue,
                format!("sysv-queue:{}", queue.id),
                format!("queue {}", queue.id),
                vec![party(queue.last_sender)],
                vec![party(queue.last_receiver)],
            )
        })
    }));
    found
}

/// A channel about which only its ends are known.
fn plain(carrier: Carrier, id: String, name: String, from: Vec<Party>, to: Vec<Party>) -> Channel {
    Channel {
        used_by: user_of(&name),
        id,
        carrier,
        name,
        from,
        to,
        one_way: false,
        forward_bytes: None,
        backward_bytes: None,
        queued_bytes: None,
        mapped_bytes: None,
        moved_to: None,
    }
}

/// Recognises who uses a channel by its name.
fn user_of(name: &str) -> Option<&'static str> {
    let file = name.rsplit('/').next().unwrap_or(name);
    if name.contains("memfd:crossway-channel") || name.contains("/crossway-channel") {
        return Some("Crossway channel");
    }
    if name.contains("memfd:crossway-linx") || file.starts_with("crossway-linx") {
        return Some("LINX");
    }
    match file {
        "tipcd.sock" => Some("tipcd"),
        "system_bus_socket" => Some("D-Bus"),
        "bus" if name.starts_with("/run/user/") => Some("D-Bus"),
        _ if name.contains("memfd:crossway-") => Some("Crossway"),
        _ => None,
    }
}

fn pids(holders: &[&Holding], which: impl Fn(&Holding) -> bool) -> BTreeSet<u32> {
    holders.iter().filter(|h| which(h)).map(|h| h.pid).collect()
}

fn parties(pids: impl IntoIterator<Item = u32>) -> Vec<Party> {
    pids.into_iter().map(|pid| Party::Process { pid }).collect()
}

/// Who may hold what no process that could be read holds.
fn unseen(snapshot: &Snapshot) -> Vec<Party> {
    let hidden = snapshot.processes.values().any(|p| !p.readable && !p.zombie);
    let why = if hidden { "nobody, or another user's process" } else { "nobody" };
    vec![Party::Unknown { why: why.to_owned() }]
}

fn name_of(holders: &[&Holding]) -> String {
    holders.first().map_or(String::new(), |h| h.name.clone())
}

/// A pipe, FIFO or queue: its writers and its readers. A process that can only do one thing is not at the other end
/// just because it forgot to close a descriptor; one that holds both ends is at both.
fn one_way(snapshot: &Snapshot, carrier: Carrier, id: String, holders: &[&Holding]) -> Channel {
    let or_unseen = |pids: BTreeSet<u32>| {
        if pids.is_empty() { unseen(snapshot) } else { parties(pids) }
    };
    let writers = or_unseen(pids(holders, |h| h.writes));
    let readers = or_unseen(pids(holders, |h| h.reads));
    Channel { one_way: true, ..plain(carrier, id, name_of(holders), writers, readers) }
}

/// Memory that at least two processes map, at least one of them to write.
fn memory(id: String, holders: &[&Holding]) -> Option<Channel> {
    if moved::is_table(&name_of(holders)) {
        return None;
    }
    let (writers, all) = (pids(holders, |h| h.writes), pids(holders, |_| true));
    if writers.is_empty() || all.len() < 2 {
        return None;
    }
    let only_readers: BTreeSet<u32> = all.difference(&writers).copied().collect();
    let one_way = !only_readers.is_empty();
    // If all write, the first one stands on one side, so that a pair of processes reads as a pair.
    let (from, to) = if one_way {
        (writers, only_readers)
    } else {
        let mut all = all.into_iter();
        (all.by_ref().take(1).collect(), all.collect())
    };
    Some(Channel {
        one_way,
        mapped_bytes: holders.iter().map(|h| h.mapped_bytes).max(),
        ..plain(Carrier::SharedMemory, id, name_of(holders), parties(from), parties(to))
    })
}

/// An object that processes share after a fork, or that was passed.
fn shared(carrier: Carrier, id: String, holders: &[&Holding]) -> Option<Channel> {
    let mut all = pids(holders, |_| true).into_iter();
    let first: Vec<u32> = all.by_ref().take(1).collect();
    let rest: Vec<u32> = all.collect();
    (!rest.is_empty()).then(|| plain(carrier, id, String::new(), parties(first), parties(rest)))
}

/// A pseudo-terminal: the master, such as a terminal emulator or sshd, and the programs that use the terminal.
fn terminal(id: String, holders: &[&Holding]) -> Option<Channel> {
    let is_master = |h: &Holding| h.name.is_empty();
    let masters = pids(holders, is_master);
    let users = pids(holders, |h| !is_master(h));
    let name = holders.iter().map(|h| &h.name).find(|name| !name.is_empty());
    let name = name.cloned().unwrap_or_default();
    (!masters.is_empty() && !users.is_empty())
        .then(|| plain(Carrier::Terminal, id, name, parties(masters), parties(users)))
}

/// All sockets that processes hold, each pair once.
fn sockets(snapshot: &Snapshot, holders: &HashMap<u64, BTreeSet<u32>>) -> Vec<Channel> {
    let table = &snapshot.sockets;
    let mut inodes: Vec<u64> = holders.keys().copied().collect();
    inodes.sort_unstable();
    let mut found = Vec::new();
    let (mut pairs, mut ends) = (Vec::new(), Vec::new());
    for inode in inodes {
        let own = parties(holders[&inode].iter().copied());
        let peer = table.peer_of(inode);
        // The other end lists the pair if it also knows this one, and comes first.
        let mutual = peer.is_some_and(|peer| table.peer_of(peer) == Some(inode));
        if mutual && peer.is_some_and(|peer| peer < inode && holders.contains_key(&peer)) {
            continue;
        }
        let peer_parties = || match peer.and_then(|peer| holders.get(&peer)) {
            Some(pids) => parties(pids.iter().copied()),
            None => match peer.and_then(|peer| table.get(peer)) {
                Some(Socket::Inet(inet)) => {
                    vec![Party::Unknown { why: format!("a process of {}", user_name(inet.user)) }]
                }
                _ => unseen(snapshot),
            },
        };
        let id = format!("socket:{inode}");
        match table.get(inode) {
            Some(Socket::Unix(unix)) if !unix.listens => {
                let carrier = match unix.kind {
                    UnixKind::Stream => Carrier::UnixStream,
                    UnixKind::Datagram => Carrier::UnixDatagram,
                    UnixKind::Seqpacket => Carrier::UnixSeqpacket,
                };
                // A datagram socket without a peer receives from anyone; it is a listener.
                if peer.is_none() && unix.kind == UnixKind::Datagram {
                    continue;
                }
                let other = peer.and_then(|peer| match table.get(peer) {
                    Some(Socket::Unix(other)) => Some(other),
                    _ => None,
                });
                let name = unix.name.clone().or_else(|| other?.name.clone()).unwrap_or_default();
                let queued = unix.queued_bytes.zip(other.map_or(Some(0), |o| o.queued_bytes));
                let channel = Channel {
                    queued_bytes: queued.map(|(a, b)| u64::from(a) + u64::from(b)),
                    ..plain(carrier, id, name, own, peer_parties())
                };
                let [accepted, connecting] = [Some(unix), other]
                    .map(|end| moved::connection(end.and_then(|end| end.name.as_deref())));
                let server = accepted.is_some()
                    || unix.name.is_some() && other.is_some_and(|o| o.name.is_none());
                if let Some(connection) = accepted.or(connecting) {
                    pairs.push(moved::Pair { id: channel.id.clone(), connection });
                }
                found.push(if server { turned(channel) } else { channel });
            }
            Some(Socket::Inet(inet)) if !inet.listens && inet.remote.port() != 0 => {
                let local = peer.is_some() || inet.remote.ip().is_loopback();
                let to = if local {
                    peer_parties()
                } else {
                    vec![Party::Outside { address: inet.remote.to_string() }]
                };
                let server = table.is_server(inode);
                ends.push((id.clone(), [inet.local, inet.remote]));
                found.push(over_ip(inet, local, server, id, own, to));
            }
            Some(Socket::Vsock(vsock)) if !vsock.listens => {
                let (cid, port) = vsock.remote;
                let to = if peer.is_some() {
                    peer_parties()
                } else {
                    vec![Party::Outside { address: format!("context {cid}, port {port}") }]
                };
                found.push(plain(Carrier::Vsock, id, format!("port {port}"), own, to));
            }
            Some(Socket::Netlink(netlink)) => {
                let name = netlink_name(netlink.protocol);
                found.push(plain(Carrier::Netlink, id, name, own, vec![Party::Kernel]));
            }
            Some(Socket::Other(protocol)) => {
                let (carrier, remedy) = match protocol.as_str() {
                    "TIPC" => (Carrier::Tipc, "`tipc socket list` has the peers"),
                    _ => (Carrier::OtherSocket, "the kernel does not list its peer"),
                };
                let to = vec![Party::Unknown { why: remedy.to_owned() }];
                found.push(plain(carrier, id, protocol.clone(), own, to));
            }
            _ => {}
        }
    }
    moved::mark(&mut found, &pairs, &ends);
    found
}

fn over_ip(
    inet: &InetSocket,
    local: bool,
    server: bool,
    id: String,
    own: Vec<Party>,
    to: Vec<Party>,
) -> Channel {
    let carrier = match (inet.transport, local) {
        (Transport::Tcp, true) => Carrier::TcpLocal,
        (Transport::Tcp, false) => Carrier::TcpRemote,
        (Transport::Udp, true) => Carrier::UdpLocal,
        (Transport::Udp, false) => Carrier::UdpRemote,
        (Transport::Sctp, _) => Carrier::Sctp,
    };
    let name = if server { inet.local } else { inet.remote };
    let queued = u64::from(inet.receive_queue) + u64::from(inet.send_queue);
    let channel = Channel {
        // The kernel counts the end of a connection as a byte, too, but only when it ends.
        forward_bytes: inet.acked_bytes.map(|acked| acked.saturating_sub(1)),
        backward_bytes: inet.received_bytes,
        queued_bytes: Some(queued),
        ..plain(carrier, id, name.to_string(), own, to)
    };
    if server { turned(channel) } else { channel }
}

/// The same channel, seen from its other end.
fn turned(channel: Channel) -> Channel {
    Channel {
        from: channel.to,
        to: channel.from,
        forward_bytes: channel.backward_bytes,
        backward_bytes: channel.forward_bytes,
        ..channel
    }
}

/// The name of a netlink protocol.
fn netlink_name(protocol: u8) -> String {
    let name = match protocol {
        0 => "route",
        4 => "sock_diag",
        9 => "audit",
        12 => "netfilter",
        15 => "uevent",
        16 => "generic",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}
