//! A stream of messages whose order, lengths and content can be checked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossway_channel::{Channel, Receiver, RecvError, Sender};

/// A deadline that only serves to catch hangs.
pub(crate) fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(120))
}

/// Sends messages until `stop` is set, then closes; counts them in `sent`. Returns their number.
pub(crate) fn pump(mut sender: Sender, seed: u64, stop: &AtomicBool, sent: &AtomicU64) -> u64 {
    let (mut stream, mut msg) = (Stream::new(seed), [0; 4096]);
    while !stop.load(Ordering::Relaxed) {
        let len = fill(&mut stream, &mut msg);
        sender.send(&msg[..len], soon()).unwrap();
        sent.store(stream.count(), Ordering::Relaxed);
    }
    sender.close(soon()).unwrap();
    stream.count()
}

/// Receives messages until the other end closes; counts them in `received`. Returns their number.
pub(crate) fn drain(mut receiver: Receiver, seed: u64, received: &AtomicU64) -> u64 {
    let mut stream = Stream::new(seed);
    loop {
        match receiver.recv_in_place(soon(), |msg| check(&mut stream, msg)) {
            Ok(()) => received.store(stream.count(), Ordering::Relaxed),
            Err(RecvError::Closed) => return stream.count(),
            Err(error) => panic!("after {} messages: {error}", stream.count()),
        }
    }
}

/// Sends and receives at both ends at full load while `happens` runs, then closes. Checks that each message was
/// received once and in order, and returns how many each end sent.
#[allow(dead_code)] // not every test that shares this file has both ends
pub(crate) fn stream_while(here: Channel, there: Channel, happens: impl FnOnce()) -> [u64; 2] {
    let (stop, unread) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let ((here_tx, here_rx), (there_tx, there_rx)) = (here.split(), there.split());
    std::thread::scope(|scope| {
        let pumping = |tx, seed| scope.spawn(move || pump(tx, seed, stop, unread));
        let draining = |rx, seed| scope.spawn(move || drain(rx, seed, unread));
        let sent = [pumping(here_tx, 1), pumping(there_tx, 2)];
        let received = [draining(there_rx, 1), draining(here_rx, 2)];
        happens();
        stop.store(true, Ordering::Relaxed);
        let [sent, received] = [sent, received].map(|both| both.map(|t| t.join().unwrap()));
        assert_eq!(sent, received, "each message once");
        sent
    })
}

/// A generator for the messages of one direction.
pub(crate) struct Stream {
    state: u64,
    count: u64,
}

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream { state: seed, count: 0 }
    }

    /// Returns the generator in its state after `count` messages.
    #[allow(dead_code)] // not every test that shares this file continues a stream
    pub(crate) fn after(seed: u64, count: u64) -> Stream {
        let mut stream = Stream::new(seed);
        for _ in 0..count {
            stream.message();
        }
        stream
    }

    /// Returns the number of messages so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the length of the next message and the number that determines its content. Most messages are short, some
    /// are as long as the channel allows, and some are empty.
    fn message(&mut self) -> (usize, u64) {
        let random = self.next();
        let len = match random % 16 {
            0 => 0,
            1 => 48,
            2 => 4096,
            _ => 8 + (random >> 8) as usize % 200,
        };
        self.count += 1;
        (len, random)
    }
}

/// Writes the next message; returns its length.
pub(crate) fn fill(stream: &mut Stream, msg: &mut [u8]) -> usize {
    let (len, random) = stream.message();
    for (i, byte) in msg[..len].iter_mut().enumerate() {
        *byte = (random >> (i % 8 * 8)) as u8 ^ i as u8;
    }
    len
}

/// Checks every byte of a message against the next one expected.
pub(crate) fn check(stream: &mut Stream, msg: &[u8]) {
    let (len, random) = stream.message();
    assert_eq!(msg.len(), len, "message {}", stream.count);
    let right = msg.iter().enumerate().all(|(i, b)| *b == (random >> (i % 8 * 8)) as u8 ^ i as u8);
    assert!(right, "message {} is damaged", stream.count);
}
