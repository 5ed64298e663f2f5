//! What a program and `tipcd` share about one socket: sixteen words of the client's region, two lines of a cache.

use crossway_sys::Errno;

/// Words of one slot. `tipcd` zeroes all of them when it gives the slot away.
pub const WORDS: usize = 16;

/// Word 0, written by the program: messages taken out of the data descriptor since it was opened, modulo 2^64. From it `tipcd` knows
/// which messages were not read when the socket closes, and returns them to their senders.
pub const CONSUMED: usize = 0;
/// Word 1, written by `tipcd`: [`State`].
pub const STATE: usize = 1;
/// Word 2, written by `tipcd`: the errno of a request for a connection that failed. The program takes it and leaves 0.
pub const ERROR: usize = 2;
/// Word 3, written by `tipcd`: the other end of the connection, port in the upper half and node in the lower.
pub const PEER: usize = 3;

/// Word 4 and up, the program's own, which `tipcd` never reads: what a socket is beyond what `tipcd` knows of it, so that the processes
/// that share it share that too, across fork and exec.
pub const OWN: usize = 4;

/// Word 8, written by programs: threads that read the data descriptor itself at this instant.
pub const READERS: usize = 8;
/// Word 9, written by `tipcd`: not 0 when what is received comes by the lane.
pub const DOWN: usize = 9;
/// Word 10, written by programs: what was given to the data descriptor since the socket was made, octets of a stream or messages of another
/// kind. Added before it is given, under a lock of the process, and taken back when it did not go. Filling ([`super::record::PAD_FAMILY`]) does
/// not count.
pub const SENT: usize = 10;
/// Word 11, written by `tipcd`: what it has read from the data descriptor, and whatever was in the lane before it, and handed to the node.
/// Programs send by the lane only while this equals [`SENT`].
pub const TAKEN: usize = 11;
/// Word 12, written by programs: threads that wait for the data descriptor to become readable. The first may sleep in a receiving call that takes nothing, which
/// is one system call; the kernel wakes only one such sleeper for what comes, so the others poll.
pub const WAITERS: usize = 12;

/// Where a socket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection was asked for.
    Open,
    /// Takes connections.
    Listening,
    /// Asked for a connection.
    Connecting,
    /// Has one.
    Connected,
    /// Had one.
    Disconnected,
}

impl Phase {
    /// How a request for a connection ended; `None` while it is under way. `error` takes the slot's error, `has_peer` tells whether its
    /// peer was ever set.
    pub fn connected(
        self,
        error: impl FnOnce() -> Option<Errno>,
        has_peer: impl FnOnce() -> bool,
    ) -> Option<Result<(), Errno>> {
        match self {
            Self::Connecting => None,
            Self::Connected => Some(Ok(())),
            phase => Some(match error() {
                Some(errno) => Err(errno),
                // Accepted, and over before anybody looked: the end is what is received next, as from a kernel.
                None if phase == Self::Disconnected && has_peer() => Ok(()),
                None => Err(Errno::CONNREFUSED),
            }),
        }
    }
}

/// The state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Where the socket stands.
    pub phase: Phase,
    /// How its connection ended: a TIPC error code, once everything before the end was put into the data descriptor.
    pub end: u8,
}

impl State {
    /// As a word.
    pub const fn encode(self) -> u64 {
        self.phase as u64 | (self.end as u64) << 8
    }

    /// From a word; what makes no sense is "disconnected".
    pub const fn decode(word: u64) -> Self {
        let phase = match word & 0xff {
            0 => Phase::Open,
            1 => Phase::Listening,
            2 => Phase::Connecting,
            3 => Phase::Connected,
            _ => Phase::Disconnected,
        };
        Self { phase, end: (word >> 8) as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_from_its_word() {
        for phase in [
            Phase::Open,
            Phase::Listening,
            Phase::Connecting,
            Phase::Connected,
            Phase::Disconnected,
        ] {
            let state = State { phase, end: 5 };
            assert_eq!(State::decode(state.encode()), state);
        }
    }
}
