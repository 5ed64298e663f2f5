//! Every bound, and what happens at it.

/// Bytes of the number that starts each signal: the least size of one.
pub const LEAST_SIGNAL: usize = 4;

/// Bytes of the largest signal; a larger one is refused when it is made, and a peer that announces one loses its channel.
pub const LARGEST_SIGNAL: usize = 64 << 20;

/// Bytes of the longest name of an endpoint or link.
pub const LONGEST_NAME: usize = 255;

/// Bytes of the longest path of a hunt.
pub const LONGEST_PATH: usize = 1024;

/// Numbers in the longest filter that an endpoint reports of itself; the others are left out of the report.
pub const REPORTED_FILTER: usize = 16;

/// Hunts of one endpoint that are pending at a time; more are refused.
pub const HUNTS: usize = 65_536;

/// Attaches of one endpoint that are pending at a time; more are refused.
pub const ATTACHES: usize = 65_536;

/// Channels of one endpoint at a time; who would need one more is refused.
pub const CHANNELS: usize = 4096;

/// Channels that the endpoints of one process may have to one endpoint of another process. More are refused, so that other processes
/// still get one.
pub const PROCESS_CHANNELS: usize = CHANNELS / 2;

/// Senders other than itself as which one endpoint may send on one channel; more are refused.
pub const VOUCHED: usize = 256;

/// Signals in an endpoint's queue by default; see [`WhenFull`](crate::WhenFull).
pub const QUEUE_SIGNALS: usize = 65_536;

/// Bytes in an endpoint's queue by default.
pub const QUEUE_BYTES: usize = 128 << 20;

/// Bytes of a signal that go through a node in one piece.
pub const PIECE: usize = 64 << 10;

/// Bytes of the longest record of the protocol between a program and its node, descriptors aside.
pub const RECORD: usize = 4096;

/// Bytes that may be under way from one node to an endpoint of the next before that node has taken them: who sends more waits.
pub const WINDOW: usize = 1 << 20;

/// Bytes that a node keeps for a link until the peer has acknowledged them; then everyone who sends by that link waits.
pub const UNACKNOWLEDGED: usize = 8 << 20;

/// A receiver that has signals in its queue looks for further ones, which may be out of band, after so many...
pub const LOOK_AROUND: u32 = 16;

/// ...unless its queue has so many, so that it does not move more and more into its queue that it cannot receive as fast.
pub const LOOK_BELOW: usize = 256;
