//! One call of one thread: a row of a recording.

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sent bytes into a channel.
    Send,
    /// Received bytes from a channel.
    Receive,
    /// Waited for something, such as any of several channels (poll) or a word in memory (futex).
    Wait,
}

impl Operation {
    /// Its number in the files.
    pub(super) const fn code(self) -> i32 {
        match self {
            Operation::Send => 0,
            Operation::Receive => 1,
            Operation::Wait => 2,
        }
    }

    pub(super) fn of_code(code: i32) -> Option<Self> {
        [Operation::Send, Operation::Receive, Operation::Wait]
            .into_iter()
            .find(|o| o.code() == code)
    }

    /// Its name in CSV files.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::Receive => "receive",
            Operation::Wait => "wait",
        }
    }
}

/// In which of a channel's two directions bytes flowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the channel's first end to its second one.
    Forward,
    /// From its second end to its first one.
    Backward,
}

impl Direction {
    /// Its name in CSV files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        }
    }
}

/// A call that has returned. Events are in the order in which calls returned, as far as the method knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When the call began, nanoseconds since the recording began.
    pub at_ns: i64,
    /// The thread: its index in the head's list.
    pub thread: u32,
    /// What it did.
    pub operation: Operation,
    /// The channel: its index in the head's list; `None` for a wait that is not about one channel.
    pub channel: Option<u32>,
    /// The direction in which the bytes flow.
    pub direction: Direction,
    /// Bytes that were moved; 0 for a wait.
    pub size_bytes: u64,
    /// Time between the call's begin and its return, nanoseconds: copying, being blocked, and what the method adds.
    pub call_ns: u64,
    /// Bytes sent in this direction and not received yet, after the call; `None` if not both ends were recorded.
    pub queued_bytes: Option<u64>,
    /// The CPU on which the call returned, if the method knows it.
    pub cpu: Option<u32>,
    /// Of `call_ns`, the time in which the thread had no CPU: it was blocked, or waited for a CPU. The rest is CPU time.
    /// `None`: the method does not know.
    pub off_cpu_ns: Option<u64>,
    /// Sends: how many events earlier the same thread returned from its last receive, on whichever channel; the send
    /// waited for that. `None`: it has received nothing yet.
    pub after: Option<u32>,
}
