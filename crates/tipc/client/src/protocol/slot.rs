//! The state of one socket that a program and `tipcd` share: a *slot* of sixteen words, which are atomic 64-bit
//! integers. It takes up two cache lines of the shared memory of the program's connection.

use crossway_sys::Errno;

/// Number of words in a slot. `tipcd` zeroes them when it assigns the slot.
pub const WORDS: usize = 16;

/// Word 0, written by the program: number of messages taken from the data descriptor since it was opened, modulo 2^64.
/// When the socket is closed, this shows `tipcd` which messages were not read and must be returned to their senders.
pub const CONSUMED: usize = 0;
/// Word 1, written by `tipcd`: [`State`].
pub const STATE: usize = 1;
/// Word 2, written by `tipcd`: the errno of a failed connection request. The program reads it and resets it to 0.
pub const ERROR: usize = 2;
/// Word 3, written by `tipcd`: the connection's other end, with the port in the upper half and the node in the lower.
pub const PEER: usize = 3;

/// First of the words 4 to 7, which are for the program's own use: state of the socket that `tipcd` does not know and
/// never reads. All processes that share the socket also share this state, across fork and exec.
pub const OWN: usize = 4;

/// Word 8, written by programs: number of threads that are currently reading the data descriptor itself.
pub const READERS: usize = 8;
/// Word 9, written by `tipcd`: [`DOWN_BY_LANE`] or [`DOWN_DIRECT`] while messages are received through a lane,
/// otherwise 0.
pub const DOWN: usize = 9;
/// Word 10, written by programs: how much has been written to the data descriptor since the socket was created, in
/// bytes for a stream, otherwise in messages. It is incremented before writing, and reduced again if the write fails.
/// Padding ([`super::record::PAD_FAMILY`]) does not count.
pub const SENT: usize = 10;
/// Word 11, written by `tipcd`: how much `tipcd` has read from the data descriptor and passed to the node, after all
/// data that was put into the lane earlier. Programs send through the lane only while this equals [`SENT`].
pub const TAKEN: usize = 11;
/// Word 12, written by programs: number of threads that wait for the data descriptor to become readable. The first of
/// them may sleep in a receive call that only peeks or that takes a bell, which is a single system call. The others
/// poll, because the kernel would wake only one sleeper in a receive call per event.
pub const WAITERS: usize = 12;

/// Word 13, written by `tipcd`: non-zero if the connection's other end is a socket of the same `tipcd`. Any program,
/// even one that blocks for each message, should then request to receive through a direct lane ([`super::lane`]).
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
    /// The socket listens: connection requests are queued for it.
    Listening,
    /// The socket has requested a connection.
    Connecting,
    /// The socket's connection is established.
    Connected,
    /// The socket's connection has ended.
    Disconnected,
}

impl Phase {
    /// Returns the result of a connection request; `None` while it is pending. `error` is called to take the error from
    /// the slot, and `has_peer` to find out whether the slot's peer was ever set.
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

/// A socket's state. It fits into one word, so that it changes atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The state of the socket's connection.
    pub phase: Phase,
    /// How the connection ended: a TIPC error code. It is set once everything before the end has been written to the
    /// data descriptor.
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
