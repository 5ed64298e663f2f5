//! Receiving.

use super::*;

impl NodeSocket {
    /// Receives: a message, or what is there of a stream. 0 is the end of a connection that the peer shut down, or a message that came
    /// back ([`NodeSocket::recv_message`] tells).
    ///
    /// # Errors
    /// ENOTCONN, ECONNRESET when the peer or its node is gone, EAGAIN when nothing came in time, EINVAL for an empty buffer.
    #[inline]
    pub fn recv(&self, buf: &mut [u8], patience: Patience) -> Result<usize, Errno> {
        let message = self.recv_message(buf, patience)?;
        match message.event {
            Event::Data => Ok(message.len),
            Event::End(ErrorCode::Shutdown) => Ok(0),
            Event::End(_) => Err(Errno::CONNRESET),
            Event::Returned(_) | Event::MemberUp | Event::MemberDown => Ok(0),
        }
    }

    /// Receives, and tells what came, from whom and to which service.
    ///
    /// # Errors
    /// As [`NodeSocket::recv`], but the end of a connection is an event.
    #[inline]
    pub fn recv_message(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        self.receive(buf, patience, false)
    }

    /// As [`NodeSocket::recv_message`]; what was found stays to be received.
    ///
    /// # Errors
    /// As [`NodeSocket::recv_message`].
    pub fn peek(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        self.receive(buf, patience, true)
    }

    fn receive(&self, buf: &mut [u8], patience: Patience, peek: bool) -> Result<Message, Errno> {
        if buf.is_empty() {
            return Err(Errno::INVAL);
        }
        if self.kind.is_connected_kind() {
            match self.state().phase {
                // Who waits for a connection may wait for its first message as well.
                Phase::Connected | Phase::Connecting => {}
                Phase::Listening => return Err(Errno::INVAL),
                Phase::Open => return Err(Errno::NOTCONN),
                Phase::Disconnected if self.shut.load(Ordering::Relaxed) => {
                    // The kernel's two answers after one's own shutdown.
                    let waits = patience != Patience::Now;
                    return Err(if waits { Errno::NOTCONN } else { Errno::AGAIN });
                }
                Phase::Disconnected => {}
            }
            if self.kind == Kind::Stream {
                return self.receive_octets(buf, patience, peek);
            }
        }
        loop {
            let mut raw = [0; HEADER_LEN];
            let came = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
                records::recv(&self.fd, &mut raw, buf, nonblocking, peek)
            });
            let came = match came {
                Ok(came) if came.len >= HEADER_LEN => came,
                Ok(_) | Err(Errno::CONNRESET) => return self.end(),
                Err(errno) => return Err(errno),
            };
            if !peek {
                let consumed = self.daemon.word(self.opened.slot, slot::CONSUMED);
                consumed.fetch_add(1, Ordering::Release);
            }
            // What a later version may add is not for this one.
            let Some(header) = Header::decode(&raw) else { continue };
            let event = match header.kind {
                RecordKind::Data => Event::Data,
                RecordKind::Returned => {
                    let code = ErrorCode::from_number(header.error).unwrap_or(ErrorCode::Other(0));
                    // Of a connection: its end, with what the peer left unread.
                    if self.kind.is_connected_kind() {
                        Event::End(code)
                    } else {
                        Event::Returned(code)
                    }
                }
                RecordKind::Member if header.gone => Event::MemberDown,
                RecordKind::Member => Event::MemberUp,
                RecordKind::Offer => continue,
            };
            let len = came.len - HEADER_LEN;
            return Ok(Message {
                event,
                len: len.min(buf.len()),
                full_len: len,
                truncated: came.truncated,
                from: header.from,
                service: header.service,
                member: header.member,
            });
        }
    }

    fn receive_octets(
        &self,
        buf: &mut [u8],
        patience: Patience,
        peek: bool,
    ) -> Result<Message, Errno> {
        let came = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
            if peek {
                records::recv(&self.fd, &mut [], buf, nonblocking, true).map(|came| came.len)
            } else {
                socket::recv(&self.fd, buf, nonblocking)
            }
        });
        match came {
            Ok(0) | Err(Errno::CONNRESET) => self.end(),
            Err(errno) => Err(errno),
            Ok(len) => Ok(Message {
                event: Event::Data,
                len,
                full_len: len,
                truncated: false,
                from: self.peer(),
                service: self.service(),
                member: None,
            }),
        }
    }

    /// What stands behind the last message.
    #[cold]
    fn end(&self) -> Result<Message, Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::NETDOWN);
        }
        let code = match self.state().end {
            // The tipcd ended without a word, and its node with it.
            0 => ErrorCode::NoNode,
            end => ErrorCode::from_number(end).unwrap_or(ErrorCode::NoNode),
        };
        let from = self.peer();
        Ok(Message {
            event: Event::End(code),
            len: 0,
            full_len: 0,
            truncated: false,
            from,
            service: None,
            member: None,
        })
    }
}
