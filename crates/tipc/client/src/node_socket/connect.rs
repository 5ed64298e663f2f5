//! How sockets of a `tipcd` listen, accept and connect.

use super::*;

/// Interval at which a waiting connect checks the state of its request. Acceptance and refusal wake it immediately.
const CONNECT_GLANCE: Duration = Duration::from_millis(50);

impl NodeSocket {
    /// Fills the descriptor with padding, so that poll(2) does not report it as writable. Returns the number of bytes
    /// written; 0 if the descriptor was already padded.
    fn pad(&self, memory: &mut Memory) -> Result<u32, Errno> {
        if std::mem::replace(&mut memory.padded, true) {
            return Ok(0);
        }
        // A UNIX socket polls writable while at most a quarter of its buffer is unread (unix(7) is silent; net/unix/af_unix.c).
        let sndbuf = socket::send_buffer_bytes(&self.fd).map_err(errno_of)?;
        let mut filling = vec![0; sndbuf / 4 + 1];
        if self.kind == SocketKind::Stream {
            let mut sent = 0;
            while sent < filling.len() {
                sent += socket::send(&self.fd, &filling[sent..], true)?;
            }
        } else {
            filling[..2].copy_from_slice(&PAD_FAMILY.to_ne_bytes());
            socket::send(&self.fd, &filling, true)?;
        }
        Ok(filling.len() as u32)
    }

    /// Makes the socket accept connections. The node limits the length of the queue of connection requests.
    ///
    /// # Errors
    /// EOPNOTSUPP for connectionless kinds, EINVAL if it already listens or is connected.
    pub fn listen(&self) -> Result<(), Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::OPNOTSUPP);
        }
        let mut memory = self.memory();
        let pad = self.pad(&mut memory)?;
        let outcome = self.ask(&Request::Listen { token: self.opened.token, pad }).map(drop);
        if outcome.is_err() && pad > 0 {
            memory.padded = false;
        }
        outcome
    }

    /// Accepts a connection. Returns its socket and the peer's address.
    ///
    /// # Errors
    /// EINVAL if the socket does not listen, EOPNOTSUPP for connectionless kinds, EAGAIN if no connection arrived in
    /// time, ENETDOWN if the tipcd has ended.
    pub fn accept(&self, patience: Patience) -> Result<(Self, SocketAddress), Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::OPNOTSUPP);
        }
        if self.state().phase != Phase::Listening {
            return Err(Errno::INVAL);
        }
        loop {
            let mut raw = [0; HEADER_LEN + OFFER_LEN];
            let mut fds = Vec::new();
            let len = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
                fdpass::receive(&self.fd, &mut raw, &mut fds, nonblocking)
            })?;
            if len == 0 {
                return Err(Errno::NETDOWN);
            }
            let header = raw.first_chunk().and_then(Header::decode).ok_or(Errno::PROTO)?;
            let opened = Opened::decode(&mut Reader::new(&raw[HEADER_LEN..]));
            let (Some(opened), Some(fd)) = (opened, fds.pop()) else { return Err(Errno::PROTO) };
            if header.kind != RecordKind::Offer || !self.daemon.has_slot(opened.slot) {
                return Err(Errno::PROTO);
            }
            // The peer may have given up in the meantime.
            if socket::send(&fd, &[1], true).is_ok() {
                let new = Self::new(fd, self.kind, opened, self.daemon.clone());
                new.note_service(header.service);
                return Ok((new, header.from));
            }
        }
    }

    /// Connects to a given socket, or to a socket that is bound to a given service. On a connectionless socket, sets
    /// the default destination, or clears it if `to` is `None`.
    ///
    /// # Errors
    /// Like the kernel's connect: EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT (the connection was not accepted within the
    /// connection timeout), EISCONN, EALREADY, EINVAL, EOPNOTSUPP. EINPROGRESS if patience runs out before the answer.
    pub fn connect(&self, to: Option<Address>, patience: Patience) -> Result<(), Errno> {
        if self.group.load(Ordering::Relaxed) != 0 {
            return Err(Errno::INVAL);
        }
        if !self.kind.is_connected_kind() {
            self.memory().default_dest = to;
            return Ok(());
        }
        self.request_connection(to.ok_or(Errno::INVAL)?, &[])?;
        // Without waiting, the answer is never reported, even if it has already arrived.
        if patience == Patience::Now {
            Err(Errno::INPROGRESS)
        } else {
            self.await_connection(patience)
        }
    }

    pub(super) fn request_connection(&self, to: Address, payload: &[u8]) -> Result<(), Errno> {
        let mut memory = self.memory();
        match self.state().phase {
            Phase::Open => {}
            Phase::Listening => return Err(Errno::INVAL),
            Phase::Connecting => return Err(Errno::ALREADY),
            Phase::Connected => return Err(Errno::ISCONN),
            // A failed request reports its cause once.
            Phase::Disconnected => return Err(self.take_error().unwrap_or(Errno::ISCONN)),
        }
        let pad = self.pad(&mut memory)?;
        let token = self.opened.token;
        let request = Request::Connect { token, address: to.encode(), pad, payload };
        match self.ask(&request) {
            Err(Errno::INPROGRESS) => {
                self.note_service(match to {
                    Address::Service { service, instance, .. } => {
                        Some(ServiceRange::single(service, instance))
                    }
                    _ => None,
                });
                Ok(())
            }
            outcome => {
                // The tipcd has discarded the padding.
                memory.padded &= pad == 0;
                outcome.map(drop).and(Err(Errno::PROTO))
            }
        }
    }

    pub(super) fn await_connection(&self, patience: Patience) -> Result<(), Errno> {
        loop {
            let phase = self.state().phase;
            if let Some(outcome) = phase.connected(|| self.take_error(), || self.peer().port != 0) {
                return outcome;
            }
            let glance = Instant::now() + CONNECT_GLANCE;
            let until = match patience {
                Patience::Now => return Err(Errno::INPROGRESS),
                Patience::Until(at) if patience.is_over() && Instant::now() >= at => {
                    return Err(Errno::INPROGRESS);
                }
                Patience::Until(at) => at.min(glance),
                Patience::Forever => glance,
            };
            let ready = wait_ready(&self.fd, Interest::Writable, Some(until))?;
            if ready && self.state().phase == Phase::Connecting {
                // Only a tipcd that has ended wakes the caller without an answer.
                return Err(Errno::NETDOWN);
            }
        }
    }

    /// Returns and clears the errno of a connection request that has failed since the last call, like SO_ERROR.
    pub fn take_error(&self) -> Option<Errno> {
        let word = self.daemon.word(self.opened.slot, slot::ERROR).swap(0, Ordering::AcqRel);
        i32::try_from(word).ok().filter(|errno| *errno != 0).map(Errno::from_raw_os_error)
    }
}

fn errno_of(error: OsError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}
