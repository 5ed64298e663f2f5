//! A TIPC socket of this process, and its state in memory that is shared with tipcd and with other processes.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crossway_sys::Errno;
use crossway_tipc_client::address::{ENCODED_LEN, SocketAddress};
use crossway_tipc_client::protocol::slot::{self, State};
use crossway_tipc_client::{ServiceRange, SocketKind};

use crate::control;

/// Identifies a socket: its descriptor in this process, and its place in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) fd: c_int,
    pub(crate) kind: SocketKind,
    /// Index of the region that contains the socket's slot.
    pub(crate) region: u32,
    pub(crate) slot: u32,
    pub(crate) token: u64,
}

/// Index of the word that contains the socket's marks ([`Handle::marks`]) in its lower half, and its group in its upper
/// half.
const MARKS: usize = slot::OWN;
/// Index of the first of two words that contain a destination: for connectionless kinds, the default destination;
/// otherwise, the service to which the socket was connected.
const DESTINATION: usize = slot::OWN + 1;
/// Index of the word that contains SO_SNDBUF as the program has set it; 0 if it has not.
const SEND_BUFFER: usize = slot::OWN + 3;

/// Mark: this end has shut the connection down.
pub(crate) const SHUT: u64 = 1;
/// Mark: the descriptor was filled with padding, which makes it unwritable, and tipcd keeps it unwritable.
pub(crate) const PADDED: u64 = 2;
/// Mark: the end of the connection has been reported to the program.
pub(crate) const TOLD: u64 = 4;
/// Mark: the socket has a destination.
const DESTINED: u64 = 8;
/// Mark: the socket is one of a pair of a connectionless kind, and its other end is in the slot's peer. tipcd does not know of
/// such pairs, and leaves that word alone.
const PAIRED: u64 = 16;
/// Mark: the program has shut down a socket that was not connected. The call fails, but the socket polls as hung up from then
/// on.
pub(crate) const SHUT_IN_VAIN: u64 = 32;

impl Handle {
    fn word(&self, word: usize) -> &'static AtomicU64 {
        control::region_word(self.region, self.slot as usize * slot::WORDS + word)
    }

    pub(crate) fn state(&self) -> State {
        State::decode(self.word(slot::STATE).load(Ordering::Acquire))
    }

    /// The address of the connection's other end.
    pub(crate) fn peer(&self) -> SocketAddress {
        let word = self.word(slot::PEER).load(Ordering::Acquire);
        SocketAddress { port: (word >> 32) as u32, node: word as u32 }
    }

    /// Returns the errno of a failed connection request and clears it (SO_ERROR); `None` if there is none.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        let word = self.word(slot::ERROR);
        if word.load(Ordering::Acquire) == 0 {
            return None;
        }
        let errno = i32::try_from(word.swap(0, Ordering::AcqRel)).ok().filter(|e| *e != 0);
        errno.map(Errno::from_raw_os_error)
    }

    /// Counts a message that was read from the descriptor.
    pub(crate) fn count_taken(&self) {
        self.word(slot::CONSUMED).fetch_add(1, Ordering::Release);
    }

    pub(crate) fn has_mark(&self, mark: u64) -> bool {
        self.word(MARKS).load(Ordering::Acquire) & mark != 0
    }

    /// Sets a mark and returns whether it was already set.
    pub(crate) fn mark(&self, mark: u64) -> bool {
        self.word(MARKS).fetch_or(mark, Ordering::AcqRel) & mark != 0
    }

    pub(crate) fn unmark(&self, mark: u64) {
        self.word(MARKS).fetch_and(!mark, Ordering::AcqRel);
    }

    /// The service type of the group that the socket is a member of; 0 if there is none.
    pub(crate) fn group(&self) -> u32 {
        (self.word(MARKS).load(Ordering::Acquire) >> 32) as u32
    }

    pub(crate) fn set_group(&self, group: u32) {
        let marks = |marks: u64| Some(marks & 0xffff_ffff | u64::from(group) << 32);
        let _ = self.word(MARKS).fetch_update(Ordering::AcqRel, Ordering::Acquire, marks);
    }

    /// The default destination of messages, as a struct sockaddr_tipc; `None` if it is not set.
    pub(crate) fn destination(&self) -> Option<[u8; ENCODED_LEN]> {
        if !self.has_mark(DESTINED) {
            return None;
        }
        let word = |n| self.word(DESTINATION + n).load(Ordering::Acquire).to_ne_bytes();
        let mut address = [0; ENCODED_LEN];
        address[..8].copy_from_slice(&word(0));
        address[8..].copy_from_slice(&word(1));
        Some(address)
    }

    pub(crate) fn set_destination(&self, address: Option<&[u8; ENCODED_LEN]>) {
        let Some(address) = address else { return self.unmark(DESTINED) };
        for (n, word) in address.chunks_exact(8).enumerate() {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            self.word(DESTINATION + n).store(word, Ordering::Release);
        }
        self.mark(DESTINED);
    }

    /// Makes the socket, which is of a connectionless kind, one of a pair: it sends to the other one by default.
    pub(crate) fn pair_with(&self, peer: SocketAddress) {
        let word = u64::from(peer.port) << 32 | u64::from(peer.node);
        self.word(slot::PEER).store(word, Ordering::Release);
        self.set_destination(Some(&crossway_tipc_client::Address::Socket(peer).encode()));
        self.mark(PAIRED);
    }

    /// Whether the socket is one of a pair of a connectionless kind.
    pub(crate) fn is_paired(&self) -> bool {
        self.has_mark(PAIRED)
    }

    /// The service through which the socket was connected; `None` if there was none.
    pub(crate) fn connected_by(&self) -> Option<ServiceRange> {
        let address = self.destination()?;
        match crossway_tipc_client::Address::decode(&address) {
            Ok(crossway_tipc_client::Address::Service { service, instance, .. }) => {
                Some(ServiceRange::single(service, instance))
            }
            _ => None,
        }
    }

    pub(crate) fn send_buffer(&self) -> &'static AtomicU64 {
        self.word(SEND_BUFFER)
    }
}
