//! This process's control connection to a tipcd: sends requests, and receives their answers immediately or later.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, fdpass};

use crate::protocol::control::LEN_MAX;

/// Error text for a control connection that the tipcd has closed.
pub(crate) const ENDED: &str = "has ended";

/// Maximum time to wait for an answer. A tipcd that works answers immediately, unless it waits for the system itself.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The part of an answer that follows its errno, and the descriptors passed with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A control connection, on which at most one request is pending at a time.
#[derive(Debug)]
pub(super) struct Control {
    fd: OwnedFd,
    /// Who gets the answer that has not been received yet; `None` if no request is pending.
    owed: Option<Claim>,
    /// Answers that had to be received before another request was sent, kept until they are fetched.
    kept: VecDeque<(Claim, Result<Answer, Errno>)>,
}

/// A request whose answer is fetched later, with the token of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The request for lanes.
    Lanes(u64),
    /// The request to receive through the lane. The socket may never fetch the answer, because its shared words also
    /// show when the lane is on.
    LaneDown(u64),
    /// The request for the sending end of the peer's direct lane.
    Outlet(u64),
    /// The answer will not be fetched, because it was late or its socket has been closed.
    Nobody,
}

/// Error text for a tipcd that did not answer in time.
const LATE: &str = "does not answer";

/// Maximum number of answers kept. If there are more, the oldest answer is dropped.
const KEPT_MAX: usize = 16;

impl Control {
    /// Creates the control connection over a connected socket.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Control { fd, owed: None, kept: VecDeque::new() }
    }

    /// Whether the tipcd has closed the connection.
    pub(super) fn has_ended(&self) -> bool {
        crossway_sys::poll::is_hung_up(&self.fd) != Ok(false)
    }

    /// Waits for the pending answer, if any, at most for `limit`, and keeps the answer if it may be fetched later.
    fn settle(&mut self, limit: Duration) -> Result<(), &'static str> {
        if let Some(claim) = self.owed {
            let answer = outcome(await_answer(&self.fd, limit)?);
            self.owed = None;
            match claim {
                Claim::LaneDown(_) if answer.is_ok() => {}
                Claim::Nobody => {}
                Claim::Lanes(_) | Claim::LaneDown(_) | Claim::Outlet(_) => {
                    if self.kept.len() == KEPT_MAX {
                        self.kept.pop_front();
                    }
                    self.kept.push_back((claim, answer));
                }
            }
        }
        Ok(())
    }

    /// Sends a request whose answer is fetched later. Returns false if it cannot be sent now.
    ///
    /// If another socket has not fetched its answer yet, that answer is received and kept here, because that socket may
    /// make no further call.
    pub(super) fn ask_later(&mut self, request: &[u8], claim: Claim) -> bool {
        if self.owed.is_some() {
            let there = wait_ready(&self.fd, Interest::Readable, Some(Instant::now()));
            let room = self.kept.len() < KEPT_MAX;
            if !(room && there == Ok(true) && self.settle(ANSWER_LIMIT).is_ok()) {
                return false;
            }
        }
        let sent = fdpass::try_send(&self.fd, request, &[]).is_ok();
        if sent {
            self.owed = Some(claim);
        }
        sent
    }

    /// Returns the answer to an earlier request; `None` if it does not arrive by `until`.
    pub(super) fn fetch(&mut self, claim: Claim, until: Instant) -> Option<Result<Answer, Errno>> {
        if self.owed == Some(claim) {
            match wait_ready(&self.fd, Interest::Readable, Some(until)) {
                Ok(false) => return None,
                _ => match await_answer(&self.fd, ANSWER_LIMIT) {
                    Ok(answer) => {
                        self.owed = None;
                        return Some(outcome(answer));
                    }
                    Err(_) => return Some(Err(Errno::NETDOWN)),
                },
            }
        }
        let place = self.kept.iter().position(|(of, _)| *of == claim)?;
        self.kept.remove(place).map(|(_, answer)| answer)
    }

    /// Drops the answers to the requests of a socket.
    pub(super) fn forget(&mut self, token: u64) {
        let is_its = |claim: Claim| {
            let (Claim::Lanes(of) | Claim::LaneDown(of) | Claim::Outlet(of)) = claim else {
                return false;
            };
            of == token
        };
        self.kept.retain(|(claim, _)| !is_its(*claim));
        if self.owed.is_some_and(is_its) {
            self.owed = Some(Claim::Nobody);
        }
    }

    /// Sends a request and waits for its answer. If the answer comes too late, it is dropped, not mistaken for the
    /// answer to the next request.
    pub(super) fn exchange(
        &mut self,
        request: &[u8],
        limit: Duration,
    ) -> Result<(i32, Answer), &'static str> {
        self.settle(limit)?;
        let answer = exchange(&self.fd, request, limit);
        if matches!(answer, Err(LATE)) {
            self.owed = Some(Claim::Nobody);
        }
        answer
    }
}

/// Sends a request and waits for its answer. Returns the answer's errno, and what follows it.
fn exchange(fd: &OwnedFd, request: &[u8], limit: Duration) -> Result<(i32, Answer), &'static str> {
    fdpass::send(fd, request, &[]).map_err(|_| ENDED)?;
    await_answer(fd, limit)
}

pub(crate) fn outcome((errno, answer): (i32, Answer)) -> Result<Answer, Errno> {
    if errno == 0 { Ok(answer) } else { Err(Errno::from_raw_os_error(errno)) }
}

/// Receives an answer. Returns its errno, and what follows that.
pub(super) fn await_answer(fd: &OwnedFd, limit: Duration) -> Result<(i32, Answer), &'static str> {
    match wait_ready(fd, Interest::Readable, Some(Instant::now() + limit)) {
        Ok(true) => {}
        Ok(false) => return Err(LATE),
        Err(_) => return Err(ENDED),
    }
    let mut bytes = vec![0; LEN_MAX.min(4096)];
    let mut fds = Vec::new();
    let len = fdpass::receive(fd, &mut bytes, &mut fds, true).map_err(|_| ENDED)?;
    bytes.truncate(len);
    let Some((errno, rest)) = bytes.split_first_chunk() else { return Err(ENDED) };
    Ok((i32::from_ne_bytes(*errno), Answer { bytes: rest.to_vec(), fds }))
}

#[cfg(test)]
mod tests {
    use crossway_sys::socket::{SocketType, unix_pair};

    use super::*;
    use crate::protocol::control::Writer;

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
        let (fd, tipcd) = unix_pair(SocketType::Seqpacket).unwrap();
        let mut control = Control::new(fd);
        let ask = |control: &mut Control, limit| {
            control.exchange(b"?", limit).map(|(_, answer)| answer.bytes)
        };
        let says = |number: u32| {
            fdpass::send(&tipcd, &Writer::answer(0).u32(number).finish(), &[]).unwrap();
        };
        assert_eq!(ask(&mut control, Duration::ZERO), Err(LATE));
        // The first answer is still pending at the second request.
        assert_eq!(ask(&mut control, Duration::ZERO), Err(LATE));
        says(1);
        says(2);
        assert_eq!(ask(&mut control, ANSWER_LIMIT), Ok(2_u32.to_ne_bytes().to_vec()));
        assert!(control.kept.is_empty());
    }

    #[test]
    fn an_answer_that_nobody_fetches_does_not_delay_the_requests_of_other_sockets() {
        let (fd, tipcd) = unix_pair(SocketType::Seqpacket).unwrap();
        let mut control = Control::new(fd);
        let says = |errno: i32| {
            fdpass::send(&tipcd, &Writer::answer(errno).u32(7).finish(), &[]).unwrap();
        };
        let now = Instant::now();
        assert!(control.ask_later(b"?", Claim::LaneDown(1)));
        assert!(!control.ask_later(b"?", Claim::Lanes(2)), "one request at a time");
        says(0);
        assert!(control.ask_later(b"?", Claim::Lanes(2)));
        assert!(control.kept.is_empty(), "the first socket sees in its words that it has begun");
        says(0);
        assert!(control.ask_later(b"?", Claim::Lanes(3)));
        assert!(control.fetch(Claim::Lanes(3), now).is_none(), "not there yet");
        assert_eq!(control.fetch(Claim::Lanes(2), now).unwrap().unwrap().bytes.len(), 4);
        // The third is closed before its answer comes.
        control.forget(3);
        says(0);
        assert!(control.ask_later(b"?", Claim::LaneDown(4)));
        assert!(control.kept.is_empty());
        says(Errno::AGAIN.raw_os_error());
        assert!(control.ask_later(b"?", Claim::Nobody));
        assert_eq!(control.fetch(Claim::LaneDown(4), now).unwrap().unwrap_err(), Errno::AGAIN);
        // There is no room for more, and none is dropped.
        for token in 0..KEPT_MAX as u64 {
            says(0);
            assert!(control.ask_later(b"?", Claim::Lanes(token)));
        }
        says(0);
        assert!(control.ask_later(b"?", Claim::Lanes(99)));
        says(0);
        assert!(!control.ask_later(b"?", Claim::Lanes(100)));
        assert!(control.fetch(Claim::Lanes(0), now).is_some());
        control.forget(1);
        assert!(control.ask_later(b"?", Claim::Lanes(100)));
    }
}
