//! Sending messages and stream bytes.

use super::*;

/// Maximum number of destinations per socket that are remembered as reachable.
const KNOWN_MAX: usize = 8;

/// Encodes a message's destination. Zeros stand for the whole group, or for the other end of a connection.
fn encoded(to: Option<Address>) -> [u8; SEND_HEADER_LEN] {
    to.map_or([0; SEND_HEADER_LEN], Address::encode)
}

impl NodeSocket {
    /// Checks whether a destination is reachable: asks the tipcd the first time, and again when the destination's epoch
    /// has changed. For a member of a group, the destination is within the group, and `None` means the whole group.
    fn check_reachable(&self, to: Option<Address>, epoch: usize) -> Result<(), Errno> {
        let now = self.daemon.epoch(epoch);
        let mut memory = self.memory();
        if memory.known.iter().any(|k| k.address == to && k.epoch == now) {
            return Ok(());
        }
        self.ask(&Request::Resolve { token: self.opened.token, address: encoded(to) })?;
        let known = Known { address: to, epoch: now };
        if let Some(old) = memory.known.iter_mut().find(|k| k.address == to) {
            *old = known;
        } else if memory.known.len() < KNOWN_MAX {
            memory.known.push(known);
        } else {
            let place = memory.next % KNOWN_MAX;
            memory.known[place] = known;
            memory.next = place + 1;
        }
        Ok(())
    }

    /// Sends a message, or as much of a stream as is accepted while patience lasts. Returns the number of bytes
    /// accepted. On a new socket of a connected kind, an address makes this a connection request with the payload as
    /// its first message; on a connected socket, the address is ignored.
    ///
    /// # Errors
    /// The errno that the kernel's sendto would return. EAGAIN if there was no room in time.
    #[inline]
    pub fn send(
        &self,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        if self.kind.is_connected_kind() {
            return self.send_connected(payload, to, patience);
        }
        let group = self.group.load(Ordering::Relaxed);
        if group != 0 {
            return self.send_to_group(group, payload, to, patience);
        }
        let to = match to {
            Some(to) => to,
            None => self.memory().default_dest.ok_or(Errno::DESTADDRREQ)?,
        };
        if payload.len() > MESSAGE_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        self.check_reachable(Some(to), epoch::of(to))?;
        // An empty message is accepted and discarded.
        if payload.is_empty() {
            return Ok(0);
        }
        self.put(&to.encode(), payload, patience).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Errno::NETDOWN,
            errno => errno,
        })
    }

    /// Sends within the group: to one destination, or to all members if there is no address.
    fn send_to_group(
        &self,
        group: u32,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        if payload.len() > MESSAGE_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        self.check_reachable(to, epoch::of_service(group))?;
        self.put(&encoded(to), payload, patience)
    }

    fn send_connected(
        &self,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        let stream = self.kind == SocketKind::Stream;
        if !stream && payload.len() > MESSAGE_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        match (self.state().phase, to) {
            (Phase::Connected, _) => {}
            (Phase::Disconnected, _) => return Err(Errno::PIPE),
            (Phase::Open, Some(to)) => {
                let first = &payload[..payload.len().min(MESSAGE_LEN_MAX)];
                self.request_connection(to, first)?;
                if patience == Patience::Now {
                    return Ok(first.len());
                }
                return match self.await_connection(patience) {
                    Ok(()) | Err(Errno::INPROGRESS) => Ok(first.len()),
                    Err(errno) => Err(errno),
                };
            }
            (Phase::Connecting, Some(_)) => return Err(Errno::ISCONN),
            _ => return Err(Errno::NOTCONN),
        }
        if payload.is_empty() {
            return Ok(0);
        }
        let sent = if stream {
            self.put_bytes(payload, patience)
        } else {
            self.put(&[0; SEND_HEADER_LEN], payload, patience)
        };
        sent.map_err(|errno| match errno {
            Errno::CONNRESET | Errno::NOTCONN => Errno::PIPE,
            errno => errno,
        })
    }
}
