//! State of one socket shared between a program and `tipcd`: sixteen words of the client's region, two cache lines.

use crossway_sys::Errno;

/// Number of words in a slot. `tipcd` zeroes them when it assigns the slot.
pub const WORDS: usize = 16;

/// Word 0, written by the program: number of messages taken from the data descriptor since it was opened, modulo 2^64. When the socket closes, it
/// tells `tipcd` which messages were not read and must be returned to their senders.
pub const CONSUMED: usize = 0;
/// Word 1, written by `tipcd`: [`State`].
pub const STATE: usize = 1;
/// Word 2, written by `tipcd`: the errno of a failed connection request. The program reads it and resets it to 0.
pub const ERROR: usize = 2;
/// Word 3, written by `tipcd`: the connection's other end, port in the upper half and node in the lower.
pub const PEER: usize = 3;

/// Words from 4 on, for the program's own use and never read by `tipcd`: state of the socket that `tipcd` does not know, shared by all processes that
/// share the socket, across fork and exec.
pub const OWN: usize = 4;

/// Word 8, written by programs: number of threads that are reading the data descriptor itself at this moment.
pub const READERS: usize = 8;
/// Word 9, written by `tipcd`: non-zero if messages are received through a lane: [`DOWN_BY_LANE`] or [`DOWN_DIRECT`].
pub const DOWN: usize = 9;
/// Word 10, written by programs: what has been written to the data descriptor since the socket was created, in bytes for a stream, otherwise in
/// messages. It is incremented before writing, under a lock of the process, and reduced again if the write fails. Padding
/// ([`super::record::PAD_FAMILY`]) does not count.
pub const SENT: usize = 10;
/// Word 11, written by `tipcd`: what it has read from the data descriptor and passed to the node, together with everything that preceded it in the
/// lane. Programs send through the lane only while this equals [`SENT`].
pub const TAKEN: usize = 11;
/// Word 12, written by programs: number of threads that wait for the data descriptor to become readable. The first may sleep in a receive call that
/// takes nothing or a bell, which is a single system call; the kernel wakes only one such sleeper per event, so the others poll.
pub const WAITERS: usize = 12;

/// Word 13, written by `tipcd`: non-zero if the connection's other end is a socket of the same `tipcd`, so that receiving through a direct lane
/// ([`super::lane`]) is worth a request for any program, also for one that blocks for each message.
pub const LOCAL: usize = 13;

/// The value of [`DOWN`] while messages are received through the socket's own lane.
pub const DOWN_BY_LANE: u64 = 1;
/// The value of [`DOWN`] while messages are received through a direct lane.
pub const DOWN_DIRECT: u64 = 2;

/// Connection state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection has been requested.
    Open,
    /// Listens: connection requests are queued for it.
    Listening,
    /// Has requested a connection.
    Connecting,
    /// Its connection is established.
    Connected,
    /// Its connection has ended.
    Disconnected,
}

impl Phase {
    /// The result of a connection request; `None` while it is pending. `error` takes the slot's error, `has_peer` tells whether its peer was ever
    /// set.
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
                // The connection was accepted and ended before the program looked: the next receive reports the end, as with a kernel.
                None if phase == Self::Disconnected && has_peer() => Ok(()),
                None => Err(Errno::CONNREFUSED),
            }),
        }
    }
}

/// A socket's state, which fits into one word so that it changes atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// How far its connection has come.
    pub phase: Phase,
    /// How the connection ended: a TIPC error code, set once everything before the end has been written to the data descriptor.
    pub end: u8,
}

impl State {
    /// Encodes the state as a word.
    pub const fn encode(self) -> u64 {
        self.phase as u64 | (self.end as u64) << 8
    }

    /// Decodes a word; invalid values mean "disconnected".
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
