//! Destinations that were reachable when tipcd was last asked, for all sockets of the process: one load per message instead of a request
//! while nothing of a destination's epoch has gone.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crossway_sys::Errno;
use crossway_tipc_client::address::ENCODED_LEN;
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::epoch;

use crate::control;
use crate::socket::Handle;

/// Destinations that are remembered; those that share a place push each other out.
const PLACES: usize = 256;

/// What is remembered in a place: the address, the count of its epoch and of which tipcd, and of a group's member its token.
type Known = [u64; 5];

struct Place {
    /// Odd while somebody writes.
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
        // Who is interrupted here, or forked, leaves the place unused.
        if taken {
            fence(Ordering::Release);
            for (place, word) in self.known.iter().zip(known) {
                place.store(*word, Ordering::Relaxed);
            }
            self.turn.store(turn + 2, Ordering::Release);
        }
    }
}

/// Fails with EHOSTUNREACH when a destination is not reachable. `address` is struct sockaddr_tipc, zeros for all of a group.
pub(crate) fn check(socket: &Handle, address: &[u8; ENCODED_LEN], at: usize) -> Result<(), Errno> {
    let (count, tipcd) = control::epoch(at);
    let half =
        |n: usize| address[8 * n..].first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets));
    // A member's destinations are those in its group.
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

/// Where a message to everybody in the group is counted.
pub(crate) fn epoch_of_group(group: u32) -> usize {
    epoch::of_service(group)
}
