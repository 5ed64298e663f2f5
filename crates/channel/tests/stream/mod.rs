//! A stream of messages whose order, lengths and content can be checked.

/// What comes next at an end.
pub(crate) struct Stream {
    state: u64,
    count: u64,
}

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream { state: seed, count: 0 }
    }

    /// As if so many messages had passed.
    #[allow(dead_code)] // not every test that shares this file continues a stream
    pub(crate) fn after(seed: u64, count: u64) -> Stream {
        let mut stream = Stream::new(seed);
        for _ in 0..count {
            stream.message();
        }
        stream
    }

    /// Messages so far.
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

    /// Length and content of the next message: mostly short ones, some as long as the channel's longest, some empty.
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

/// Checks that this is the next message, every byte of it.
pub(crate) fn check(stream: &mut Stream, msg: &[u8]) {
    let (len, random) = stream.message();
    assert_eq!(msg.len(), len, "message {}", stream.count);
    let right = msg.iter().enumerate().all(|(i, b)| *b == (random >> (i % 8 * 8)) as u8 ^ i as u8);
    assert!(right, "message {} is damaged", stream.count);
}
