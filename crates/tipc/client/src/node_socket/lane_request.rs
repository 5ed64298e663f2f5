//! How a socket gets its lanes: its messages are counted until the socket is busy, the lanes are requested without
//! waiting, and the answer is fetched later.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crossway_sys::eventfd::EventFd;

use super::inlet::Down;
use super::lanes::Lanes;
use super::*;
use crate::daemon::{Answer, Claim};
use crate::protocol::control::Granted;
use crate::protocol::lane::LaneMemory;

/// Counts a socket's messages; when there have been enough, its program requests lanes.
#[derive(Debug, Default)]
pub(super) struct Usage {
    moved: AtomicU32,
    /// Whether a request for lanes is pending.
    asked: AtomicBool,
    lanes: OnceLock<Box<Lanes>>,
}

/// The count of a socket that makes no further request, because it has the lanes or will not get them.
const NEVER: u32 = u32::MAX;

/// Number of messages between two checks whether the answer to the request for lanes has arrived.
const FETCH_EVERY: u32 = 8;

/// Number of receive calls after which a request to receive through the lane is repeated if it was refused for the
/// moment. The number doubles with each refusal.
const RETRY_AFTER: u32 = 16;
const RETRY_MAX: u32 = 1 << 16;

/// How long a receiver that may block waits for the answer to its request to receive through the lane. During that time
/// it does not read the descriptor, so that the switch to the lane can succeed.
const LOOK_UP: Duration = Duration::from_millis(5);

/// Decides when a receiver requests to receive through its lane.
#[derive(Debug)]
pub(super) struct Beginning {
    /// Number of calls before the request is made, or [`UNDER_WAY`], or [`NEVER`].
    asks_in: AtomicU32,
    /// Number of calls between a refused request and the next one.
    pause: AtomicU32,
}

impl Default for Beginning {
    fn default() -> Self {
        Self { asks_in: 0.into(), pause: RETRY_AFTER.into() }
    }
}

/// Value of [`Beginning::asks_in`] while the request is pending.
const UNDER_WAY: u32 = NEVER - 1;

impl Down {
    fn note(&self, outcome: Result<Answer, Errno>) {
        self.beginning.note(outcome.and_then(|answer| self.begin(answer)));
    }
}

impl Beginning {
    fn note(&self, outcome: Result<(), Errno>) {
        let next = match outcome {
            // Another thread was reading at that moment, or the descriptor was full.
            Err(Errno::AGAIN) => {
                let pause = self.pause.load(Ordering::Relaxed);
                self.pause.store((2 * pause).min(RETRY_MAX), Ordering::Relaxed);
                pause
            }
            _ => NEVER,
        };
        self.asks_in.store(next, Ordering::Relaxed);
    }
}

/// Opens the lanes that an answer grants.
fn lanes_of(mut answer: Answer, usage: &Usage) -> Result<&Lanes, Errno> {
    let granted = Granted::decode(&mut Reader::new(&answer.bytes)).ok_or(Errno::PROTO)?;
    let (Some(bell), Some(file)) = (answer.fds.pop(), answer.fds.pop()) else {
        return Err(Errno::PROTO);
    };
    let memory = LaneMemory::open(&file, granted.ring_bytes as usize).map_err(|_| Errno::PROTO)?;
    let mut file = Some(file);
    let lanes = usage.lanes.get_or_init(|| {
        Box::new(Lanes::new(memory, file.take(), EventFd::from_fd(bell), granted.sends))
    });
    if file.take().is_some()
        && let Some(down) = &lanes.down
    {
        // Two threads made the request. Closing one of two descriptors of the same file has dropped this process's lock.
        down.claim_again()?;
    }
    Ok(lanes)
}

impl NodeSocket {
    /// Returns the socket's lanes, if this process or its parent has mapped them.
    #[inline]
    pub(super) fn lanes(&self) -> Option<&Lanes> {
        self.usage.lanes.get().map(Box::as_ref)
    }

    /// Like [`NodeSocket::lanes`], but requests them once the socket has become busy. Each call counts a message.
    #[inline]
    pub(super) fn want_lanes(&self) -> Option<&Lanes> {
        match self.lanes() {
            None if self.usage.moved.load(Ordering::Relaxed) != NEVER => self.count_message(),
            lanes => lanes,
        }
    }

    /// Counts a message, and requests lanes when there have been enough. Does not wait for the answer, because a
    /// non-blocking sender must not block here either.
    fn count_message(&self) -> Option<&Lanes> {
        let usage = &self.usage;
        let after = self.daemon.lane_after();
        let moved = usage.moved.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if after == 0 {
            usage.moved.store(NEVER, Ordering::Relaxed);
        } else if usage.asked.load(Ordering::Relaxed) {
            if moved.is_multiple_of(after.min(FETCH_EVERY)) {
                return self.fetch_lanes();
            }
        } else if moved >= after {
            let request = Request::Lanes { token: self.opened.token };
            // Only one thread makes the request; the others continue without lanes.
            if !usage.asked.swap(true, Ordering::AcqRel) {
                match self.daemon.ask_later(&request, Claim::Lanes(self.opened.token)) {
                    Ok(true) => {}
                    Ok(false) => usage.asked.store(false, Ordering::Release),
                    Err(_) => usage.moved.store(NEVER, Ordering::Relaxed),
                }
            }
        }
        None
    }

    #[cold]
    fn fetch_lanes(&self) -> Option<&Lanes> {
        let answer = self.daemon.fetch(Claim::Lanes(self.opened.token), Instant::now())?;
        let (lanes, moved) = match answer.and_then(|answer| lanes_of(answer, &self.usage)) {
            Ok(lanes) => (Some(lanes), NEVER),
            // It may be connected later.
            Err(Errno::AGAIN) => (None, 0),
            Err(_) => (None, NEVER),
        };
        self.usage.moved.store(moved, Ordering::Relaxed);
        self.usage.asked.store(false, Ordering::Release);
        lanes
    }

    /// Requests to receive through a lane once the socket is busy enough. Each call counts a message.
    #[inline]
    pub(super) fn want_down_lane(&self, patience: Patience) {
        let Some(down) = self.want_lanes().and_then(|lanes| lanes.down.as_ref()) else { return };
        match down.beginning.asks_in.load(Ordering::Relaxed) {
            NEVER => {}
            0 => self.ask_for_down_lane(down, patience),
            UNDER_WAY => self.look_up_down_lane(down, Instant::now()),
            calls => down.beginning.asks_in.store(calls - 1, Ordering::Relaxed),
        }
    }

    const fn of_down_lane(&self) -> Claim {
        Claim::LaneDown(self.opened.token)
    }

    #[cold]
    fn ask_for_down_lane(&self, down: &Down, patience: Patience) {
        let request = Request::LaneDown { token: self.opened.token };
        match self.daemon.ask_later(&request, self.of_down_lane()) {
            Ok(true) => {
                down.beginning.asks_in.store(UNDER_WAY, Ordering::Relaxed);
                // A caller that does not want to wait must not wait here either.
                let limit = patience.left().map_or(LOOK_UP, |left| left.min(LOOK_UP));
                self.look_up_down_lane(down, Instant::now() + limit);
            }
            // Another thread has a request pending.
            Ok(false) => {}
            // A child process, whose request uses a connection that it may have to establish first.
            Err(_) if patience == Patience::Forever => down.note(self.ask(&request)),
            Err(_) => {}
        }
    }

    #[cold]
    fn look_up_down_lane(&self, down: &Down, until: Instant) {
        if let Some(answer) = self.daemon.fetch(self.of_down_lane(), until) {
            down.note(answer);
        }
    }

    /// Gets the lanes that another process requested.
    #[cold]
    pub(super) fn join_lanes(&self) -> Result<&Lanes, Errno> {
        let answer = self.ask(&Request::Lanes { token: self.opened.token })?;
        lanes_of(answer, &self.usage)
    }
}

impl Drop for NodeSocket {
    fn drop(&mut self) {
        let is_switching = self.lanes().is_some_and(|lanes| {
            let is_under_way =
                |down: &Down| down.beginning.asks_in.load(Ordering::Relaxed) == UNDER_WAY;
            lanes.outlet.is_asked() || lanes.down.as_ref().is_some_and(is_under_way)
        });
        if is_switching || self.usage.asked.load(Ordering::Relaxed) {
            self.daemon.forget(self.opened.token);
        }
    }
}
