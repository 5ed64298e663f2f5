//! Opening the UDP transport, which is used only after datagrams have passed in both directions.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossway_mech::{Offer, OpenError};

use super::{Link, State};
use crate::event::EventKind;
use crate::net::datagrams::{Datagrams, MAX_LOSSY_MESSAGE};
use crate::protocol::Role;
use crate::reactor::{self, Source};
use crate::transport::{Halves, Transport};

/// Time between the follower's greetings.
const AGAIN: Duration = Duration::from_millis(20);
/// How long the ends try to exchange greetings. If none has passed in both directions by then, the switch to
/// UDP fails.
const PROOF: Duration = Duration::from_secs(1);

/// An exchange of greetings by the control thread, over the sockets of halves that are not in use yet.
pub(crate) struct Proof {
    datagrams: Arc<Datagrams>,
    link: Weak<Link>,
    epoch: u32,
    next: Instant,
    until: Instant,
    done: bool,
}

impl Proof {
    fn new(link: &Link, datagrams: &Arc<Datagrams>) -> Proof {
        let now = Instant::now();
        let (link, epoch) = (Weak::clone(&link.me), link.lock().switch.epoch().wrapping_add(1));
        let datagrams = Arc::clone(datagrams);
        Proof { datagrams, link, epoch, next: now, until: now + PROOF, done: false }
    }

    /// Returns the socket to watch.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.datagrams.as_fd()
    }

    /// Reads the greetings that have arrived.
    pub(crate) fn hear(&mut self) {
        // The leader answers every greeting, since its answer may be lost.
        if self.is_awaited() && self.datagrams.hear() && !self.datagrams.leads() {
            self.finish(true);
        }
    }

    /// Sends a greeting if it is time, or gives up. Returns when to call this again; `None` if there is nothing left to
    /// do.
    pub(crate) fn attend(&mut self, now: Instant) -> Option<Instant> {
        if !self.is_awaited() {
            return None;
        }
        if self.datagrams.leads() {
            // The follower reports the outcome on the control connection.
            return Some(now + PROOF);
        }
        if self.until <= now {
            self.finish(false);
            return None;
        }
        if self.next <= now {
            self.datagrams.greet();
            self.next = now + AGAIN;
        }
        Some(self.next)
    }

    /// Whether a switch still depends on the outcome.
    fn is_awaited(&self) -> bool {
        let has_halves = Arc::strong_count(&self.datagrams) > 1;
        has_halves && !self.done && !self.datagrams.is_in_use()
    }

    fn finish(&mut self, worked: bool) {
        self.done = true;
        if let Some(link) = self.link.upgrade() {
            link.proved(self.epoch, worked);
        }
    }
}

impl Drop for Proof {
    /// Counts the exchange as failed if it ends early because its socket cannot be watched.
    fn drop(&mut self) {
        if !self.done && !self.datagrams.leads() {
            self.finish(false);
        }
    }
}

impl Link {
    /// Leader: creates this end of the UDP transport, and the offer for the follower.
    pub(super) fn make_lossy(&self) -> Result<(Halves, Offer), OpenError> {
        let (local, peer) = self.addresses()?;
        let (datagrams, offer) = Datagrams::offer(local, peer)?;
        let halves = self.shape.lossy(Arc::clone(&datagrams))?;
        reactor::add(Source::Proof(Proof::new(self, &datagrams)))?;
        Ok((halves, offer))
    }

    /// Follower: opens its end of the UDP transport. The control thread calls [`Link::proved`] when datagrams have
    /// passed.
    pub(super) fn open_lossy(&self, offer: &Offer) -> Result<Halves, OpenError> {
        let (local, peer) = self.addresses()?;
        let datagrams = Datagrams::open(local, peer, offer)?;
        let halves = self.shape.lossy(Arc::clone(&datagrams))?;
        reactor::add(Source::Proof(Proof::new(self, &datagrams)))?;
        Ok(halves)
    }

    fn addresses(&self) -> Result<(SocketAddr, SocketAddr), OpenError> {
        self.lock().wire.addresses().ok_or_else(|| OpenError::Unsupported {
            mechanism: Transport::Udp.id(),
            why: "the control connection is missing".to_owned(),
        })
    }

    /// Follower: handles the outcome of the exchange of greetings.
    fn proved(&self, epoch: u32, worked: bool) {
        let mut state = self.lock();
        if state.over || state.switch.epoch().wrapping_add(1) != epoch {
            return;
        }
        if !worked {
            let because = format!("no datagram came back within {} s", PROOF.as_secs());
            self.not_opened(&mut state, Transport::Udp, because);
        }
        state.switch.opened(worked);
        self.carry_out(&mut state);
    }

    /// Follower: records that the transport that the leader offered cannot be opened.
    pub(super) fn not_opened(&self, state: &mut State, to: Transport, because: String) {
        state.pending = None;
        let from = state.transport;
        self.log(state, EventKind::Refused { from, to, because });
        self.relax(false);
    }

    /// Returns why messages of this channel cannot travel in datagrams; `None` if they can.
    pub(super) fn forbids_datagrams(&self, state: &State) -> Option<String> {
        if !self.shape.fits_datagrams() {
            return Some(format!(
                "it carries messages of up to {MAX_LOSSY_MESSAGE} bytes, but this channel allows up to {}",
                self.shape.max_message
            ));
        }
        let ours = state.own_transports().contains(&Transport::Udp);
        // If the leader offers UDP, it allows it.
        let theirs = self.role == Role::Follower || state.peer_allows.contains(&Transport::Udp);
        (!ours || !theirs).then(|| "both ends must allow loss".to_owned())
    }
}
