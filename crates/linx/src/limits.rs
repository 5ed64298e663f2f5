//! All limits, and what happens when they are reached.

/// Size in bytes of the number at the start of each signal, and therefore the minimum size of a signal.
pub const LEAST_SIGNAL: usize = 4;

/// Maximum size of a signal in bytes; a larger one cannot be created, and a peer that announces one loses its channel.
pub const LARGEST_SIGNAL: usize = 64 << 20;

/// Maximum length in bytes of the name of an endpoint or link.
pub const LONGEST_NAME: usize = 255;

/// Maximum length in bytes of the path of a hunt.
pub const LONGEST_PATH: usize = 1024;

/// Maximum number of signal numbers in the filter that an endpoint reports; further ones are left out of the report.
pub const REPORTED_FILTER: usize = 16;

/// Maximum number of pending hunts of an endpoint, and likewise of its time-outs and of its requests for new links;
/// more are refused.
pub const HUNTS: usize = 65_536;

/// Maximum number of pending attaches of an endpoint; more are refused.
pub const ATTACHES: usize = 65_536;

/// Maximum number of channels of an endpoint; requests for more are refused.
pub const CHANNELS: usize = 4096;

/// Maximum number of channels from the endpoints of one process to one endpoint of another process. More are refused,
/// so that other processes can still get a channel.
pub const PROCESS_CHANNELS: usize = CHANNELS / 2;

/// Maximum number of other senders in whose name an endpoint may send on one channel; more are refused.
pub const VOUCHED: usize = 256;

/// Default limit of the number of signals in an endpoint's queue; see [`WhenFull`](crate::WhenFull).
pub const QUEUE_SIGNALS: usize = 65_536;

/// Default limit of the number of bytes in an endpoint's queue.
pub const QUEUE_BYTES: usize = 128 << 20;

/// Maximum number of bytes of a signal that pass through a node in one piece.
pub const PIECE: usize = 64 << 10;

/// Maximum length in bytes of a record of the protocol between a program and its node, without descriptors.
pub const RECORD: usize = 4096;

/// Maximum number of bytes in flight from one node to an endpoint of a linked node: sent by the first node, but not yet
/// delivered by the second. Senders wait while this limit is reached.
pub const WINDOW: usize = 1 << 20;

/// Maximum number of bytes that a node keeps for a link until the peer has acknowledged them; beyond it, all senders
/// over that link wait.
pub const UNACKNOWLEDGED: usize = 8 << 20;

/// Number of bytes in each half of a pool. Two endpoints of one user share a pool over
/// [`Transport::Shm`](crate::Transport::Shm), and an endpoint shares one with its node for each link. Each of the two
/// sharers can have this number of bytes passed by reference at the same time. Memory is used only for the parts that
/// were written to. Signals for which there is no room are copied.
pub const POOL: usize = 64 << 20;

/// Minimum size in bytes of signals that are passed by reference between an endpoint and its node even if the program
/// did not request it.
pub const SHARED_FROM: usize = PIECE;

/// A receiver with signals in its queue checks for further arrivals, which may be out of band, after receiving this
/// number of signals.
pub const LOOK_AROUND: u32 = 16;

/// A receiver with this many signals in its queue does not check for further ones, so that it does not move signals
/// into its queue faster than it receives them.
pub const LOOK_BELOW: usize = 256;

/// A receiver with an empty queue checks for arrivals from other senders after this number of signals, even if there is
/// always another one from the same sender.
pub const LOOK_AT_LAST: u32 = 256;
