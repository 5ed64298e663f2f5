//! Accepts connections.

use crossway_sys::Errno;
use crossway_sys::socket as unix;
use crossway_tipc_client::address::{Address, ServiceRange, SocketAddress};
use crossway_tipc_client::protocol::control::{Opened, Reader};
use crossway_tipc_client::protocol::record::{HEADER_LEN, Header, OFFER_LEN, RecordKind};
use crossway_tipc_client::protocol::slot::Phase;

use crate::socket::Handle;
use crate::{control, ffi, traffic};

impl Handle {
    /// Accepts the next connection. Returns its socket, whose descriptor is closed on exec, and the peer's address.
    pub(crate) fn accept(&self) -> Result<(Self, SocketAddress), Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::OPNOTSUPP);
        }
        if self.state().phase != Phase::Listening {
            return Err(Errno::INVAL);
        }
        let found_nothing = |outcome: &Result<_, Errno>| matches!(outcome, Err(Errno::AGAIN));
        loop {
            let mut raw = [0; HEADER_LEN + OFFER_LEN];
            let (len, fd) = traffic::once_more(found_nothing, |again| {
                ffi::receive_descriptor(self.fd, &mut raw, !again)
            })?;
            if len == 0 {
                return Err(Errno::NETDOWN);
            }
            // Without room for the descriptor, the kernel has closed it, which refuses the request.
            let fd = fd.ok_or(Errno::MFILE)?;
            let header = raw.first_chunk().and_then(Header::decode);
            let opened = Opened::decode(&mut Reader::new(&raw[HEADER_LEN..]));
            let (Some(header), Some(opened)) = (header, opened) else {
                ffi::close_really(fd);
                return Err(Errno::PROTO);
            };
            if header.kind != RecordKind::Offer || !control::has_slot(self.region, opened.slot) {
                ffi::close_really(fd);
                return Err(Errno::PROTO);
            }
            let Opened { token, slot } = opened;
            let new = Self { fd, kind: self.kind, region: self.region, slot, token };
            let taken = ffi::borrow(fd).is_some_and(|fd| unix::send(fd, &[1], true).is_ok());
            if taken {
                if let Some(ServiceRange { service, lower, .. }) = header.service {
                    new.set_destination(Some(&Address::service(service, lower).encode()));
                }
                traffic::note_change();
                return Ok((new, header.from));
            }
            // The peer has given up in the meantime.
            ffi::close_really(fd);
        }
    }
}
