//! What a recording says: sizes, gaps and times of each channel and direction, and what share of each process's time
//! its calls took.

use std::collections::BTreeMap;

use super::{Direction, Operation, Recording};

/// The distribution of a quantity: exact, because all values are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The smallest value.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The largest value.
    pub max: u64,
}

impl Spread {
    /// The distribution of values; `None` without any.
    pub fn of(mut values: Vec<u64>) -> Option<Spread> {
        values.sort_unstable();
        let at = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied()
        };
        Some(Spread { min: *values.first()?, p50: at(0.5)?, p99: at(0.99)?, max: *values.last()? })
    }
}

/// A channel in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSummary {
    /// The channel.
    pub channel: u32,
    /// The direction.
    pub direction: Direction,
    /// Number of sends; of receives if only the receiving end was recorded.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Their sizes.
    pub size_bytes: Spread,
    /// Times between the begins of two of these; `None` with fewer than two.
    pub gap_ns: Option<Spread>,
    /// Time in the sending calls.
    pub send_ns: u64,
    /// Time in the receiving calls.
    pub receive_ns: u64,
    /// From the return of the receive that a send waited for to the send: how long the program thinks; `None` if no
    /// send waited.
    pub think_ns: Option<Spread>,
    /// The most bytes that were queued, if both ends were recorded.
    pub queued_bytes_max: Option<u64>,
}

/// The share of a process's time that its calls took.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadShare {
    /// The process.
    pub process: u32,
    /// Time of its threads in sends and receives, nanoseconds.
    pub in_channels_ns: u64,
    /// Time of its threads in waits, nanoseconds.
    pub in_waits_ns: u64,
}

/// A summary of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The channels, those with the most messages first.
    pub directions: Vec<DirectionSummary>,
    /// The processes, by their indices.
    pub processes: Vec<ThreadShare>,
    /// Time from the first call to the last return, nanoseconds.
    pub span_ns: u64,
}

#[derive(Default)]
struct Tally {
    sends: Vec<(i64, u64)>,
    receives: Vec<(i64, u64)>,
    send_ns: u64,
    receive_ns: u64,
    think_ns: Vec<u64>,
    queued: Option<u64>,
}

impl Summary {
    /// Summarises a recording.
    pub fn of(recording: &Recording) -> Summary {
        let mut tallies: BTreeMap<(u32, Direction), Tally> = BTreeMap::new();
        let mut shares: BTreeMap<u32, ThreadShare> = BTreeMap::new();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for (index, event) in recording.events.iter().enumerate() {
            let end = event.at_ns.saturating_add_unsigned(event.call_ns);
            (first, last) = (first.min(event.at_ns), last.max(end));
            let process = recording.head.threads[event.thread as usize];
            let share = shares.entry(process).or_insert(ThreadShare {
                process,
                in_channels_ns: 0,
                in_waits_ns: 0,
            });
            let Some(channel) = event.channel.filter(|_| event.operation != Operation::Wait) else {
                share.in_waits_ns += event.call_ns;
                continue;
            };
            share.in_channels_ns += event.call_ns;
            let tally = tallies.entry((channel, event.direction)).or_default();
            let message = (event.at_ns, event.size_bytes);
            if event.operation == Operation::Send {
                tally.sends.push(message);
                tally.send_ns += event.call_ns;
                if let Some(cause) = event.after.and_then(|back| index.checked_sub(back as usize)) {
                    let cause = &recording.events[cause];
                    let returned = cause.at_ns.saturating_add_unsigned(cause.call_ns);
                    tally.think_ns.push(event.at_ns.saturating_sub(returned).max(0).unsigned_abs());
                }
            } else {
                tally.receives.push(message);
                tally.receive_ns += event.call_ns;
            }
            tally.queued = tally.queued.max(event.queued_bytes);
        }
        let mut directions: Vec<DirectionSummary> = tallies
            .into_iter()
            .filter_map(|((channel, direction), tally)| {
                let seen = if tally.sends.is_empty() { tally.receives } else { tally.sends };
                let mut at: Vec<i64> = seen.iter().map(|(at, _)| *at).collect();
                at.sort_unstable();
                let gaps = at.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect();
                Some(DirectionSummary {
                    channel,
                    direction,
                    messages: seen.len() as u64,
                    bytes: seen.iter().map(|(_, size)| size).sum(),
                    size_bytes: Spread::of(seen.iter().map(|(_, size)| *size).collect())?,
                    gap_ns: Spread::of(gaps),
                    send_ns: tally.send_ns,
                    receive_ns: tally.receive_ns,
                    think_ns: Spread::of(tally.think_ns),
                    queued_bytes_max: tally.queued,
                })
            })
            .collect();
        directions.sort_by_key(|d| (std::cmp::Reverse(d.messages), d.channel, d.direction));
        Summary {
            directions,
            processes: shares.into_values().collect(),
            span_ns: last.saturating_sub(first).max(0).unsigned_abs(),
        }
    }
}
