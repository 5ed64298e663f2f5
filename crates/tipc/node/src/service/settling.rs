//! Answers programs that wait until everything that was sent and changed before has been delivered
//! ([`crossway_tipc_client::protocol::traffic`]).

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crossway_sys::OsError;
use crossway_sys::epoll::Epoll;
use crossway_sys::words::SharedWords;
use crossway_tipc_client::protocol::control::Writer;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::traffic;

use super::request::Answer;
use super::token::Place;
use super::{Context, Service};

/// Number of turns after which a program is answered although there is still something to deliver: others may never stop
/// sending. What was sent before the request has been read by then.
const TURNS_MAX: u8 = 16;

/// What is on its way between programs, and who waits for it.
#[derive(Debug)]
pub(super) struct Settling {
    words: SharedWords,
    fd: OwnedFd,
    /// The marks taken at the beginning of this turn, or of earlier ones that did not deliver everything.
    taken: u64,
    /// Programs that wait, each with the number of turns that have passed meanwhile.
    waiting: Vec<(Place, u8)>,
}

impl Settling {
    pub(super) fn new() -> Result<Self, OsError> {
        let (words, fd) = SharedWords::create("tipcd-traffic", traffic::WORDS)?;
        Ok(Self { words, fd, taken: 0, waiting: Vec::new() })
    }

    /// Whether a program waits for an answer.
    pub(super) const fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Service {
    /// Begins a turn, before the descriptors that are ready are fetched. Returns whether programs have left marks: the turn
    /// must then not sleep.
    pub(crate) fn begin_turn(&mut self) -> bool {
        let words = &self.settling.words;
        self.settling.taken = traffic::begin(|n| words.word(n));
        self.settling.taken != 0
    }

    /// Ends a turn. `delivered` says that nothing is left of what the turn found.
    pub(crate) fn end_turn(&mut self, cx: &mut Context<'_>, delivered: bool) {
        let delivered = delivered && self.ready.is_empty();
        if delivered && std::mem::take(&mut self.settling.taken) != 0 {
            self.settling.words.word(traffic::WORKING).store(0, Ordering::Release);
        }
        for (place, turns) in std::mem::take(&mut self.settling.waiting) {
            if delivered || turns >= TURNS_MAX {
                self.hand_over(cx.epoll, place, &Answer::done());
            } else {
                self.settling.waiting.push((place, turns + 1));
            }
        }
    }

    /// Answers a program at the end of the turn that has delivered everything. One that has not sent a hello is
    /// disconnected.
    pub(super) fn await_settling(&mut self, epoll: &Epoll, place: Place) {
        if self.clients.get(place).is_some_and(super::client::Client::is_greeted) {
            self.settling.waiting.push((place, 0));
        } else {
            self.leave(epoll, place);
        }
    }

    /// The answer to a program that wants to know what is on its way.
    pub(super) fn share_traffic(&self) -> Answer {
        match self.settling.fd.try_clone() {
            Ok(fd) => Answer { bytes: Writer::answer(0).finish(), fds: vec![fd] },
            Err(_) => Answer::error(Refusal::Descriptors.errno()),
        }
    }
}
