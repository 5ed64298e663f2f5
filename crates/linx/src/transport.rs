//! The transports for signals between two endpoints of a node.

use std::fmt;
use std::str::FromStr;

/// The transport for signals between two endpoints of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transport {
    /// A pair of UNIX stream sockets.
    #[default]
    Uds,
    /// One FIFO for each direction.
    Fifo,
    /// One ring in shared memory for each direction.
    Shm,
}

impl Transport {
    /// All transports.
    pub const ALL: [Transport; 3] = [Transport::Uds, Transport::Fifo, Transport::Shm];

    /// Returns the transport's name.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Uds => "uds",
            Transport::Fifo => "fifo",
            Transport::Shm => "shm",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|transport| transport.name() == word);
        known.ok_or_else(|| format!("unknown transport '{word}': use uds, fifo or shm"))
    }
}
