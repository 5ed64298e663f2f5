//! Sends numbered messages to a listener that echoes them, and checks whether each comes back once, in order and
//! undamaged. Reports the transports used, and how long the stream paused when an end moved.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::error::RecvError;
use crate::event::{Event, EventKind};
use crate::transport::Transport;

/// Shortest message in bytes; every message carries its number.
pub const SHORTEST: usize = size_of::<u64>();
/// A time without messages is recorded if it is at least this long.
const GAP: Duration = Duration::from_micros(100);
/// How often to check whether the run should end.
const LOOK: Duration = Duration::from_millis(20);

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Length of each message in bytes.
    pub size_bytes: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that came back, each counted once.
    pub received: u64,
    /// Messages that did not come back.
    pub lost: u64,
    /// Copies of messages that came back in addition to the first.
    pub duplicated: u64,
    /// Messages that came back after a later one.
    pub reordered: u64,
    /// Messages of a wrong length or content.
    pub damaged: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// The successive intervals with one transport each.
    pub legs: Vec<Leg>,
    /// Moves of the listening end.
    pub moves: Vec<Move>,
    /// The error that ended the sending or the receiving; `None` if the channel was closed normally.
    pub error: Option<String>,
}

impl Checked {
    /// Whether every message came back exactly once, in order and undamaged, and the channel was closed normally.
    pub fn is_exact(&self) -> bool {
        self.is_in_order() && self.lost == 0 && self.received == self.sent
    }

    /// Whether every message that came back did so once, in order and undamaged, and the channel was closed normally.
    pub fn is_in_order(&self) -> bool {
        [self.duplicated, self.reordered, self.damaged] == [0; 3] && self.error.is_none()
    }
}

/// An interval during which one transport was in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// The transport.
    pub transport: Transport,
    /// Number of messages that came back during the interval.
    pub messages: u64,
    /// Length of the interval in seconds.
    pub seconds: f64,
}

/// A move of the listening end to another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The transport before.
    pub from: Transport,
    /// The transport after.
    pub to: Transport,
    /// The longest time during the move without an incoming message, in nanoseconds.
    pub pause_ns: u64,
}

fn fill(msg: &mut [u8], number: u64) {
    for (at, chunk) in msg.chunks_mut(SHORTEST).enumerate() {
        let factor = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        let word = number.wrapping_mul(factor);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Counts of the messages that have come back so far.
#[derive(Default)]
struct Tally {
    next: u64,
    missing: BTreeSet<u64>,
    result: Checked,
}

impl Tally {
    fn count(&mut self, msg: &[u8], right: &mut [u8]) {
        let number = msg.first_chunk().map(|number| u64::from_le_bytes(*number));
        let Some(number) = number.filter(|_| msg.len() == right.len()) else {
            self.result.damaged += 1;
            return;
        };
        fill(right, number);
        if msg != right {
            self.result.damaged += 1;
        } else if number >= self.next {
            self.missing.extend(self.next..number);
            self.next = number + 1;
            self.result.received += 1;
        } else if self.missing.remove(&number) {
            self.result.reordered += 1;
            self.result.received += 1;
        } else {
            self.result.duplicated += 1;
        }
    }

    fn end(mut self, sent: u64) -> Checked {
        self.result.sent = sent;
        self.result.lost = sent.saturating_sub(self.result.received);
        self.result
    }
}

/// Events, each with the time at which it was received and the number of messages that had come back by then.
type Heard = Vec<(Instant, u64, Event)>;

fn listen(events: &mpsc::Receiver<Event>, back: &AtomicU64, ended: &AtomicBool) -> Heard {
    let mut heard = Heard::new();
    loop {
        match events.recv_timeout(LOOK) {
            Ok(event) => heard.push((Instant::now(), back.load(Ordering::Relaxed), event)),
            Err(RecvTimeoutError::Timeout) if !ended.load(Ordering::Acquire) => {}
            Err(_) => return heard,
        }
    }
}

/// Sends messages of `size_bytes` until `done` returns true, then closes the channel and waits for the messages still
/// in transit.
///
/// # Panics
/// `size_bytes` is less than [`SHORTEST`]. If it exceeds the channel's longest message, [`Checked::error`] says so.
pub fn run(channel: Channel, size_bytes: usize, done: impl Fn() -> bool + Sync) -> Checked {
    assert!(size_bytes >= SHORTEST, "a message must hold its number");
    let start = Instant::now();
    let handle = channel.handle();
    let (events, began_on) = (handle.events(), handle.transport());
    drop(handle);
    let (mut sender, mut receiver) = channel.split();
    let (back, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let (tally, gaps, error, sent, heard) = std::thread::scope(|scope| {
        let (back, ended, done) = (&back, &ended, &done);
        let listening = scope.spawn(move || listen(&events, back, ended));
        let sending = scope.spawn(move || {
            let (mut msg, mut number) = (vec![0; size_bytes], 0);
            while !done() {
                fill(&mut msg, number);
                if let Err(error) = sender.send(&msg, None) {
                    return (number, Err(error.to_string()));
                }
                number += 1;
            }
            (number, sender.close(None).map_err(|error| error.to_string()))
        });
        let (mut tally, mut gaps, mut right) = (Tally::default(), Vec::new(), vec![0; size_bytes]);
        let mut last = Instant::now();
        let error = loop {
            match receiver.recv_in_place(None, |msg| tally.count(msg, &mut right)) {
                Ok(()) => {
                    back.fetch_add(1, Ordering::Relaxed);
                    let now = Instant::now();
                    if now - last >= GAP {
                        gaps.push((last, now));
                    }
                    last = now;
                }
                Err(RecvError::Closed) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        drop(receiver);
        let (sent, closed) = sending.join().expect("the sending thread does not panic");
        ended.store(true, Ordering::Release);
        let heard = listening.join().expect("the listening thread does not panic");
        (tally, gaps, error.or(closed.err()), sent, heard)
    });
    let end = (Instant::now(), tally.result.received);
    let mut checked = Checked {
        size_bytes: size_bytes as u64,
        seconds: start.elapsed().as_secs_f64(),
        error,
        ..tally.end(sent)
    };
    (checked.legs, checked.moves) = legs_and_moves((start, began_on), &heard, end, &gaps);
    checked
}

fn legs_and_moves(
    (start, began_on): (Instant, Transport),
    heard: &Heard,
    (end, received): (Instant, u64),
    gaps: &[(Instant, Instant)],
) -> (Vec<Leg>, Vec<Move>) {
    let (mut legs, mut moves) = (Vec::new(), Vec::new());
    let mut leg = (began_on, start, 0);
    let mut parked: Option<(Transport, Instant)> = None;
    let mut close = |(transport, since, before): (Transport, Instant, u64), at, count: u64| {
        if transport != Transport::Parked {
            let seconds = Instant::saturating_duration_since(&at, since).as_secs_f64();
            legs.push(Leg { transport, messages: count.saturating_sub(before), seconds });
        }
    };
    for (at, count, event) in heard {
        let EventKind::Switched { from, to, took_us, .. } = &event.what else { continue };
        close(leg, *at, *count);
        leg = (*to, *at, *count);
        if *to == Transport::Parked {
            let began = at.checked_sub(Duration::from_micros(*took_us)).unwrap_or(start);
            parked = Some((*from, began));
        } else if let Some((before, began)) = parked.take() {
            let during = gaps.iter().filter(|(from, to)| *from <= *at && *to >= began);
            let pause = during.map(|(from, to)| *to - *from).max().unwrap_or_default();
            let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
            moves.push(Move { from: before, to: *to, pause_ns });
        }
    }
    close(leg, end, received);
    (legs, moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(numbers: &[u64], sent: u64) -> Checked {
        let (mut tally, mut msg, mut right) = (Tally::default(), [0; 20], [0; 20]);
        for number in numbers {
            fill(&mut msg, *number);
            tally.count(&msg, &mut right);
        }
        tally.end(sent)
    }

    #[test]
    fn each_kind_of_fault_is_counted_as_itself() {
        assert!(tally(&[0, 1, 2], 3).is_exact());
        let counts = |c: Checked| [c.received, c.lost, c.duplicated, c.reordered, c.damaged];
        assert_eq!(counts(tally(&[0, 1], 3)), [2, 1, 0, 0, 0]);
        assert_eq!(counts(tally(&[0, 2], 3)), [2, 1, 0, 0, 0]);
        assert_eq!(counts(tally(&[0, 1, 1, 2], 3)), [3, 0, 1, 0, 0]);
        assert_eq!(counts(tally(&[0, 2, 1], 3)), [3, 0, 0, 1, 0]);
        assert!(!tally(&[0, 2, 1], 3).is_exact());
        let (mut tally, mut msg, mut right) = (Tally::default(), [0; 20], [0; 20]);
        fill(&mut msg, 0);
        msg[19] ^= 1;
        tally.count(&msg, &mut right);
        tally.count(&msg[..12], &mut right);
        assert_eq!(counts(tally.end(1)), [0, 1, 0, 0, 2]);
    }
}
