//! Receiving messages and stream bytes.

use super::down::{Before, Found};
use super::waiting::Woken;
use super::*;

/// What was received: a message, or bytes of a stream.
pub(super) struct Came {
    /// The message's header; `None` for stream bytes.
    header: Option<Header>,
    /// Length of the payload in bytes.
    len: usize,
    /// Whether the buffer was too small for the payload. The rest is lost unless the call only peeks.
    truncated: bool,
}

impl Came {
    /// The result of receiving this many bytes of a stream.
    pub(super) const fn bytes(len: usize) -> Self {
        Self { header: None, len, truncated: false }
    }

    /// Decodes a record and copies its payload into `buf`. Returns `None` for a kind of record that this version does
    /// not know.
    #[inline]
    pub(super) fn copy(record: &[u8], buf: &mut [u8]) -> Option<Self> {
        let (raw, payload) = record.split_first_chunk()?;
        // Copy before checking: another process that shares the memory may change it.
        let raw = *raw;
        let len = payload.len().min(buf.len());
        buf[..len].copy_from_slice(&payload[..len]);
        Self::record(&raw, payload.len(), len < payload.len())
    }

    fn record(raw: &[u8; HEADER_LEN], len: usize, truncated: bool) -> Option<Self> {
        let header = Header::decode(raw).filter(|header| header.kind != RecordKind::Offer)?;
        Some(Self { header: Some(header), len, truncated })
    }
}

impl NodeSocket {
    /// Receives a message, or the available data of a stream, and returns the number of bytes in `buf`. Returns 0 at
    /// the end of a connection that the peer shut down, for a message that this socket sent and that was returned, and
    /// for a report that a member joined or left the group (use [`NodeSocket::recv_message`] to distinguish these).
    ///
    /// # Errors
    /// ENOTCONN if the socket was never connected or this end has shut the connection down, ECONNRESET if the peer or
    /// its node was lost, EAGAIN if nothing arrived in time, EINVAL for an empty buffer or a listening socket.
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

    /// Receives a message, and returns its kind, its sender and the service that it was addressed to.
    ///
    /// # Errors
    /// The same as for [`NodeSocket::recv`], but the end of a connection is an event instead of an error.
    #[inline]
    pub fn recv_message(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        self.receive(buf, patience, false)
    }

    /// Like [`NodeSocket::recv_message`], but leaves the message in the queue.
    ///
    /// # Errors
    /// The same as for [`NodeSocket::recv_message`]; EPROTO for a kind of record that this version does not know, which
    /// receiving would skip.
    pub fn peek(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        self.receive(buf, patience, true)
    }

    fn receive(&self, buf: &mut [u8], patience: Patience, peek: bool) -> Result<Message, Errno> {
        if buf.is_empty() {
            return Err(Errno::INVAL);
        }
        if self.kind.is_connected_kind() {
            match self.state().phase {
                // A caller that waits for a connection may also wait for its first message.
                Phase::Connected | Phase::Connecting => {}
                Phase::Listening => return Err(Errno::INVAL),
                Phase::Open => return Err(Errno::NOTCONN),
                Phase::Disconnected if self.shut.load(Ordering::Relaxed) => {
                    // The kernel's two answers after a local shutdown.
                    let waits = patience != Patience::Now;
                    return Err(if waits { Errno::NOTCONN } else { Errno::AGAIN });
                }
                Phase::Disconnected => {}
            }
        }
        if self.daemon.lane_after() == 0 {
            return self.receive_by_descriptor(buf, patience, peek);
        }
        if peek || self.is_down_lane_on() {
            return self.receive_either_way(buf, patience, peek);
        }
        let gathers = self.gathers();
        if gathers || self.is_local() {
            self.want_down_lane(patience);
        }
        let waits = patience == Patience::Forever && !gathers && !self.is_down_lane_on();
        if waits && !self.tries_this_time() {
            // A caller that blocks for each message loses nothing by doing so in the call that takes the message.
            match self.read_descriptor(|| self.read(buf, false, false)) {
                Some(Ok(Some(came))) => return Ok(self.message(&came, buf.len())),
                Some(Err(Errno::CONNRESET)) => return self.end(),
                Some(Err(errno)) => return Err(errno),
                Some(Ok(None)) | None => {}
            }
        }
        self.receive_either_way(buf, patience, peek)
    }

    /// Whether the peer is a program of the same tipcd, so that messages can arrive through a direct lane.
    #[inline]
    fn is_local(&self) -> bool {
        self.daemon.word(self.opened.slot, slot::LOCAL).load(Ordering::Relaxed) != 0
    }

    /// Receives from the descriptor with plain system calls, for a tipcd that offers no lanes.
    fn receive_by_descriptor(
        &self,
        buf: &mut [u8],
        patience: Patience,
        peek: bool,
    ) -> Result<Message, Errno> {
        loop {
            let came = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
                self.read(buf, nonblocking, peek)
            });
            match came {
                Ok(Some(came)) => return Ok(self.message(&came, buf.len())),
                Ok(None) => {}
                Err(Errno::CONNRESET) => return self.end(),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Receives through the descriptor, or through the lane once that is on. Waits by polling, which consumes nothing.
    fn receive_either_way(
        &self,
        buf: &mut [u8],
        patience: Patience,
        peek: bool,
    ) -> Result<Message, Errno> {
        let mut wait = Wait { patience, is_own: patience == Patience::Forever };
        let (mut polled, mut woken, mut error) = (None, Woken::Not, None);
        let mut at_once = true;
        loop {
            if self.is_down_lane_on() {
                let down = self.down_lane()?;
                let is_last = wait.patience.is_over();
                let may_await = wait.is_own && !peek && error.is_none();
                let before = Before { polled, woken, is_last, may_await };
                match self.take_turn(down, buf, peek, before)? {
                    Found::Came(came) => return Ok(self.message(&came, buf.len())),
                    Found::End => return self.end(),
                    Found::Nothing { bells_consumed } => polled = Some(bells_consumed),
                    Found::Awaits { bells_consumed } => {
                        (woken, error) = self.await_bell(down)?;
                        match error {
                            Some(errno) if woken == Woken::Not => return Err(errno),
                            // Unless this call has withdrawn at the end, no bell was seen that is still in the descriptor.
                            _ => polled = (woken == Woken::Not).then_some(bells_consumed),
                        }
                        continue;
                    }
                    Found::Again => continue,
                }
                woken = Woken::Not;
                if let Some(errno) = error {
                    return Err(errno);
                }
            } else {
                match self.read_descriptor(|| self.read(buf, true, peek)) {
                    Some(Ok(Some(came))) => {
                        self.note_found(at_once);
                        return Ok(self.message(&came, buf.len()));
                    }
                    Some(Err(Errno::AGAIN)) => {}
                    Some(Err(Errno::CONNRESET)) => return self.end(),
                    Some(Err(errno)) => return Err(errno),
                    // A record unknown to this version, or the lane has just been switched on.
                    Some(Ok(None)) | None => continue,
                }
            }
            wait.until_readable(self)?;
            at_once = false;
        }
    }

    /// Returns the word that counts the threads waiting for the descriptor to become readable.
    pub(super) fn waiters(&self) -> &AtomicU64 {
        self.daemon.word(self.opened.slot, slot::WAITERS)
    }

    /// Reads the descriptor once. Returns `None` for a kind of record that this version does not know (EPROTO if it
    /// only peeks), and ECONNRESET at the end.
    #[inline]
    fn read(&self, buf: &mut [u8], nonblocking: bool, peek: bool) -> Result<Option<Came>, Errno> {
        if self.kind == SocketKind::Stream {
            self.read_bytes(buf, nonblocking, peek)
        } else {
            self.read_record(buf, nonblocking, peek)
        }
    }

    #[inline]
    pub(super) fn read_record(
        &self,
        buf: &mut [u8],
        nonblocking: bool,
        peek: bool,
    ) -> Result<Option<Came>, Errno> {
        let mut raw = [0; HEADER_LEN];
        let came = records::recv(&self.fd, &mut raw, buf, nonblocking, peek)?;
        if came.len < HEADER_LEN {
            return Err(Errno::CONNRESET);
        }
        if !peek {
            let consumed = self.daemon.word(self.opened.slot, slot::CONSUMED);
            consumed.fetch_add(1, Ordering::Release);
        }
        match Came::record(&raw, came.len - HEADER_LEN, came.truncated) {
            // It stays in the queue and peeking would find it for ever; receiving skips it.
            None if peek => Err(Errno::PROTO),
            came => Ok(came),
        }
    }

    #[inline]
    pub(super) fn read_bytes(
        &self,
        buf: &mut [u8],
        nonblocking: bool,
        peek: bool,
    ) -> Result<Option<Came>, Errno> {
        let len = if peek {
            records::recv(&self.fd, &mut [], buf, nonblocking, true)?.len
        } else {
            socket::recv(&self.fd, buf, nonblocking)?
        };
        if len == 0 { Err(Errno::CONNRESET) } else { Ok(Some(Came::bytes(len))) }
    }

    #[inline]
    fn message(&self, came: &Came, room: usize) -> Message {
        let Some(header) = &came.header else {
            return Message {
                event: Event::Data,
                len: came.len,
                full_len: came.len,
                truncated: false,
                from: self.peer(),
                service: self.service(),
                member: None,
            };
        };
        let event = match header.kind {
            RecordKind::Returned => {
                let code = ErrorCode::from_number(header.error).unwrap_or(ErrorCode::Other(0));
                // On a connection this is its end, with data that the peer left unread.
                if self.kind.is_connected_kind() { Event::End(code) } else { Event::Returned(code) }
            }
            RecordKind::Member if header.gone => Event::MemberDown,
            RecordKind::Member => Event::MemberUp,
            RecordKind::Data | RecordKind::Offer => Event::Data,
        };
        Message {
            event,
            len: came.len.min(room),
            full_len: came.len,
            truncated: came.truncated,
            from: header.from,
            service: header.service,
            member: header.member,
        }
    }

    /// Returns the event that follows the last message: the end of the connection. Fails with ENETDOWN for
    /// connectionless kinds, whose descriptor ends only with the tipcd.
    #[cold]
    fn end(&self) -> Result<Message, Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::NETDOWN);
        }
        let code = match self.state().end {
            // The tipcd ended unexpectedly, and its node with it.
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

/// How long a call waits for a message.
struct Wait {
    patience: Patience,
    /// Whether the caller leaves the limit to the descriptor's settings: O_NONBLOCK and SO_RCVTIMEO apply as for a
    /// plain receive.
    is_own: bool,
}

impl Wait {
    /// Sleeps until the descriptor polls readable or the time is over. Returns EAGAIN if the time was already over, or
    /// if the descriptor's own time limit has passed.
    fn until_readable(&mut self, socket: &NodeSocket) -> Result<(), Errno> {
        if self.is_own {
            let waiters = socket.waiters();
            let is_first = waiters.fetch_add(1, Ordering::AcqRel) == 0;
            let outcome = if is_first {
                // Wait as long as the descriptor's settings say, which the kernel applies itself.
                records::recv(&socket.fd, &mut [], &mut [0], false, true).map(drop)
            } else {
                self.poll(socket)
            };
            waiters.fetch_sub(1, Ordering::AcqRel);
            return match outcome {
                Err(Errno::CONNRESET) => Ok(()),
                outcome => outcome,
            };
        }
        self.poll(socket)
    }

    fn poll(&mut self, socket: &NodeSocket) -> Result<(), Errno> {
        if std::mem::take(&mut self.is_own) {
            self.patience = socket::receive_patience(&socket.fd)?;
        }
        if self.patience.is_over() {
            return Err(Errno::AGAIN);
        }
        let until = match self.patience {
            Patience::Until(at) => Some(at),
            _ => None,
        };
        wait_ready(&socket.fd, Interest::Readable, until).map(drop)
    }
}
