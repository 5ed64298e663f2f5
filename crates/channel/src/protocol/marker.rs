//! Messages of the channel itself, sent between the program's messages on the same transport.
//!
//! The program's messages travel without a header, so that they cost no more than the transport itself and can be
//! written and read in place. An internal message has a length of [`MARKER_LEN`] and begins with 16 bytes that the
//! kernel's random generator made for this channel and that only the two ends know. The probability that a message of
//! the program begins with them by chance is 2^-128.

/// Length in bytes of every internal message.
pub const MARKER_LEN: usize = 48;
const NONCE_LEN: usize = 16;

/// The channel's own messages, which travel between the program's messages on the same transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// The last message on this transport.
    Move {
        /// The epoch that begins after it.
        epoch: u32,
        /// Number of messages sent before it since the channel was opened.
        sequence: u64,
    },
    /// An empty message of the program, encoded because not every transport can carry one.
    Empty,
    /// The sender has closed; only markers can follow.
    Fin {
        /// Number of messages sent before it.
        sequence: u64,
    },
}

const MOVE: u32 = 1;
const EMPTY: u32 = 2;
const FIN: u32 = 3;

/// The random bytes by which both ends of a channel recognise internal messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Marks([u8; NONCE_LEN]);

impl std::fmt::Debug for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Marks(..)")
    }
}

impl Marks {
    /// Makes the bytes from two random numbers.
    pub fn new(random: [u64; 2]) -> Self {
        let mut bytes = [0; NONCE_LEN];
        bytes[..8].copy_from_slice(&random[0].to_le_bytes());
        bytes[8..].copy_from_slice(&random[1].to_le_bytes());
        Marks(bytes)
    }

    /// Returns the two random numbers.
    pub fn random(&self) -> [u64; 2] {
        let half =
            |at: usize| u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap_or_default());
        [half(0), half(8)]
    }

    /// Whether a message is internal.
    #[inline]
    pub fn is_internal(&self, bytes: &[u8]) -> bool {
        bytes.len() == MARKER_LEN && bytes[..NONCE_LEN] == self.0
    }

    /// Encodes an internal message.
    pub fn encode(&self, internal: Internal) -> [u8; MARKER_LEN] {
        let (kind, epoch, sequence) = match internal {
            Internal::Move { epoch, sequence } => (MOVE, epoch, sequence),
            Internal::Empty => (EMPTY, 0, 0),
            Internal::Fin { sequence } => (FIN, 0, sequence),
        };
        let mut bytes = [0; MARKER_LEN];
        bytes[..16].copy_from_slice(&self.0);
        bytes[16..20].copy_from_slice(&kind.to_le_bytes());
        bytes[20..24].copy_from_slice(&epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&sequence.to_le_bytes());
        bytes
    }

    /// Decodes a message for which [`Marks::is_internal`] is true; `None` if no correct peer sends it.
    pub fn decode(&self, bytes: &[u8]) -> Option<Internal> {
        if !self.is_internal(bytes) {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let sequence = u64::from_le_bytes(bytes[24..32].try_into().unwrap_or_default());
        match word(16) {
            MOVE => Some(Internal::Move { epoch: word(20), sequence }),
            EMPTY => Some(Internal::Empty),
            FIN => Some(Internal::Fin { sequence }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_internal_reads_back_and_nothing_else_does() {
        let marks = Marks::new([7, 9]);
        assert_eq!(marks.random(), [7, 9]);
        for internal in [
            Internal::Move { epoch: 3, sequence: u64::MAX },
            Internal::Empty,
            Internal::Fin { sequence: 5 },
        ] {
            let bytes = marks.encode(internal);
            assert_eq!(marks.decode(&bytes), Some(internal));
            assert_eq!(Marks::new([7, 8]).decode(&bytes), None, "another channel's");
            assert_eq!(marks.decode(&bytes[..47]), None);
            let mut unknown = bytes;
            unknown[16] = 9;
            assert!(marks.is_internal(&unknown));
            assert_eq!(marks.decode(&unknown), None);
        }
        assert!(!marks.is_internal(&[0; MARKER_LEN]));
        assert!(!marks.is_internal(b""));
    }
}
