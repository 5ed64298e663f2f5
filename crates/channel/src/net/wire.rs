//! A channel's control connection: a UNIX socket within a host, a separate TCP or TIPC connection between hosts.
//!
//! Between hosts, packets are numbered and kept until they are acknowledged, so that the switch protocol is not
//! disturbed when the connection dies and another one replaces it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crossway_sys::{Errno, socket};
use serde::{Deserialize, Serialize};

use super::frames::{Reader, Writer, framed};
use crate::message::{self, Message, Outbox, PACKET, Packet};

/// Number of packets after which a separate acknowledgement is sent, if no packet that includes one was sent meanwhile.
const ACKNOWLEDGE: u64 = 8;

/// Returns a number that no other connection of this process has.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A control connection.
pub(crate) enum Wire {
    /// Within a host. It also carries descriptors, and only breaks when its peer dies. The last field is the
    /// connection's number.
    Unix(OwnedFd, Outbox, u64),
    /// Between hosts.
    Net(NetWire),
}

/// A packet between hosts.
#[derive(Serialize, Deserialize)]
struct Numbered<M> {
    /// Number of the packet, counted from 1; 0 if it is only an acknowledgement.
    number: u64,
    /// Number of the last packet received from the peer.
    received: u64,
    message: Option<M>,
}

/// A control connection between hosts, and the state that must survive a broken connection.
pub(crate) struct NetWire {
    ends: Option<(Writer, Reader)>,
    /// A number that changes with each connection.
    connection: u64,
    /// Bytes that wait for room.
    out: Vec<u8>,
    /// Packets that have not been acknowledged, oldest first.
    kept: VecDeque<(u64, serde_json::Value)>,
    sent: u64,
    received: u64,
    /// The last value of `received` that was sent to the peer.
    told: u64,
}

impl Wire {
    pub(crate) fn unix(socket: OwnedFd) -> Wire {
        Wire::Unix(socket, Outbox::default(), number())
    }

    pub(crate) fn net(writer: Writer, reader: Reader) -> Wire {
        Wire::from(Some((writer, reader)))
    }

    /// Returns a wire without a connection. It gets one later, to a process on this host or on another one.
    pub(crate) fn none() -> Wire {
        Wire::from(None)
    }

    fn from(ends: Option<(Writer, Reader)>) -> Wire {
        Wire::Net(NetWire {
            ends,
            connection: number(),
            out: Vec::new(),
            kept: VecDeque::new(),
            sent: 0,
            received: 0,
            told: 0,
        })
    }

    /// Returns the descriptor to watch and the connection's number; `None` while there is no connection.
    pub(crate) fn watched(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match self {
            Wire::Unix(socket, _, number) => Some((socket.as_fd(), *number)),
            Wire::Net(net) => {
                let (_, reader) = net.ends.as_ref()?;
                Some((reader.stream().as_fd(), net.connection))
            }
        }
    }

    /// Returns the UNIX socket; `None` between hosts.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Wire::Unix(socket, ..) => Some(socket),
            Wire::Net(_) => None,
        }
    }

    /// Returns this end's address and the peer's; `None` unless the connection is TCP.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Wire::Net(NetWire { ends: Some((_, reader)), .. }) => reader.stream().addresses(),
            Wire::Net(_) | Wire::Unix(..) => None,
        }
    }

    /// Whether the connection is between hosts, or missing ([`Wire::none`]).
    pub(crate) const fn is_net(&self) -> bool {
        matches!(self, Wire::Net(_))
    }

    /// Whether the connection is missing.
    pub(crate) const fn is_down(&self) -> bool {
        matches!(self, Wire::Net(NetWire { ends: None, .. }))
    }

    /// Sends a packet now or with a later [`Wire::flush`].
    pub(crate) fn send(&mut self, message: &Message, fds: Vec<OwnedFd>) {
        match self {
            Wire::Unix(socket, outbox, _) => outbox.send(socket, message, fds),
            Wire::Net(net) => {
                debug_assert!(fds.is_empty(), "no descriptors pass between hosts");
                let message = serde_json::to_value(message).expect("messages are plain data");
                net.sent += 1;
                net.put(net.sent, Some(&message));
                net.kept.push_back((net.sent, message));
                net.flush();
            }
        }
    }

    /// Sends as much as there is room for.
    pub(crate) fn flush(&mut self) {
        match self {
            Wire::Unix(socket, outbox, _) => outbox.flush(socket),
            Wire::Net(net) => net.flush(),
        }
    }

    /// Whether something waits for room.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            Wire::Unix(_, outbox, _) => !outbox.is_empty(),
            Wire::Net(net) => net.ends.is_some() && !net.out.is_empty(),
        }
    }

    /// Reads the next packet, without waiting.
    pub(crate) fn receive(&mut self) -> Packet {
        match self {
            Wire::Unix(socket, ..) => message::receive(socket, true),
            Wire::Net(net) => net.receive(),
        }
    }

    /// Between hosts: drops the connection and returns how many packets were received. Within a host, does nothing and
    /// returns 0.
    pub(crate) fn disconnect(&mut self) -> u64 {
        let Wire::Net(net) = self else { return 0 };
        net.ends = None;
        net.received
    }

    /// Continues on another connection. `count` is the number of packets that the peer has received.
    ///
    /// # Errors
    /// `count` exceeds the number of packets sent, or the channel is within a host.
    pub(crate) fn connect(
        &mut self,
        writer: Writer,
        reader: Reader,
        count: u64,
    ) -> Result<(), String> {
        let Wire::Net(net) = self else { return Err("the channel is within a host".to_owned()) };
        if count > net.sent {
            return Err(format!(
                "it claims to have received {count} packets, but {} were sent",
                net.sent
            ));
        }
        net.forget(count);
        net.ends = Some((writer, reader));
        net.connection = number();
        net.out.clear();
        for (number, message) in std::mem::take(&mut net.kept) {
            net.put(number, Some(&message));
            net.kept.push_back((number, message));
        }
        net.flush();
        Ok(())
    }

    /// Closes the connection. The peer can still read the packets that were sent.
    pub(crate) fn close(&mut self) {
        match self {
            Wire::Unix(socket, ..) => {
                socket::shutdown_send(&*socket);
                socket::shutdown_recv(&*socket);
            }
            Wire::Net(net) => {
                net.flush();
                net.ends = None;
                net.kept.clear();
            }
        }
    }
}

impl NetWire {
    fn put(&mut self, number: u64, message: Option<&serde_json::Value>) {
        if self.ends.is_some() {
            let packet = Numbered { number, received: self.received, message };
            let text = serde_json::to_vec(&packet).expect("packets are plain data");
            self.out.extend(framed(&text));
            self.told = self.received;
        }
    }

    fn flush(&mut self) {
        let Some((writer, _)) = &mut self.ends else { return };
        while !self.out.is_empty() {
            match writer.write(&self.out) {
                Ok(taken) => drop(self.out.drain(..taken)),
                Err(Errno::AGAIN) => return,
                // The reader gets the same error and reports it.
                Err(_) => return self.out.clear(),
            }
        }
        let _ = writer.flush();
    }

    fn forget(&mut self, count: u64) {
        while self.kept.front().is_some_and(|(number, _)| *number <= count) {
            self.kept.pop_front();
        }
    }

    fn receive(&mut self) -> Packet {
        loop {
            let Some((_, reader)) = &mut self.ends else { return Packet::Nothing };
            match reader.frame(PACKET) {
                Err(why) => return Packet::Nonsense(why),
                Ok(Some(len)) => {
                    let packet = serde_json::from_slice(reader.show(len));
                    reader.consume(len);
                    let packet: Numbered<Message> = match packet {
                        Ok(packet) => packet,
                        Err(error) => return Packet::Nonsense(error.to_string()),
                    };
                    self.forget(packet.received);
                    let Some(message) = packet.message else { continue };
                    if packet.number != self.received + 1 {
                        return Packet::Nonsense(format!(
                            "packet {} came after packet {}",
                            packet.number, self.received
                        ));
                    }
                    self.received += 1;
                    if self.received >= self.told + ACKNOWLEDGE {
                        self.put(0, None);
                        self.flush();
                    }
                    return Packet::Message(message, Vec::new());
                }
                Ok(None) => {}
            }
            match reader.fill() {
                Ok(1..) => {}
                Err(Errno::AGAIN) => return Packet::Nothing,
                Ok(0) | Err(_) => {
                    self.ends = None;
                    return Packet::Broken;
                }
            }
        }
    }
}
