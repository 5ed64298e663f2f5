//! How a socket comes to its lanes: counted until it is busy, asked for without waiting, fetched when the answer is there.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crossway_sys::eventfd::EventFd;

use super::lanes::Lanes;
use super::*;
use crate::daemon::Answer;
use crate::protocol::control::Granted;
use crate::protocol::lane::LaneMemory;

/// How many messages a socket moves before its program asks for lanes, and whether it has asked.
#[derive(Debug, Default)]
pub(super) struct Usage {
    moved: AtomicU32,
    /// A request for lanes is under way.
    asked: AtomicBool,
    lanes: OnceLock<Box<Lanes>>,
}

/// The count of a socket that gets no lanes.
const NEVER: u32 = u32::MAX;

/// Messages between two looks for the answer to a request for lanes.
const FETCH_EVERY: u32 = 8;

/// Calls between two requests to begin, when the first came at a bad moment; twice as many after each further one.
const RETRY_AFTER: u32 = 16;
const RETRY_MAX: u32 = 1 << 16;

/// How long a receiver that waits in any case waits for the answer to such a request. It does not read the descriptor meanwhile, so the request finds a good moment.
const LOOK_UP: Duration = Duration::from_millis(5);

/// When a receiver asks to have what comes go by its lane.
#[derive(Debug)]
pub(super) struct Beginning {
    /// Calls until it asks, or [`UNDER_WAY`], or [`NEVER`].
    asks_in: AtomicU32,
    /// How many it will be the next time.
    pause: AtomicU32,
}

impl Default for Beginning {
    fn default() -> Self {
        Self { asks_in: 0.into(), pause: RETRY_AFTER.into() }
    }
}

/// It has asked.
const UNDER_WAY: u32 = NEVER - 1;

impl Beginning {
    fn note(&self, outcome: Result<Answer, Errno>) {
        let next = match outcome {
            // Another thread read this very moment, or the descriptor was full.
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

/// The lanes that an answer grants.
fn lanes_of(mut answer: Answer, usage: &Usage) -> Result<&Lanes, Errno> {
    let granted = Granted::decode(&mut Reader::new(&answer.octets)).ok_or(Errno::PROTO)?;
    let (Some(bell), Some(file)) = (answer.fds.pop(), answer.fds.pop()) else {
        return Err(Errno::PROTO);
    };
    let memory = LaneMemory::open(&file, granted.ring_octets as usize).map_err(|_| Errno::PROTO)?;
    let mut file = Some(file);
    let lanes = usage.lanes.get_or_init(|| {
        Box::new(Lanes::new(memory, file.take(), EventFd::from_fd(bell), granted.sends))
    });
    if file.take().is_some()
        && let Some(down) = &lanes.down
    {
        // Two threads asked. Closing one of two descriptors of the memory has cost this process its claim.
        down.claim_again()?;
    }
    Ok(lanes)
}

impl NodeSocket {
    /// The socket's lanes, if this process or its parent has them.
    #[inline]
    pub(super) fn lanes(&self) -> Option<&Lanes> {
        self.usage.lanes.get().map(Box::as_ref)
    }

    /// As [`NodeSocket::lanes`], and asks for them when the socket has become busy. Each call counts a message.
    #[inline]
    pub(super) fn want_lanes(&self) -> Option<&Lanes> {
        match self.lanes() {
            None if self.usage.moved.load(Ordering::Relaxed) != NEVER => self.count_message(),
            lanes => lanes,
        }
    }

    /// Asks without waiting for the answer: a sender that does not wait must not wait for this either.
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
            // One thread asks; the others go on as before.
            if !usage.asked.swap(true, Ordering::AcqRel) {
                match self.daemon.ask_later(&request, self.opened.token) {
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
        let answer = self.daemon.fetch(self.opened.token, Instant::now())?;
        let (lanes, moved) = match answer.and_then(|answer| lanes_of(answer, &self.usage)) {
            Ok(lanes) => (Some(lanes), NEVER),
            // Later it may be connected.
            Err(Errno::AGAIN) => (None, 0),
            Err(_) => (None, NEVER),
        };
        self.usage.moved.store(moved, Ordering::Relaxed);
        self.usage.asked.store(false, Ordering::Release);
        lanes
    }

    /// Has messages come by a lane, once the socket is busy enough. Each call counts a message.
    #[inline]
    pub(super) fn want_down_lane(&self, patience: Patience) {
        let Some(down) = self.want_lanes().and_then(|lanes| lanes.down.as_ref()) else { return };
        match down.beginning.asks_in.load(Ordering::Relaxed) {
            NEVER => {}
            0 => self.ask_for_down_lane(&down.beginning, patience),
            UNDER_WAY => self.look_up_down_lane(&down.beginning, Instant::now()),
            calls => down.beginning.asks_in.store(calls - 1, Ordering::Relaxed),
        }
    }

    /// Whose answer it is, beside that to a request for lanes.
    const fn of_down_lane(&self) -> u64 {
        !self.opened.token
    }

    #[cold]
    fn ask_for_down_lane(&self, beginning: &Beginning, patience: Patience) {
        let request = Request::LaneDown { token: self.opened.token };
        match self.daemon.ask_later(&request, self.of_down_lane()) {
            Ok(true) => {
                beginning.asks_in.store(UNDER_WAY, Ordering::Relaxed);
                // Who does not want to wait does not wait for this either.
                let limit = patience.left().map_or(LOOK_UP, |left| left.min(LOOK_UP));
                self.look_up_down_lane(beginning, Instant::now() + limit);
            }
            // Another thread asks for something.
            Ok(false) => {}
            // A child of fork, which asks on a connection that it may have to make first.
            Err(_) if patience == Patience::Forever => beginning.note(self.ask(&request)),
            Err(_) => {}
        }
    }

    #[cold]
    fn look_up_down_lane(&self, beginning: &Beginning, until: Instant) {
        if let Some(answer) = self.daemon.fetch(self.of_down_lane(), until) {
            beginning.note(answer);
        }
    }

    /// The lanes that another process has asked for.
    #[cold]
    pub(super) fn join_lanes(&self) -> Result<&Lanes, Errno> {
        let answer = self.ask(&Request::Lanes { token: self.opened.token })?;
        lanes_of(answer, &self.usage)
    }
}
