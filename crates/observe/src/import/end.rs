//! The ends of channels, by which the calls of different processes are put together.

use crate::recording::Operation;

/// One end of a channel, as an importer finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Identifies the channel.
    pub channel: String,
    /// Identifies the end within the channel.
    pub end: String,
    /// What carries the channel, in the terms of the map.
    pub carrier: &'static str,
    /// Its path or address; empty: none.
    pub name: String,
}

/// A channel whose first end is the sender's.
pub(crate) fn one_way(carrier: &'static str, id: &str, operation: Operation) -> End {
    let end = if operation == Operation::Send { "writer" } else { "reader" };
    End { channel: format!("{carrier}:{id}"), end: end.to_owned(), carrier, name: String::new() }
}

/// An end of a channel of `tcp`, `udp` or `sctp`, by its addresses with ports. `remote`: `None` if the socket exchanges
/// with anyone, and a call does not say with whom.
pub(crate) fn over_ip(protocol: &'static str, local: &str, remote: Option<&str>) -> End {
    let host = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let on_host = |remote: &str| {
        remote.starts_with("127.")
            || remote.starts_with("[::1]")
            || remote.contains("::ffff:127.")
            || host(local) == host(remote)
    };
    let Some(remote) = remote else {
        let channel = format!("{protocol}:{local}");
        let carrier = if protocol == "udp" { "udp-remote" } else { "other-socket" };
        return End { channel, end: local.to_owned(), carrier, name: local.to_owned() };
    };
    let carrier = match (protocol, on_host(remote)) {
        ("tcp", true) => "tcp-local",
        ("tcp", false) => "tcp-remote",
        ("udp", true) => "udp-local",
        ("udp", false) => "udp-remote",
        _ => "sctp",
    };
    // A server that is bound to any address sends from the one that its client uses; only the port is certain.
    let place = |address: &str| match (protocol, address.rsplit_once(':')) {
        ("udp", Some((_, port))) if on_host(remote) => port.to_owned(),
        _ => address.to_owned(),
    };
    let (a, b) = (place(local), place(remote));
    let channel = format!("{protocol}:{}-{}", a.clone().min(b.clone()), a.clone().max(b));
    let name =
        if local < remote { format!("{local}-{remote}") } else { format!("{remote}-{local}") };
    End { channel, end: a, carrier, name }
}
