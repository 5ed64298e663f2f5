//! Connects sockets.

use std::ffi::c_int;

use crossway_sys::Errno;
use crossway_tipc_client::Address;
use crossway_tipc_client::address::ENCODED_LEN;
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::slot::Phase;

use crate::control::{self, MOST_PARTS};
use crate::ffi::{self, Parts};
use crate::socket::{Handle, PADDED};
use crate::traffic;

/// Interval, in milliseconds, at which a waiting connect checks whether the request has timed out at tipcd. Success and
/// refusal wake it immediately.
const GLANCE_MS: c_int = 50;

/// Whether the kernel would accept this address for sending or connecting.
pub(crate) fn is_sane(address: &[u8; ENCODED_LEN]) -> bool {
    match Address::decode(address) {
        Ok(Address::Range(range)) => range.lower <= range.upper,
        Ok(_) => true,
        Err(_) => false,
    }
}

impl Handle {
    pub(crate) fn connect(&self, address: &[u8; ENCODED_LEN]) -> Result<(), Errno> {
        if self.group() != 0 {
            return Err(Errno::INVAL);
        }
        let connected_kind = self.kind.is_connected_kind();
        if u16::from_ne_bytes([address[0], address[1]]) == libc::AF_UNSPEC as u16 {
            return if connected_kind {
                Err(Errno::INVAL)
            } else {
                self.set_destination(None);
                Ok(())
            };
        }
        if !is_sane(address) {
            return Err(Errno::INVAL);
        }
        if !connected_kind {
            self.set_destination(Some(address));
            return Ok(());
        }
        if matches!(Address::decode(address), Ok(Address::Range(_))) {
            return Err(Errno::INVAL);
        }
        let waits = !ffi::is_nonblocking(self.fd);
        traffic::settle_changes();
        match self.state().phase {
            Phase::Open => {
                // Discard the error of an earlier request.
                self.take_error();
                self.request_connection(address, &Parts::default())?;
                if !waits {
                    return Err(Errno::INPROGRESS);
                }
            }
            Phase::Connecting if !waits => return Err(Errno::ALREADY),
            Phase::Connecting => {}
            Phase::Connected => return Err(Errno::ISCONN),
            Phase::Listening | Phase::Disconnected => return Err(Errno::INVAL),
        }
        self.await_connection()
    }

    /// Requests a connection, with `payload` as the first message. Does not wait for the peer's answer.
    pub(crate) fn request_connection(
        &self,
        address: &[u8; ENCODED_LEN],
        payload: &Parts<'_>,
    ) -> Result<(), Errno> {
        let pad = self.pad()?;
        let request = Request::Connect { token: self.token, address: *address, pad, payload: &[] };
        let outcome = payload.with_slices::<MOST_PARTS, _>(|tail| control::ask(&request, tail));
        match outcome {
            Err(Errno::INPROGRESS) => {
                // The answer, or the request at a listening socket, may still be on its way.
                traffic::note_change();
                self.set_destination(Some(address));
                Ok(())
            }
            outcome => {
                // tipcd has discarded the padding.
                if pad > 0 {
                    self.unmark(PADDED);
                }
                outcome.map(drop).and(Err(Errno::PROTO))
            }
        }
    }

    /// Waits for the outcome of a connection request, which tipcd reports within the connect timeout of the socket.
    /// Fails with EINTR if a signal arrives.
    pub(crate) fn await_connection(&self) -> Result<(), Errno> {
        loop {
            let phase = self.state().phase;
            if let Some(outcome) = phase.connected(|| self.take_error(), || self.peer().port != 0) {
                return outcome;
            }
            let ready = ffi::wait(self.fd, libc::POLLOUT, GLANCE_MS)?;
            if ready && self.state().phase == Phase::Connecting {
                // Only a tipcd that has ended wakes the caller without an answer.
                return Err(Errno::NETDOWN);
            }
        }
    }
}
