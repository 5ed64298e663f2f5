//! Captures of packets (pcap, pcapng), as tcpdump, Wireshark and tshark write them.
//!
//! A packet with payload becomes a send of one end and, at the same time, a receive of the other one: a capture does
//! not say when programs called. So the order and the causes of requests and answers are right, and think times contain
//! the way through the kernel.

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use super::assembly::{Assembly, Call};
use super::end::over_ip;
use super::{ImportError, Place};
use crate::recording::{Operation, RecordingError};

/// Bytes of the reader's buffer: more than the largest packet of a loopback interface.
const BUFFER: usize = 1 << 20;

/// An interface of a capture.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    per_second: u64,
    offset_s: i64,
}

impl Interface {
    /// A count of the interface's clock as nanoseconds since 1970.
    fn at_ns(&self, count: u64) -> i64 {
        let ns = i128::from(count) * 1_000_000_000 / i128::from(self.per_second.max(1))
            + i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(ns).unwrap_or(i64::MAX)
    }
}

/// Reads a capture to its end into a recording. `each` is called after every packet; it returns false to stop early.
pub(super) fn read_capture(
    capture: impl Read + Send,
    assembly: &mut Assembly,
    mut each: impl FnMut() -> bool,
) -> Result<(), ImportError> {
    let mut reader = create_reader(BUFFER, capture).map_err(damaged)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut flows = Flows::default();
    loop {
        let (length, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => {
                if reader.reader_exhausted() {
                    // It was cut short; the packets before are good.
                    assembly.lost.not_understood += 1;
                    return Ok(());
                }
                reader.refill().map_err(damaged)?;
                continue;
            }
            Err(_) => {
                assembly.lost.not_understood += 1;
                return Ok(());
            }
        };
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let per_second =
                    if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                interfaces.push(Interface { link: header.network, per_second, offset_s: 0 });
            }
            PcapBlockOwned::Legacy(packet) => {
                if let Some(interface) = interfaces.first() {
                    let count =
                        u64::from(packet.ts_sec) * interface.per_second + u64::from(packet.ts_usec);
                    flows.packet(interface, interface.at_ns(count), packet.data, assembly)?;
                }
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
                interfaces.push(Interface {
                    link: description.linktype,
                    per_second: description.ts_resolution().unwrap_or(1_000_000),
                    offset_s: description.ts_offset(),
                });
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                match interfaces.get(packet.if_id as usize) {
                    Some(interface) => {
                        let count = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                        let at_ns = interface.at_ns(count);
                        flows.packet(interface, at_ns, packet.packet_data(), assembly)?;
                    }
                    None => assembly.lost.not_understood += 1,
                }
            }
            PcapBlockOwned::NG(_) => {}
        }
        reader.consume(length);
        assembly.flush_if_due()?;
        if !each() {
            return Ok(());
        }
    }
}

fn damaged(error: PcapError<&[u8]>) -> ImportError {
    ImportError::Capture(format!("{error:?}"))
}

/// What matters of a packet.
struct Packet {
    protocol: &'static str,
    from: SocketAddr,
    to: SocketAddr,
    payload_bytes: u64,
    /// TCP: the sequence number, and whether it begins a connection (SYN) and answers one (SYN and ACK).
    sequence: Option<(u32, bool, bool)>,
}

/// Linux' "cooked" captures of all interfaces, version 2: the length of their header, and the place of the packet's
/// direction in it; 4 is outgoing.
const COOKED2: (i32, usize, usize) = (276, 20, 10);
const COOKED2_PROTOCOL_IP: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];
/// The same of version 1.
const COOKED: (i32, usize, usize) = (113, 16, 1);
const OUTGOING: u8 = 4;

/// Finds the packet in what was captured; `None` if it is neither TCP nor UDP over IP.
fn dissect(link: Linktype, bytes: &[u8]) -> Option<Packet> {
    let mut outgoing = false;
    let sliced = match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok()?,
        Linktype(kind) if kind == COOKED2.0 => {
            COOKED2_PROTOCOL_IP.contains(bytes.get(..2)?.first_chunk()?).then_some(())?;
            outgoing = *bytes.get(COOKED2.2)? == OUTGOING;
            LaxSlicedPacket::from_ip(bytes.get(COOKED2.1..)?).ok()?
        }
        Linktype(kind) if kind == COOKED.0 => {
            outgoing = *bytes.get(COOKED.2)? == OUTGOING;
            LaxSlicedPacket::from_ip(bytes.get(COOKED.1..)?).ok()?
        }
        // The family of addresses comes first.
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(bytes.get(4..)?).ok()?,
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12) => {
            LaxSlicedPacket::from_ip(bytes).ok()?
        }
        _ => return None,
    };
    let (source, destination, ip_payload): (IpAddr, IpAddr, usize) = match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let length = usize::from(header.total_len());
            let payload = match length.checked_sub(header.slice().len()) {
                // Larger than the field can say.
                None | Some(0) => ip.payload().payload.len(),
                Some(payload) => payload,
            };
            (header.source_addr().into(), header.destination_addr().into(), payload)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let captured = ip.payload().payload.len();
            let payload = match usize::from(header.payload_length()) {
                0 => captured,
                said => said.saturating_sub(ip.extensions().slice().len()),
            };
            (header.source_addr().into(), header.destination_addr().into(), payload)
        }
        _ => return None,
    };
    // Captures of all interfaces have each packet of the loopback interface twice.
    if outgoing && (destination.is_loopback() || source == destination) {
        return None;
    }
    let address = |ip: IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
    let packet = match sliced.transport? {
        TransportSlice::Tcp(tcp) => Packet {
            protocol: "tcp",
            from: address(source, tcp.source_port()),
            to: address(destination, tcp.destination_port()),
            payload_bytes: ip_payload.saturating_sub(usize::from(tcp.data_offset()) * 4) as u64,
            sequence: Some((tcp.sequence_number(), tcp.syn(), tcp.syn() && tcp.ack())),
        },
        TransportSlice::Udp(udp) => Packet {
            protocol: "udp",
            from: address(source, udp.source_port()),
            to: address(destination, udp.destination_port()),
            payload_bytes: ip_payload.saturating_sub(8) as u64,
            sequence: None,
        },
        _ => return None,
    };
    Some(packet)
}

/// One end of a connection: its thread, and where it sends and receives.
#[derive(Clone, Copy)]
struct Side {
    thread: u32,
    place: Place,
    /// TCP: the number of the next new byte.
    next: Option<u32>,
}

/// The ends of all connections of a capture.
#[derive(Default)]
struct Flows {
    sides: HashMap<(&'static str, SocketAddr, SocketAddr), Side>,
    /// The first thread of each process, by its name.
    processes: HashMap<String, u32>,
    threads: u32,
}

impl Flows {
    fn packet(
        &mut self,
        interface: &Interface,
        at_ns: i64,
        bytes: &[u8],
        assembly: &mut Assembly,
    ) -> Result<(), RecordingError> {
        let Some(packet) = dissect(interface.link, bytes) else {
            assembly.lost.not_a_channel += 1;
            return Ok(());
        };
        let Packet { protocol, from, to, payload_bytes, sequence } = packet;
        // Who began is the client; if the capture began later, the larger port is taken for it.
        let from_client = match sequence {
            Some((_, true, answers)) => !answers,
            _ => from.port() > to.port(),
        };
        let client = |of_sender: bool| of_sender == from_client;
        let mut sender = self.side(protocol, (from, to), client(true), assembly);
        let receiver = self.side(protocol, (to, from), client(false), assembly);
        if let Some((number, begins, _)) = sequence {
            let length = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
            let end = number.wrapping_add(length).wrapping_add(u32::from(begins));
            // Less than half of the circle behind what was sent already: sent again.
            let again = sender.next.is_some_and(|next| end.wrapping_sub(next) as i32 <= 0);
            if again && !begins {
                return Ok(());
            }
            sender.next = Some(end);
            self.sides.insert((protocol, from, to), sender);
        }
        if payload_bytes == 0 && protocol == "tcp" {
            return Ok(());
        }
        for (side, operation) in [(sender, Operation::Send), (receiver, Operation::Receive)] {
            let call = Call {
                thread: side.thread,
                at_ns,
                took_ns: 0,
                operation,
                size_bytes: payload_bytes,
                cpu: None,
                off_cpu_ns: None,
            };
            assembly.add(call, Some(side.place))?;
        }
        Ok(())
    }

    /// The end of a connection at the address `own`.
    fn side(
        &mut self,
        protocol: &'static str,
        (own, peer): (SocketAddr, SocketAddr),
        is_client: bool,
        assembly: &mut Assembly,
    ) -> Side {
        if let Some(side) = self.sides.get(&(protocol, own, peer)) {
            return *side;
        }
        // Clients have a port for each connection; a capture does not say which of them are one process.
        let name = if is_client {
            format!("clients of {peer} at {}", own.ip())
        } else {
            format!("server at {own}")
        };
        self.threads += 1;
        let thread = self.threads;
        match self.processes.get(&name) {
            Some(first) => assembly.started(*first, thread, true),
            None => {
                assembly.rename(thread, &name);
                self.processes.insert(name, thread);
            }
        }
        let place = assembly.place(&over_ip(protocol, &own.to_string(), Some(&peer.to_string())));
        let side = Side { thread, place, next: None };
        self.sides.insert((protocol, own, peer), side);
        side
    }
}
