//! Packets on the wire: packets per message, and reverse packets per forward packet.

use crossway_records::record::{IfaceMeters, Packets};

/// Loopback receives every packet that it sends, so its counters do not distinguish the direction of a message.
const LOOPBACK: &str = "lo";

/// Computes packets per message from the traffic of all hosts, or returns why that is impossible. `messages` messages
/// went from the host `sender` to the host `receiver`; the two names are equal if both ends are on one host.
pub(crate) fn packets(
    net: &[IfaceMeters],
    sender: &str,
    receiver: &str,
    messages: u64,
) -> Result<Packets, String> {
    if messages == 0 {
        return Err("no message was sent".to_owned());
    }
    let sent = |host: &str, on_loopback: bool| -> u64 {
        let here = net.iter().filter(|i| i.host == host && (i.name == LOOPBACK) == on_loopback);
        here.map(|i| i.tx_packets).sum()
    };
    let messages = messages as f64;
    if sender == receiver {
        let all = sent(sender, true) as f64;
        if all == 0.0 {
            return Err("no packet crossed the loopback interface".to_owned());
        }
        return Ok(Packets {
            per_msg: all / messages,
            msgs_per_packet: messages / all,
            reverse_per_forward: None,
        });
    }
    let (forward, reverse) = (sent(sender, false) as f64, sent(receiver, false) as f64);
    if forward == 0.0 {
        return Err(format!("host '{sender}' sent no packet"));
    }
    Ok(Packets {
        per_msg: (forward + reverse) / messages,
        msgs_per_packet: messages / forward,
        reverse_per_forward: Some(reverse / forward),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iface(host: &str, name: &str, tx_packets: u64, rx_packets: u64) -> IfaceMeters {
        let (host, name) = (host.to_owned(), name.to_owned());
        IfaceMeters { host, name, tx_packets, rx_packets, ..Default::default() }
    }

    #[test]
    fn two_hosts_have_two_ways() {
        let net = [iface("a", "eth0", 40, 20), iface("b", "eth0", 20, 40), iface("b", "lo", 9, 9)];
        let told = packets(&net, "a", "b", 160).expect("packets");
        assert_eq!((told.per_msg, told.msgs_per_packet), (0.375, 4.0));
        assert_eq!(told.reverse_per_forward, Some(0.5));
        assert!(packets(&net[1..], "a", "b", 160).is_err());
        assert!(packets(&net, "a", "b", 0).is_err());
    }

    #[test]
    fn loopback_has_one_and_a_pipe_none() {
        let told = packets(&[iface("local", "lo", 30, 30)], "local", "local", 10).expect("packets");
        assert_eq!((told.per_msg, told.reverse_per_forward), (3.0, None));
        let other = [iface("local", "eth0", 5, 5)];
        assert!(packets(&other, "local", "local", 10).is_err(), "a stranger's traffic");
    }
}
