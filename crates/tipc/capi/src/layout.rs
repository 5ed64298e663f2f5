//! The types of the C interface, and the conversion of results to integers.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use crossway_tipc_client::address::SocketAddress;
use crossway_tipc_client::{Errno, ErrorCode, Event, Message, Patience, ServiceRange, Socket};

/// The socket behind the opaque `ctipc_socket` of the header.
pub struct CtipcSocket(pub(crate) Socket);

/// Has the layout of struct sockaddr_tipc.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CtipcAddress {
    pub(crate) family: u16,
    pub(crate) form: u8,
    pub(crate) scope: i8,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
}

/// What a receive call reports in addition to the payload. Has the layout of struct ctipc_message.
#[repr(C)]
pub struct CtipcMessage {
    pub(crate) from: CtipcAddress,
    pub(crate) event: u32,
    pub(crate) error: u32,
    pub(crate) truncated: u32,
    pub(crate) has_service: u32,
    pub(crate) service: u32,
    pub(crate) lower: u32,
    pub(crate) upper: u32,
    pub(crate) has_member: u32,
    pub(crate) member: u32,
}

impl CtipcAddress {
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut raw = [0; 16];
        raw[..2].copy_from_slice(&self.family.to_ne_bytes());
        (raw[2], raw[3]) = (self.form, self.scope.cast_unsigned());
        for (place, word) in raw[4..].chunks_exact_mut(4).zip([self.a, self.b, self.c]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        raw
    }

    pub(crate) fn of(socket: SocketAddress) -> Self {
        Self { family: 30, form: 3, scope: 0, a: socket.port, b: socket.node, c: 0 }
    }
}

impl CtipcMessage {
    pub(crate) fn of(got: &Message) -> Self {
        let (event, error) = match got.event {
            Event::Data => (0, None),
            Event::Returned(code) => (1, Some(code)),
            Event::End(code) => (2, Some(code)),
            Event::MemberUp => (3, None),
            Event::MemberDown => (4, None),
        };
        let service = got.service.unwrap_or(ServiceRange { service: 0, lower: 0, upper: 0 });
        Self {
            from: CtipcAddress::of(got.from),
            event,
            error: error.map_or(0, ErrorCode::number).into(),
            truncated: got.truncated.into(),
            has_service: got.service.is_some().into(),
            service: service.service,
            lower: service.lower,
            upper: service.upper,
            has_member: got.member.is_some().into(),
            member: got.member.unwrap_or(0),
        }
    }
}

pub(crate) fn negative(errno: Errno) -> c_int {
    -errno.raw_os_error()
}

pub(crate) fn done(outcome: Result<(), Errno>) -> c_int {
    outcome.map_or_else(negative, |()| 0)
}

pub(crate) fn count(outcome: Result<usize, Errno>) -> i64 {
    match outcome {
        Ok(len) => i64::try_from(len).unwrap_or(i64::MAX),
        Err(errno) => negative(errno).into(),
    }
}

pub(crate) fn patience(timeout_ms: i64) -> Patience {
    match u64::try_from(timeout_ms) {
        Err(_) => Patience::Forever,
        Ok(0) => Patience::Now,
        Ok(ms) => Instant::now()
            .checked_add(Duration::from_millis(ms))
            .map_or(Patience::Forever, Patience::Until),
    }
}
