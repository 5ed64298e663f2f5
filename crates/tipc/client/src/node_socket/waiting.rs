//! Receive calls that block for one message of a lane: they wait by receiving its bell, and may spin before that.

use crossway_ring::Wait;
use crossway_ring::doorbell;
use crossway_ring::pace::{Budget, Pace};
use crossway_ring::shared_rx::ReceiverWords;

use super::down::{Found, MyTurn};
use super::inlet::{Bell, Down};
use super::*;

/// How a call that waits by receiving a bell was woken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// The call has not waited in that way, or it stopped waiting before a bell was sent for it.
    Not,
    /// The call has received a bell.
    ByBell,
    /// The call has stopped waiting, and a bell may have been sent for it.
    WithoutBell,
}

impl NodeSocket {
    /// Makes blocking receive calls ([`Patience::Forever`]) spin for up to `limit` before they sleep, if messages
    /// arrive through a lane. `limit` is rounded down to whole microseconds. A message that arrives while a call spins
    /// costs neither its sender nor its receiver a system call.
    ///
    /// A spinning call occupies a CPU; on a machine with one CPU it only delays the sender. While it spins, it does not
    /// notice the end of the connection, O_NONBLOCK or SO_RCVTIMEO. Use this only for sockets that one process uses: if
    /// a process is killed while it spins, others that poll are not notified of the message that it was waiting for.
    pub fn set_spin(&self, limit: Duration) {
        let us = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        self.spin_us.store(us, Ordering::Relaxed);
    }

    /// Whether blocking receive calls spin at present: the program has set a limit ([`set_spin`](Self::set_spin)), and
    /// messages arrive through a lane.
    #[inline]
    pub fn is_spin_set(&self) -> bool {
        self.spin_us() > 0 && self.is_down_lane_on()
    }

    #[inline]
    fn spin_us(&self) -> u32 {
        self.spin_us.load(Ordering::Relaxed)
    }

    /// Spins, if the program has set a limit, until a message arrives or the time is over. Returns false if a message
    /// has arrived.
    fn spins_in_vain(&self, word: &AtomicU32) -> bool {
        let wait = Wait::Hybrid { spin_us: self.spin_us() };
        if doorbell::is_spinning(word)
            && let Some(mut budget) = Pace::new(wait).budget(None)
        {
            while doorbell::is_spinning(word) && budget.spin() != Budget::Spent {}
        }
        doorbell::stop_spinning(word)
    }

    /// Whether a thread waits by receiving the lane's next bell. For tests only.
    #[doc(hidden)]
    pub fn awaits_bell(&self) -> bool {
        let word = self.down_lane().and_then(|down| self.inlet(down));
        word.is_ok_and(|inlet| {
            inlet.rx.words().bell().load(Ordering::Relaxed) & doorbell::AWAITED != 0
        })
    }

    /// Returns the result of a turn that found neither a message in the ring nor a bell in the descriptor.
    pub(super) fn find_nothing(
        &self,
        turn: &mut MyTurn<'_>,
        bell: &Bell<'_>,
        room: usize,
        may_await: bool,
    ) -> Found {
        let bells_consumed = turn.bells_consumed();
        if !bell.down.waits_for_one() || !may_await {
            return Found::Nothing { bells_consumed };
        }
        let takes = if self.kind == SocketKind::Stream { room } else { doorbell::TAKES_ALL };
        // As long as this thread counts as a waiter, others poll: the kernel would wake only one of two that receive.
        let is_first = self.waiters().fetch_add(1, Ordering::AcqRel) == 0;
        if is_first && turn.await_bell(takes, self.spin_us() > 0) {
            return Found::Awaits { bells_consumed };
        }
        self.waiters().fetch_sub(1, Ordering::AcqRel);
        Found::Nothing { bells_consumed }
    }

    /// Waits after [`Found::Awaits`] for as long as the descriptor's settings allow. If the wait failed, the second
    /// value is its error: the caller first handles the bell that may have been sent for it ([`Woken::WithoutBell`]),
    /// and only then reports the error.
    pub(super) fn await_bell(&self, down: &Down) -> Result<(Woken, Option<Errno>), Errno> {
        let inlet = self.inlet(down)?;
        let word = inlet.rx.words().bell();
        if !self.spins_in_vain(word) {
            self.waiters().fetch_sub(1, Ordering::AcqRel);
            return Ok((Woken::ByBell, None));
        }
        let outcome = Bell { fd: &self.fd, down, inlet }.receive(false);
        self.waiters().fetch_sub(1, Ordering::AcqRel);
        let error = match outcome {
            Ok(true) => return Ok((Woken::ByBell, None)),
            Ok(false) => None,
            Err(errno) => Some(errno),
        };
        let is_withdrawn = doorbell::withdraw(word);
        Ok((if is_withdrawn { Woken::Not } else { Woken::WithoutBell }, error))
    }
}
