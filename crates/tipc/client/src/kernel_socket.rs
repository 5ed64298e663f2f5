//! A socket of the kernel's TIPC.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, SocketType};
use crossway_sys::tipc_option::SocketOption;
use crossway_sys::{Errno, tipc_raw};

use crate::Patience;
use crate::address::{Address, Binding, ENCODED_LEN, Scope, ServiceRange, SocketAddress};
use crate::error::Error;
use crate::message::{ErrorCode, Event, Message};
use crate::patiently::patiently;
use crate::protocol::control::SocketKind;

/// The backlog passed to listen; TIPC ignores it.
const BACKLOG: i32 = 128;

/// A socket of AF_TIPC.
#[derive(Debug)]
pub struct KernelSocket {
    fd: OwnedFd,
    kind: SocketKind,
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn decode(raw: &[u8; ENCODED_LEN]) -> SocketAddress {
    match Address::decode(raw) {
        Ok(Address::Socket(socket)) => socket,
        _ => SocketAddress::default(),
    }
}

impl KernelSocket {
    /// Opens a socket.
    ///
    /// # Errors
    /// [`Error::NoKernelTipc`]; [`Error::Os`] if the call fails for another reason.
    pub fn open(kind: SocketKind) -> Result<Self, Error> {
        let unix = match kind {
            SocketKind::Stream => SocketType::Stream,
            SocketKind::Dgram => SocketType::Dgram,
            SocketKind::Rdm => SocketType::Rdm,
            SocketKind::Seqpacket => SocketType::Seqpacket,
        };
        match tipc_raw::open(unix) {
            Ok(fd) => Ok(Self { fd, kind }),
            Err(e) if e.errno() == Errno::AFNOSUPPORT.raw_os_error() => Err(Error::NoKernelTipc),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) const fn kind(&self) -> SocketKind {
        self.kind
    }

    pub(crate) fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        tipc_raw::bind(&self.fd, Some(&Binding { range, scope, withdraw: false }.encode()))
    }

    pub(crate) fn unbind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        tipc_raw::bind(&self.fd, Some(&Binding { range, scope, withdraw: true }.encode()))
    }

    pub(crate) fn bind_raw(&self, address: &[u8; ENCODED_LEN]) -> Result<(), Errno> {
        tipc_raw::bind(&self.fd, Some(address))
    }

    pub(crate) fn unbind_all(&self) -> Result<(), Errno> {
        tipc_raw::bind(&self.fd, None)
    }

    pub(crate) fn listen(&self) -> Result<(), Errno> {
        socket::listen(&self.fd, BACKLOG).map_err(|e| Errno::from_raw_os_error(e.errno()))
    }

    pub(crate) fn accept(&self, patience: Patience) -> Result<(Self, SocketAddress), Errno> {
        patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
            // accept has no flag for not waiting.
            if nonblocking {
                socket::set_waiting(&self.fd, false)?;
            }
            let outcome = tipc_raw::accept(&self.fd);
            if nonblocking {
                socket::set_waiting(&self.fd, true)?;
            }
            let (fd, from) = outcome?;
            Ok((Self { fd, kind: self.kind }, decode(&from)))
        })
    }

    pub(crate) fn connect(&self, to: Option<Address>, patience: Patience) -> Result<(), Errno> {
        let raw = to.map(Address::encode);
        if patience == Patience::Forever || !self.kind.is_connected_kind() {
            return tipc_raw::connect(&self.fd, raw.as_ref());
        }
        socket::set_waiting(&self.fd, false)?;
        let asked = tipc_raw::connect(&self.fd, raw.as_ref());
        socket::set_waiting(&self.fd, true)?;
        if asked != Err(Errno::INPROGRESS) || patience == Patience::Now {
            return asked;
        }
        self.await_connection(patience)
    }

    /// Waits for the answer to a connection request, at most for the connection timeout and while patience lasts.
    fn await_connection(&self, patience: Patience) -> Result<(), Errno> {
        let timeout = Duration::from_millis(
            self.option_by_number(SocketOption::ConnectTimeout.number())?.into(),
        );
        let until = Instant::now() + timeout;
        let until = patience.left().map_or(until, |left| until.min(Instant::now() + left));
        match wait_ready(&self.fd, Interest::Writable, Some(until))? {
            true => socket::take_error(&self.fd)?.map_or(Ok(()), Err),
            false if patience.is_over() => Err(Errno::INPROGRESS),
            false => Err(Errno::TIMEDOUT),
        }
    }

    pub(crate) fn take_error(&self) -> Option<Errno> {
        socket::take_error(&self.fd).ok().flatten()
    }

    #[inline]
    pub(crate) fn send(
        &self,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        let raw = to.map(Address::encode);
        let sent = patiently(&self.fd, Interest::Writable, patience, |nonblocking| {
            tipc_raw::send(&self.fd, payload, raw.as_ref(), nonblocking)
        })?;
        // A connection request with its first message: without waiting, the kernel returns before the answer arrives, which a
        // call with a deadline must not do.
        let asks = to.is_some() && self.kind.is_connected_kind();
        if asks && matches!(patience, Patience::Until(_)) && self.peer_address().is_err() {
            match self.await_connection(patience) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }

    #[inline]
    pub(crate) fn recv(&self, buf: &mut [u8], patience: Patience) -> Result<usize, Errno> {
        patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
            socket::recv(&self.fd, buf, nonblocking)
        })
    }

    pub(crate) fn recv_message(
        &self,
        buf: &mut [u8],
        patience: Patience,
        peek: bool,
    ) -> Result<Message, Errno> {
        let got = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
            tipc_raw::recv_message(&self.fd, buf, nonblocking, peek)
        })?;
        let code = got.error.and_then(|e| ErrorCode::from_number(u8::try_from(e).unwrap_or(255)));
        let connected = self.kind.is_connected_kind();
        let event = match code {
            Some(code) if connected => Event::End(code),
            Some(code) => Event::Returned(code),
            None if got.member_event && got.last => Event::MemberDown,
            None if got.member_event => Event::MemberUp,
            None if got.len == 0 && connected => Event::End(ErrorCode::Shutdown),
            None => Event::Data,
        };
        let member = got.member.and_then(|raw| match Address::decode(&raw) {
            Ok(Address::Service { instance, .. }) => Some(instance),
            Ok(Address::Range(range)) => Some(range.lower),
            _ => None,
        });
        Ok(Message {
            event,
            len: got.len,
            full_len: got.len,
            truncated: got.truncated,
            from: got.from.as_ref().map(decode).unwrap_or_default(),
            service: got.destination.map(|[service, lower, upper]| ServiceRange {
                service,
                lower,
                upper,
            }),
            member,
        })
    }

    pub(crate) fn shutdown(&self) -> Result<(), Errno> {
        tipc_raw::shutdown(&self.fd)
    }

    pub(crate) fn local_address(&self) -> Result<SocketAddress, Errno> {
        tipc_raw::local_address(&self.fd).map(|raw| decode(&raw))
    }

    pub(crate) fn peer_address(&self) -> Result<SocketAddress, Errno> {
        tipc_raw::peer_address(&self.fd).map(|raw| decode(&raw))
    }

    pub(crate) fn set_option_by_number(&self, name: u32, value: u32) -> Result<(), Errno> {
        let bytes = value.to_ne_bytes();
        let value = (!SocketOption::from_number(name).is_some_and(SocketOption::is_order))
            .then_some(&bytes[..]);
        tipc_raw::set_option(&self.fd, name, value)
    }

    pub(crate) fn option_by_number(&self, name: u32) -> Result<u32, Errno> {
        tipc_raw::option(&self.fd, name)
    }

    pub(crate) fn join_by_request(&self, group: [u32; 4]) -> Result<(), Errno> {
        let mut bytes = [0; 16];
        for (place, word) in bytes.chunks_exact_mut(4).zip(group) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        tipc_raw::set_option(&self.fd, SocketOption::GroupJoin.number(), Some(&bytes))
    }

    pub(crate) fn leave(&self) -> Result<(), Errno> {
        tipc_raw::set_option(&self.fd, SocketOption::GroupLeave.number(), None)
    }
}
