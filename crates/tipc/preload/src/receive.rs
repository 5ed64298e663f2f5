//! Receives messages and stream data.

use std::ffi::c_int;

use crossway_sys::Errno;
use crossway_tipc_client::protocol::record::{HEADER_LEN, Header, RecordKind};
use crossway_tipc_client::protocol::slot::Phase;
use crossway_tipc_client::{Address, ErrorCode, ServiceRange, SocketAddress, SocketKind};

use crate::ffi::{self, Parts};
use crate::socket::{Handle, SHUT, SHUT_IN_VAIN, TOLD};
use crate::traffic;

/// Maximum number of payload bytes of a returned message that a program gets as control data.
pub(crate) const RETURNED_LEN: usize = 1024;

/// What the program requests in addition to the payload.
pub(crate) struct Wanted<'a> {
    /// Flags of recv(2).
    pub(crate) flags: c_int,
    /// Whether the program passed a control buffer. It then gets the cause of a connection's end as control data
    /// instead of an errno.
    pub(crate) cause: bool,
    /// Buffer for the payload of a returned message; `None` if the program passed no control buffer.
    pub(crate) returned: Option<&'a mut [u8; RETURNED_LEN]>,
}

/// The result of a receive call.
#[derive(Default)]
pub(crate) struct Arrival {
    /// Return value of the call.
    pub(crate) len: usize,
    /// Flags of the received message: a combination of MSG_TRUNC, MSG_OOB and MSG_EOR.
    pub(crate) flags: c_int,
    pub(crate) from: Option<SocketAddress>,
    /// For a group message, the group and the sender's instance.
    pub(crate) member: Option<(u32, u32)>,
    /// TIPC's error code, which says why a message was returned or the connection ended, and the number of bytes
    /// returned. `None` for received data.
    pub(crate) error: Option<(u32, u32)>,
    pub(crate) service: Option<ServiceRange>,
}

impl Handle {
    /// Receives a message or stream data, also what was sent before the call and is still on its way through tipcd.
    pub(crate) fn receive(
        &self,
        parts: &Parts<'_>,
        wanted: &mut Wanted<'_>,
    ) -> Result<Arrival, Errno> {
        let found_nothing = |outcome: &Result<_, Errno>| matches!(outcome, Err(Errno::AGAIN));
        traffic::once_more(found_nothing, |again| {
            if again {
                wanted.flags |= libc::MSG_DONTWAIT;
            }
            self.receive_present(parts, wanted)
        })
    }

    fn receive_present(
        &self,
        parts: &Parts<'_>,
        wanted: &mut Wanted<'_>,
    ) -> Result<Arrival, Errno> {
        if parts.len() == 0 {
            return Err(Errno::INVAL);
        }
        if self.kind.is_connected_kind() {
            if let Some(errno) = self.take_error() {
                return Err(errno);
            }
            match self.state().phase {
                // A caller that waits for a connection may also wait for its first message.
                Phase::Connected | Phase::Connecting => {}
                Phase::Listening => {
                    // A kernel waits for ever for a message that cannot come.
                    let waits = self.waits(wanted.flags);
                    return Err(if waits { Errno::INVAL } else { Errno::AGAIN });
                }
                Phase::Open => return Err(Errno::NOTCONN),
                // The kernel's two answers after a local shutdown.
                Phase::Disconnected if self.has_mark(SHUT) => {
                    let waits = self.waits(wanted.flags);
                    return Err(if waits { Errno::NOTCONN } else { Errno::AGAIN });
                }
                Phase::Disconnected => {}
            }
        }
        if self.has_mark(SHUT_IN_VAIN) && self.waits(wanted.flags) {
            wanted.flags |= libc::MSG_DONTWAIT;
            return self.receive_some(parts, wanted).map_err(|errno| match errno {
                Errno::AGAIN => Errno::NOTCONN,
                errno => errno,
            });
        }
        self.receive_some(parts, wanted)
    }

    fn receive_some(&self, parts: &Parts<'_>, wanted: &mut Wanted<'_>) -> Result<Arrival, Errno> {
        if self.kind == SocketKind::Stream {
            self.receive_bytes(parts, wanted)
        } else {
            self.receive_message(parts, wanted)
        }
    }

    fn waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !ffi::is_nonblocking(self.fd)
    }

    fn receive_bytes(&self, parts: &Parts<'_>, wanted: &mut Wanted<'_>) -> Result<Arrival, Errno> {
        let known = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL;
        match ffi::receive(self.fd, &mut [], parts, &mut [], wanted.flags & known) {
            Ok((0, _)) | Err(Errno::CONNRESET) => self.end(wanted),
            Err(errno) => Err(errno),
            Ok((len, _)) => Ok(Arrival {
                len,
                from: Some(self.peer()),
                service: self.connected_by(),
                ..Arrival::default()
            }),
        }
    }

    fn receive_message(
        &self,
        parts: &Parts<'_>,
        wanted: &mut Wanted<'_>,
    ) -> Result<Arrival, Errno> {
        let room = parts.len();
        let peeks = wanted.flags & libc::MSG_PEEK != 0;
        let flags = wanted.flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK) | libc::MSG_TRUNC;
        let mut nowhere = [0; 0];
        let mut raw = [0; HEADER_LEN];
        loop {
            let tail = wanted.returned.as_deref_mut().map_or(&mut nowhere[..], |r| &mut r[..]);
            let full = match ffi::receive(self.fd, &mut raw, parts, tail, flags) {
                Ok((len, _)) if len >= HEADER_LEN => len - HEADER_LEN,
                Ok(_) | Err(Errno::CONNRESET) => return self.end(wanted),
                Err(errno) => return Err(errno),
            };
            if !peeks {
                self.count_taken();
            }
            let header = match Header::decode(&raw) {
                Some(header) if header.kind != RecordKind::Offer => header,
                _ if peeks => return Err(Errno::PROTO),
                // Skip records of a kind added in a later version.
                _ => continue,
            };
            let mut arrival = Arrival {
                from: Some(header.from),
                member: header.member.map(|instance| (self.group(), instance)),
                service: header.service,
                ..Arrival::default()
            };
            match header.kind {
                RecordKind::Member => {
                    arrival.flags = libc::MSG_OOB;
                    if header.gone {
                        arrival.flags |= libc::MSG_EOR;
                    }
                }
                // On a connection this is its end, with data that the peer left unread.
                RecordKind::Returned if self.kind.is_connected_kind() && !wanted.cause => {
                    return Err(Errno::CONNRESET);
                }
                RecordKind::Returned => {
                    if self.kind.is_connected_kind() && !peeks {
                        self.mark(TOLD);
                    }
                    if let Some(returned) = wanted.returned.as_deref_mut() {
                        bring_together(parts, room, full, returned);
                    }
                    let len = u32::try_from(full.min(RETURNED_LEN)).unwrap_or(0);
                    arrival.error = Some((header.error.into(), len));
                }
                RecordKind::Data | RecordKind::Offer => {
                    arrival.len = full.min(room);
                    if full > room {
                        arrival.flags = libc::MSG_TRUNC;
                    }
                    if self.kind.is_connected_kind() {
                        arrival.service = self.connected_by();
                    }
                }
            }
            return Ok(arrival);
        }
    }

    fn was_connected_to_itself(&self) -> bool {
        let to = self.destination().and_then(|to| Address::decode(&to).ok());
        let Some(Address::Socket(to)) = to else { return false };
        self.report().is_ok_and(|report| report.local == to)
    }

    /// The result of a receive call after the last message. The kernel reports the end of a connection once, and later
    /// blocking calls wait for ever. Here, later blocking calls report the end again; only non-blocking calls fail with
    /// EAGAIN.
    #[cold]
    fn end(&self, wanted: &Wanted<'_>) -> Result<Arrival, Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::NETDOWN);
        }
        if let Some(errno) = self.take_error() {
            return Err(errno);
        }
        let shutdown = ErrorCode::Shutdown.number();
        let code = match self.state().end {
            // tipcd ended unexpectedly, and its node with it.
            0 => ErrorCode::NoNode.number(),
            code => code,
        };
        // A kernel's socket that was connected to itself finds its own request, which is no end.
        if !self.waits(wanted.flags) && self.was_connected_to_itself() {
            return Err(Errno::AGAIN);
        }
        if self.has_mark(TOLD) && !self.waits(wanted.flags) {
            return Err(Errno::AGAIN);
        }
        if code != shutdown && !wanted.cause {
            return Err(Errno::CONNRESET);
        }
        if wanted.flags & libc::MSG_PEEK == 0 {
            self.mark(TOLD);
        }
        Ok(Arrival { from: Some(self.peer()), error: Some((code.into(), 0)), ..Arrival::default() })
    }
}

/// Copies the first bytes of a returned message, whose length is `full`, to `out`. Its first `room` bytes were received
/// into the program's parts, and the bytes that did not fit there into the start of `out`.
fn bring_together(parts: &Parts<'_>, room: usize, full: usize, out: &mut [u8; RETURNED_LEN]) {
    let len = full.min(RETURNED_LEN);
    let front = room.min(len);
    out.copy_within(..len - front, front);
    parts.copy_front(&mut out[..front]);
}
