//! Sends messages and stream data.

use std::ffi::c_int;

use crossway_sys::Errno;
use crossway_tipc_client::address::ENCODED_LEN;
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::record::SEND_HEADER_LEN;
use crossway_tipc_client::protocol::slot::Phase;
use crossway_tipc_client::protocol::{MESSAGE_LEN_MAX, epoch};
use crossway_tipc_client::{Address, SocketKind};

use crate::connect::is_sane;
use crate::control;
use crate::ffi::{self, Parts};
use crate::reach;
use crate::socket::Handle;
use crate::traffic;

impl Handle {
    /// Sends a message, or as much of a stream as is accepted. `to` is a struct sockaddr_tipc; `None` if the program
    /// passed no address, `Some(None)` if the address that it passed is too short.
    pub(crate) fn send(
        &self,
        parts: &Parts<'_>,
        to: Option<Option<&[u8; ENCODED_LEN]>>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        // The only flag of send(2) that TIPC supports; it never raises SIGPIPE.
        let flags = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        traffic::settle_changes();
        let outcome = self.send_now(parts, to, flags);
        if outcome.is_ok() {
            traffic::note_sent();
        }
        outcome
    }

    fn send_now(
        &self,
        parts: &Parts<'_>,
        to: Option<Option<&[u8; ENCODED_LEN]>>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let len = parts.len();
        if self.kind != SocketKind::Stream && len > MESSAGE_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        if self.kind.is_connected_kind() {
            return self.send_connected(parts, len, to, flags);
        }
        let to = match to {
            None => None,
            Some(Some(address)) if is_sane(address) => Some(*address),
            Some(_) => return Err(Errno::INVAL),
        };
        let group = self.group();
        if group != 0 {
            let to = to.unwrap_or([0; SEND_HEADER_LEN]);
            reach::check(self, &to, reach::epoch_of_group(group))?;
            return self.put(&to, parts, flags);
        }
        let to = to.or_else(|| self.destination()).ok_or(Errno::DESTADDRREQ)?;
        let address = Address::decode(&to).map_err(|_| Errno::INVAL)?;
        reach::check(self, &to, epoch::of(address))?;
        // An empty message is accepted and discarded.
        if len == 0 {
            return Ok(0);
        }
        self.put(&to, parts, flags).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Errno::NETDOWN,
            errno => errno,
        })
    }

    fn put(
        &self,
        header: &[u8; SEND_HEADER_LEN],
        parts: &Parts<'_>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let sent = ffi::send(self.fd, header, parts, flags)?;
        Ok(sent.saturating_sub(SEND_HEADER_LEN))
    }

    fn send_connected(
        &self,
        parts: &Parts<'_>,
        len: usize,
        to: Option<Option<&[u8; ENCODED_LEN]>>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        match (self.state().phase, to) {
            (Phase::Connected, _) => {}
            (Phase::Disconnected, _) => return Err(self.take_error().unwrap_or(Errno::PIPE)),
            (Phase::Open, Some(to)) => {
                let to = to.filter(|to| is_sane(to)).ok_or(Errno::INVAL)?;
                if len > MESSAGE_LEN_MAX {
                    return Err(Errno::MSGSIZE);
                }
                // A kernel multicasts this one message, if there are receivers; that is not possible here.
                if matches!(Address::decode(to), Ok(Address::Range(_))) {
                    control::ask(&Request::Resolve { token: self.token, address: *to }, &[])?;
                    return Err(Errno::OPNOTSUPP);
                }
                self.request_connection(to, parts)?;
                if flags & libc::MSG_DONTWAIT == 0 && !ffi::is_nonblocking(self.fd) {
                    self.await_connection()?;
                }
                return Ok(len);
            }
            (Phase::Connecting, Some(_)) => return Err(Errno::ISCONN),
            _ => return Err(Errno::NOTCONN),
        }
        if len == 0 {
            return Ok(0);
        }
        let sent = if self.kind == SocketKind::Stream {
            ffi::send(self.fd, &[], parts, flags)
        } else {
            self.put(&[0; SEND_HEADER_LEN], parts, flags)
        };
        sent.map_err(|errno| match errno {
            Errno::CONNRESET | Errno::NOTCONN => Errno::PIPE,
            errno => errno,
        })
    }
}
