//! Retransmissions by a host's transport protocols.

use std::process::{Command, Stdio};

use crossway_sys::program;
use crossway_sys::protocol_counters::{self, Counters};

use crossway_records::record::{Retransmissions, Transport};

/// Counters of packets sent, and of packets sent again. Both counters only increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    sent: u64,
    again: u64,
}

/// Reads the current counters.
pub(super) fn read(transport: Transport) -> Result<Sent, String> {
    let of = |counters: &Counters, names: &[&str]| {
        names.iter().map(|name| counters.get(*name).copied().unwrap_or(0)).sum()
    };
    match transport {
        Transport::Tcp => {
            let counters = protocol_counters::tcp().map_err(|e| e.to_string())?;
            let (sent, again) = (&["OutSegs"], &["RetransSegs"]);
            Ok(Sent { sent: of(&counters, sent), again: of(&counters, again) })
        }
        Transport::Sctp => {
            let counters = protocol_counters::sctp().map_err(|e| e.to_string())?;
            let again = ["SctpT3Retransmits", "SctpPmtudRetransmits", "SctpFastRetransmits"];
            Ok(Sent { sent: of(&counters, &["SctpOutSCTPPacks"]), again: of(&counters, &again) })
        }
        Transport::Tipc => tipc_links(),
    }
}

/// The increase of the counters since `before`.
pub(super) fn since(transport: Transport, before: Sent) -> Result<Retransmissions, String> {
    let now = read(transport)?;
    Ok(Retransmissions {
        host: String::new(),
        transport,
        // A TIPC link that was removed takes its counters with it.
        sent: now.sent.saturating_sub(before.sent),
        again: now.again.saturating_sub(before.again),
    })
}

/// The sum over all TIPC links of this node, read with iproute2's `tipc`.
fn tipc_links() -> Result<Sent, String> {
    let tool = program::find("tipc").ok_or(
        "reading the statistics of TIPC links needs the tool 'tipc'; sudo apt-get install iproute2",
    )?;
    let told = Command::new(tool)
        .args(["link", "statistics", "show"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run 'tipc link statistics show': {e}"))?;
    if !told.status.success() {
        let why = String::from_utf8_lossy(&told.stderr).into_owned();
        return Err(format!("'tipc link statistics show' failed: {}", why.trim()));
    }
    Ok(parse_links(&String::from_utf8_lossy(&told.stdout)))
}

/// Sums the numbers after `TX packets:` and after `retrans:` over all links in the tool's output.
fn parse_links(text: &str) -> Sent {
    let after = |line: &str, mark: &str| -> u64 {
        let Some((_, rest)) = line.split_once(mark) else { return 0 };
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    Sent {
        sent: text.lines().map(|line| after(line, "TX packets:")).sum(),
        again: text.lines().map(|line| after(line, "retrans:")).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mechanism_s_transport_is_known() {
        for (id, transport) in [
            ("tcp-nodelay", Some(Transport::Tcp)),
            ("sctp", Some(Transport::Sctp)),
            ("mptcp", Some(Transport::Tcp)),
            ("uring-tcp", Some(Transport::Tcp)),
            ("sctp-nodelay", Some(Transport::Sctp)),
            ("tipc-kernel-stream", Some(Transport::Tipc)),
            ("tipc-node-stream", None),
            ("linx-tcp", None),
            ("linx-tipc", None),
            ("smc", None),
            ("udp", None),
            ("pipe", None),
        ] {
            assert_eq!(Transport::of(id), transport, "{id}");
        }
    }

    #[test]
    fn a_mechanism_over_a_node_s_connections_is_not_said_to_have_no_transport() {
        assert!(Transport::why_none("linx-tcp").starts_with("a node carries"));
        assert!(Transport::why_none("tipc-node-stream").starts_with("a node carries"));
        assert!(
            Transport::why_none("pipe")
                .ends_with("no transport protocol that counts retransmissions")
        );
    }

    #[test]
    fn tipc_s_links_are_summed() {
        let text = "Link <broadcast-link>\n  Window:50 packets\n  RX packets:1 fragments:0/0 bundles:0/0\n\
             \x20 TX packets:2 fragments:0/0 bundles:0/0\n  RX naks:0 defs:0 dups:0\n\
             \x20 TX naks:0 acks:0 retrans:0\nLink <1:eth0-2:eth0>\n  TX packets:1040 fragments:8/2 bundles:1/3\n\
             \x20 TX states:33 probes:16 naks:0 acks:1 retrans:7\n";
        assert_eq!(parse_links(text), Sent { sent: 1042, again: 7 });
        assert_eq!(parse_links(""), Sent { sent: 0, again: 0 });
    }
}
