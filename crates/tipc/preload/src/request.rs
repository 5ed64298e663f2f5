//! Calls that send a single request to tipcd: creating a socket, binding, listening, ending a connection, and names.

use std::os::fd::IntoRawFd;

use crossway_sys::Errno;
use crossway_sys::socket as unix;
use crossway_tipc_client::SocketKind;
use crossway_tipc_client::address::{Binding, ENCODED_LEN, SocketAddress};
use crossway_tipc_client::protocol::control::{Opened, Reader, Request, SocketReport};
use crossway_tipc_client::protocol::record::PAD_FAMILY;
use crossway_tipc_client::protocol::slot::Phase;

use crate::socket::{Handle, PADDED, SHUT, SHUT_IN_VAIN};
use crate::{control, ffi, traffic};

/// Zeros with which a descriptor is filled.
static FILLING: [u8; 32 << 10] = [0; 32 << 10];

/// Creates a socket. Its descriptor is closed on exec until the socket is registered.
pub(crate) fn open(kind: SocketKind) -> Result<Handle, Errno> {
    let mut answer = control::ask(&Request::Open { kind }, &[])?;
    let opened = Opened::decode(&mut Reader::new(answer.bytes())).ok_or(Errno::PROTO)?;
    let fd = answer.fds.pop().ok_or(Errno::PROTO)?;
    let region = control::own_region().ok_or(Errno::PROTO)?;
    if !control::has_slot(region, opened.slot) {
        return Err(Errno::PROTO);
    }
    let fd = fd.into_raw_fd();
    Ok(Handle { fd, kind, region, slot: opened.slot, token: opened.token })
}

impl Handle {
    /// Binds the socket to the address in a struct sockaddr_tipc. A negative scope withdraws the binding.
    pub(crate) fn bind(&self, address: [u8; ENCODED_LEN]) -> Result<(), Errno> {
        let binds = matches!(Binding::decode(&address), Ok(Some(binding)) if !binding.withdraw);
        if binds && self.is_paired() {
            return Err(Errno::INVAL);
        }
        control::ask(&Request::Bind { token: self.token, address }, &[]).map(drop)
    }

    pub(crate) fn unbind_all(&self) -> Result<(), Errno> {
        control::ask(&Request::UnbindAll { token: self.token }, &[]).map(drop)
    }

    /// Fills the descriptor with padding until it polls as unwritable, as required for a socket that listens or is
    /// connecting. Returns the number of padding bytes written; 0 if it was already filled.
    pub(crate) fn pad(&self) -> Result<u32, Errno> {
        if self.mark(PADDED) {
            return Ok(0);
        }
        let fd = ffi::borrow(self.fd).ok_or(Errno::BADF)?;
        // A UNIX socket polls writable while at most a quarter of its buffer is unread (net/unix/af_unix.c).
        let room = unix::send_buffer_bytes(fd).map_err(|e| Errno::from_raw_os_error(e.errno()))?;
        let bytes = room / 4 + 1;
        let family = PAD_FAMILY.to_ne_bytes();
        let sent = if self.kind == SocketKind::Stream {
            let mut sent = 0;
            while sent < bytes {
                let part = &FILLING[..FILLING.len().min(bytes - sent)];
                sent += unix::send(fd, part, true).inspect_err(|_| self.unmark(PADDED))?;
            }
            sent
        } else {
            ffi::send_filling(self.fd, &family, &FILLING, bytes)
                .inspect_err(|_| self.unmark(PADDED))?
        };
        u32::try_from(sent).map_err(|_| Errno::INVAL)
    }

    pub(crate) fn listen(&self) -> Result<(), Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::OPNOTSUPP);
        }
        if self.state().phase != Phase::Open {
            return Err(Errno::INVAL);
        }
        let pad = self.pad()?;
        let outcome = control::ask(&Request::Listen { token: self.token, pad }, &[]).map(drop);
        if outcome.is_err() && pad > 0 {
            self.unmark(PADDED);
        }
        outcome
    }

    pub(crate) fn shutdown(&self) -> Result<(), Errno> {
        traffic::settle_changes();
        match self.state().phase {
            Phase::Connected | Phase::Disconnected => {}
            _ => {
                self.mark(SHUT_IN_VAIN);
                return Err(Errno::NOTCONN);
            }
        }
        control::ask(&Request::Shutdown { token: self.token }, &[])?;
        self.mark(SHUT);
        Ok(())
    }

    pub(crate) fn report(&self) -> Result<SocketReport, Errno> {
        let answer = control::ask(&Request::Report { token: self.token }, &[])?;
        SocketReport::decode(&mut Reader::new(answer.bytes())).ok_or(Errno::PROTO)
    }

    pub(crate) fn peer_name(&self) -> Result<SocketAddress, Errno> {
        traffic::settle_changes();
        if self.is_paired() || self.state().phase == Phase::Connected {
            Ok(self.peer())
        } else {
            Err(Errno::NOTCONN)
        }
    }
}
