//! The TCP connections that `crossway run` moved to UNIX stream pairs. Each program keeps the TCP socket of its end, through
//! which nothing flows any more; the name of the pair's accepted end says which connection it stands for.

use std::net::SocketAddr;
use std::path::Path;

use crossway_run::name::Connection;
use crossway_run::rendezvous;

use super::{Carrier, Channel};

/// Says of a pair what uses it.
const USER: &str = "crossway run, for TCP";
/// Says of a TCP connection where its bytes go.
const MOVED: &str = "moved by crossway run to UNIX stream";

/// The connection that a UNIX socket with this name stands for; `None` if it is a program's own.
pub(super) fn connection(name: Option<&str>) -> Option<Connection> {
    Connection::of(name?.strip_prefix('@')?.as_bytes()).map(|(connection, _)| connection)
}

/// Whether memory with this name is that by which the ends of a new connection find each other.
pub(super) fn is_table(name: &str) -> bool {
    rendezvous::is_table(Path::new(name))
}

/// A pair and the connection that it stands for.
pub(super) struct Pair {
    pub(super) id: String,
    pub(super) connection: Connection,
}

/// Names each pair like its connection, and says of each moved connection which pair carries its bytes. `ends` are the
/// addresses of the channels over TCP, by their ids.
pub(super) fn mark(channels: &mut [Channel], pairs: &[Pair], ends: &[(String, [SocketAddr; 2])]) {
    for pair in pairs {
        let Some(at) = channels.iter().position(|c| c.id == pair.id) else { continue };
        let carries = &mut channels[at];
        carries.name = pair.connection.accepted.to_string();
        carries.used_by = Some(USER);
        let pids: Vec<u32> = carries.pids().collect();
        let wanted = [pair.connection.accepted, pair.connection.connecting].map(plain);
        let of_pair = |[a, b]: [SocketAddr; 2]| [a, b] == wanted || [b, a] == wanted;
        // Another network namespace can have a connection between the same addresses, but between other processes.
        let moved = channels.iter_mut().find(|channel| {
            channel.carrier == Carrier::TcpLocal
                && channel.pids().any(|pid| pids.contains(&pid))
                && ends.iter().any(|(id, ends)| *id == channel.id && of_pair(ends.map(plain)))
        });
        if let Some(channel) = moved {
            channel.moved_to = Some(pair.id.clone());
            channel.used_by = Some(MOVED);
        }
    }
}

/// An address without an interface's number, which only one of the two sources states.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
