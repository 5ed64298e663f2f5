//! Formats captured frames. Each frame gets the headers that it had on its medium: Ethernet, or Ethernet, IP and UDP.
//! Header fields that the node does not know are filled with placeholders.

use std::net::{IpAddr, SocketAddr};

use crossway_tipc_client::admin::{Station, TracedFrame};

use crate::pcap;

/// EtherType of TIPC.
const TIPC: u16 = 0x88ca;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
/// Placeholder hardware address for media without hardware addresses; locally administered.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Appends a frame as a record of the capture file.
pub(super) fn append(frame: &TracedFrame, out: &mut Vec<u8>) {
    let mut packet = Vec::with_capacity(frame.bytes.len() + 64);
    match (frame.from, frame.to) {
        (Station::Udp(from), Station::Udp(to)) => datagram(from, to, &frame.bytes, &mut packet),
        (from, to) => {
            let mac = |station| match station {
                Station::Ethernet(mac) => mac,
                Station::Udp(_) => NOBODY,
            };
            ethernet(mac(to), mac(from), TIPC, &mut packet);
            packet.extend_from_slice(&frame.bytes);
        }
    }
    pcap::append(frame.at_ns, &packet, packet.len(), out);
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&to);
    out.extend_from_slice(&from);
    out.extend_from_slice(&kind.to_be_bytes());
}

/// Computes the internet checksum over `pieces`. Every piece except the last must have an even length.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let sum: u64 =
        words.map(|w| u64::from(w[0]) << 8 | u64::from(w.get(1).copied().unwrap_or(0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8], out: &mut Vec<u8>) {
    let len = (UDP_HEADER_LEN + payload.len()) as u16;
    let mut udp = [0; UDP_HEADER_LEN];
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    match (from.ip(), to.ip()) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let [high, low] = len.to_be_bytes();
            let pseudo = [0, 0, high, low, 0, 0, 0, UDP];
            let sum = checksum(&[&from.octets(), &to.octets(), &pseudo, &udp, payload]);
            // 0 would mean "no checksum", which IPv6 forbids.
            udp[6..].copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
            ethernet(NOBODY, NOBODY, IPV6, out);
            out.extend_from_slice(&[0x60, 0, 0, 0, high, low, UDP, 64]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            let v4 = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.octets(),
                IpAddr::V6(_) => [0; 4],
            };
            let mut ip = [0; 20];
            (ip[0], ip[8], ip[9]) = (0x45, 64, UDP);
            ip[2..4].copy_from_slice(&(20 + len).to_be_bytes());
            ip[12..16].copy_from_slice(&v4(from));
            ip[16..].copy_from_slice(&v4(to));
            let sum = checksum(&[&ip]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ethernet(NOBODY, NOBODY, IPV4, out);
            out.extend_from_slice(&ip);
        }
    }
    out.extend_from_slice(&udp);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_its_checksum_sums_to_nothing() {
        let (from, to) = ("10.0.0.1:6118".parse().unwrap(), "10.0.0.2:7000".parse().unwrap());
        let mut packet = Vec::new();
        datagram(from, to, b"odd", &mut packet);
        assert_eq!(checksum(&[&packet[14..34]]), 0);
        assert_eq!(packet.len(), 14 + 20 + 8 + 3);
        assert_eq!(packet[34..42], [0x17, 0xe6, 0x1b, 0x58, 0, 11, 0, 0]);
    }

    #[test]
    fn a_datagram_of_ipv6_has_the_checksum_that_it_must_have() {
        let (from, to) = ("[fd00::1]:1".parse().unwrap(), "[fd00::2]:2".parse().unwrap());
        let mut packet = Vec::new();
        datagram(from, to, b"odd", &mut packet);
        let pseudo = [0, 0, 0, 11, 0, 0, 0, UDP];
        assert_eq!(checksum(&[&packet[22..54], &pseudo, &packet[54..]]), 0);
    }
}
