//! Protocol counters of the calling thread's network namespace: `/proc/net/snmp` and `/proc/net/sctp/snmp`.
//!
//! Names are the kernel's (proc(5), RFC 1213, RFC 3873).

use std::collections::BTreeMap;
use std::fs;

use crate::OsError;

/// Counters by the names that the kernel gives them, all since boot.
pub type Counters = BTreeMap<String, u64>;

/// TCP's counters: `OutSegs`, `RetransSegs` ... The kernel leaves retransmitted segments out of `OutSegs`.
///
/// # Errors
/// The file cannot be read or has no counters of TCP.
pub fn tcp() -> Result<Counters, OsError> {
    const PATH: &str = "/proc/thread-self/net/snmp";
    let text = fs::read_to_string(PATH).map_err(|e| OsError::new("read", PATH, e))?;
    parse_snmp(&text, "Tcp").ok_or_else(|| {
        OsError::new("read", PATH, std::io::Error::other("no counters of TCP in it"))
    })
}

/// SCTP's counters: `SctpOutSCTPPacks`, `SctpT3Retransmits`, `SctpFastRetransmits` ...
///
/// # Errors
/// The module is not loaded.
pub fn sctp() -> Result<Counters, OsError> {
    const PATH: &str = "/proc/thread-self/net/sctp/snmp";
    let text = fs::read_to_string(PATH).map_err(|e| OsError::new("read", PATH, e))?;
    Ok(parse_list(&text))
}

/// Parses `PROTOCOL: NAME ...` and the line of values below it. Negative values (no limit) are left out.
pub fn parse_snmp(text: &str, protocol: &str) -> Option<Counters> {
    let mut lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name == protocol).then_some(rest)
    });
    let (names, values) = (lines.next()?, lines.next()?);
    let pairs = names.split_whitespace().zip(values.split_whitespace());
    Some(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
}

/// Parses lines of a name and a value.
pub fn parse_list(text: &str) -> Counters {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: RtoMin MaxConn OutSegs RetransSegs\nTcp: 200 -1 70 3\n";
        let counters = parse_snmp(text, "Tcp").expect("TCP is there");
        assert_eq!(counters.len(), 3);
        assert_eq!((counters["OutSegs"], counters["RetransSegs"]), (70, 3));
        assert_eq!(parse_snmp(text, "Udp"), None);
        assert_eq!(parse_snmp("Tcp: A\n", "Tcp"), None);
        let counters =
            parse_list("SctpOutSCTPPacks                \t12\nSctpT3Retransmits\t1\n\nx");
        assert_eq!((counters["SctpOutSCTPPacks"], counters["SctpT3Retransmits"]), (12, 1));
    }

    #[test]
    fn this_machine_counts_tcp() {
        let counters = tcp().expect("a network");
        assert!(counters.contains_key("OutSegs") && counters.contains_key("RetransSegs"));
    }
}
