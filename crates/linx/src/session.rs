//! The state of a session between two nodes, which outlives its connections: nothing is lost, repeated or reordered
//! when one connection fails and another replaces it. No I/O, no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::limits::UNACKNOWLEDGED;
use crate::wire::body::Framed;
use crate::wire::link::{Frame, Init, Message, VERSION};

/// Number of messages after which an acknowledgement is due. `ACK_BYTES` is the number of bytes after which one is due.
const ACK_MESSAGES: u64 = 32;
const ACK_BYTES: usize = 256 << 10;

/// The features that this end supports; those that both ends support are used.
pub(crate) const FEATURES: &str = "out-of-band,resume,credit";

/// The reason why two ends cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The peer has forgotten the session, so a new one must begin.
    Forgotten,
    /// The peer is not a node that this one can communicate with.
    Refused(String),
}

/// One end of a session.
#[derive(Debug)]
pub(crate) struct Session {
    /// The session's number, which is the same at both ends.
    number: u64,
    /// Number of messages sent by this end so far; `acknowledged` says how many of them the peer has received.
    sent: u64,
    acknowledged: u64,
    /// The messages that were sent and that the peer has not acknowledged.
    unacknowledged: VecDeque<Arc<Framed>>,
    unacknowledged_bytes: usize,
    /// Number of messages received so far; `told` says how many of them were acknowledged.
    received: u64,
    told: u64,
    untold_bytes: usize,
    /// Whether the peer has introduced itself at least once.
    established: bool,
}

impl Session {
    pub(crate) fn new(number: u64) -> Self {
        Session {
            number,
            sent: 0,
            acknowledged: 0,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            received: 0,
            told: 0,
            untold_bytes: 0,
            established: false,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the frame with which this end introduces itself on a new connection.
    pub(crate) fn init(&self, name: &str, timeout_ms: u32) -> Frame {
        Frame::Init(Init {
            version: VERSION,
            features: FEATURES.to_owned(),
            name: name.to_owned(),
            session: self.number,
            known: if self.established { self.number } else { 0 },
            received: self.received,
            timeout_ms,
        })
    }

    /// Handles the introduction of the peer. Returns the messages that must be sent again on this connection.
    pub(crate) fn handle_init(&mut self, init: &Init) -> Result<Vec<Arc<Framed>>, Mismatch> {
        if init.version != VERSION {
            let why = format!(
                "the nodes use versions {} and {VERSION} of the link protocol; use the same version of Crossway for \
                 both",
                init.version
            );
            return Err(Mismatch::Refused(why));
        }
        if !init.features.split(',').any(|feature| feature == "credit") {
            let why =
                "one of the nodes does not support flow control (feature 'credit')".to_owned();
            return Err(Mismatch::Refused(why));
        }
        if init.session != self.number || (self.established && init.known != self.number) {
            return Err(Mismatch::Forgotten);
        }
        if !self.handle_ack(init.received) {
            return Err(Mismatch::Refused(
                "one of the nodes acknowledged messages that were never sent".to_owned(),
            ));
        }
        self.established = true;
        Ok(self.unacknowledged.iter().cloned().collect())
    }

    /// Gives a message a number, and returns it in the form in which it is sent.
    pub(crate) fn send(&mut self, message: Message) -> Arc<Framed> {
        let bytes = Arc::new(message.framed());
        self.sent += 1;
        self.unacknowledged_bytes += bytes.len();
        self.unacknowledged.push_back(Arc::clone(&bytes));
        bytes
    }

    /// Returns the number of messages sent by this end so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether the peer has acknowledged everything.
    pub(crate) fn is_settled(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// Whether no more signals should be sent at the moment.
    pub(crate) fn is_full(&self) -> bool {
        self.unacknowledged_bytes >= UNACKNOWLEDGED
    }

    /// Handles an acknowledgement of `received` messages in all; returns false if these are fewer than were
    /// acknowledged before, or more than were sent.
    #[must_use]
    pub(crate) fn handle_ack(&mut self, received: u64) -> bool {
        if received < self.acknowledged || received > self.sent {
            return false;
        }
        for _ in self.acknowledged..received {
            if let Some(bytes) = self.unacknowledged.pop_front() {
                self.unacknowledged_bytes -= bytes.len();
            }
        }
        self.acknowledged = received;
        true
    }

    /// Counts a received message of `bytes` bytes.
    pub(crate) fn handle_message(&mut self, bytes: usize) {
        self.received += 1;
        self.untold_bytes += bytes;
    }

    /// Returns an acknowledgement if one is due. If `now` is true, also returns one that is not due yet, provided that
    /// something received is not acknowledged.
    pub(crate) fn poll_ack(&mut self, now: bool) -> Option<Frame> {
        let untold = self.received - self.told;
        let due = untold >= ACK_MESSAGES || self.untold_bytes >= ACK_BYTES || (now && untold > 0);
        due.then(|| {
            self.told = self.received;
            self.untold_bytes = 0;
            Frame::Ack { received: self.received }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::link::decode;

    fn message(id: u64) -> Message {
        Message::Cancel { id }
    }

    fn ids(frames: &[Arc<Framed>]) -> Vec<u64> {
        let id = |bytes: &Arc<Framed>| match decode(&bytes.to_vec()) {
            Ok(Some((Frame::Message(Message::Cancel { id }), _))) => id,
            other => panic!("{other:?}"),
        };
        frames.iter().map(id).collect()
    }

    fn introduction(session: &Session) -> Init {
        match session.init("n", 1000) {
            Frame::Init(init) => init,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_second_connection_carries_what_the_first_one_lost_and_nothing_twice() {
        let (mut a, mut b) = (Session::new(7), Session::new(7));
        assert_eq!(a.handle_init(&introduction(&b)), Ok(vec![]));
        assert_eq!(b.handle_init(&introduction(&a)), Ok(vec![]));
        for id in 0..5 {
            let bytes = a.send(message(id));
            if id < 3 {
                b.handle_message(bytes.len());
            }
        }
        assert_eq!(b.poll_ack(false), None);
        let (of_a, of_b) = (introduction(&a), introduction(&b));
        assert_eq!(ids(&a.handle_init(&of_b).unwrap()), [3, 4]);
        assert_eq!(b.handle_init(&of_a), Ok(vec![]));
        b.handle_message(1);
        assert_eq!(b.poll_ack(true), Some(Frame::Ack { received: 4 }));
        assert_eq!(b.poll_ack(true), None);
        assert!(a.handle_ack(4) && !a.handle_ack(3) && !a.handle_ack(6));
    }

    #[test]
    fn a_peer_that_has_forgotten_the_session_is_noticed() {
        let (mut a, b) = (Session::new(7), Session::new(7));
        a.handle_init(&introduction(&b)).unwrap();
        a.send(message(1));
        assert_eq!(a.handle_init(&introduction(&Session::new(7))), Err(Mismatch::Forgotten));
        assert_eq!(a.handle_init(&introduction(&Session::new(8))), Err(Mismatch::Forgotten));
        let strange = Init { version: 9, ..introduction(&b) };
        assert!(matches!(a.handle_init(&strange), Err(Mismatch::Refused(_))));
    }
}
