//! Remembers, for all sockets of the process, which destinations were reachable when tipcd was last queried about them.
//! The epoch of a destination is a counter that tipcd increments when the destination may have become unreachable.
//! While the epoch does not change, this check costs one load per message instead of a request to tipcd.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crossway_sys::Errno;
use crossway_tipc_client::address::ENCODED_LEN;
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::epoch;

use crate::control;
use crate::socket::Handle;

/// Number of entries. Destinations that share an entry replace each other.
const PLACES: usize = 256;

/// Contents of an entry: the address (two words), the value of its epoch, an identifier of the tipcd and, if the socket
/// is a member of a group, the socket's token.
type Known = [u64; 5];

struct Place {
    /// Odd while a thread writes the entry; 0 if the entry was never used.
    turn: AtomicU64,
    known: [AtomicU64; 5],
}

static MEMORY: [Place; PLACES] =
    [const { Place { turn: AtomicU64::new(0), known: [const { AtomicU64::new(0) }; 5] } }; PLACES];

impl Place {
    fn holds(&self, wanted: &Known) -> bool {
        let turn = self.turn.load(Ordering::Acquire);
        let same = self.known.iter().zip(wanted).all(|(k, w)| k.load(Ordering::Relaxed) == *w);
        fence(Ordering::Acquire);
        same && turn != 0 && turn.is_multiple_of(2) && self.turn.load(Ordering::Relaxed) == turn
    }

    fn keep(&self, known: &Known) {
        let turn = self.turn.load(Ordering::Relaxed);
        let taken = turn.is_multiple_of(2)
            && self
                .turn
                .compare_exchange(turn, turn + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // A thread interrupted or forked here leaves the entry unused.
        if taken {
            fence(Ordering::Release);
            for (place, word) in self.known.iter().zip(known) {
                place.store(*word, Ordering::Relaxed);
            }
            self.turn.store(turn + 2, Ordering::Release);
        }
    }
}

/// Fails with EHOSTUNREACH if a destination is not reachable, and like `control::ask` if tipcd has to be queried and
/// fails. `address` is a struct sockaddr_tipc, or zeros for the socket's whole group. `at` is the index of the
/// destination's epoch.
pub(crate) fn check(socket: &Handle, address: &[u8; ENCODED_LEN], at: usize) -> Result<(), Errno> {
    let (count, tipcd) = control::epoch(at);
    let half =
        |n: usize| address[8 * n..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    // A member's destinations are within its group.
    let token = if socket.group() == 0 { 0 } else { socket.token };
    let wanted = [half(0), half(1), count, tipcd, token];
    let mixed = wanted.iter().fold(0_u64, |mixed, word| {
        (mixed.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let place = &MEMORY[(mixed >> 56) as usize % PLACES];
    if place.holds(&wanted) {
        return Ok(());
    }
    control::ask(&Request::Resolve { token: socket.token, address: *address }, &[])?;
    place.keep(&wanted);
    Ok(())
}

/// Index of the epoch for messages to the whole group.
pub(crate) fn epoch_of_group(group: u32) -> usize {
    epoch::of_service(group)
}
