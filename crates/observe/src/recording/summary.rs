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

/// A channel in one direction, or several of the same kind between the same processes.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSummary {
    /// The channel; of several, the one with the most messages.
    pub channel: u32,
    /// Number of channels.
    pub channels: usize,
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
    /// Of these times, the one in which the calling thread had no CPU; `None` if the method does not know.
    pub off_cpu_ns: Option<u64>,
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
    /// CPU time of all its threads, also outside of these calls, nanoseconds; `None` if it is not known.
    pub cpu_ns: Option<u64>,
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
    off_cpu_ns: Option<u64>,
    think_ns: Vec<u64>,
    queued: Option<u64>,
}

/// What is known of one channel in one direction, or of several.
#[derive(Default)]
struct Pool {
    sizes: Vec<u64>,
    gaps: Vec<u64>,
    think_ns: Vec<u64>,
    send_ns: u64,
    receive_ns: u64,
    off_cpu_ns: Option<u64>,
    queued: Option<u64>,
    /// The channels and their numbers of messages.
    channels: Vec<(u32, usize)>,
}

/// The sum of what is known.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.map_or(b, |a| Some(a + b.unwrap_or(0)))
}

impl Pool {
    fn add(&mut self, channel: u32, tally: Tally) {
        let seen = if tally.sends.is_empty() { tally.receives } else { tally.sends };
        let mut at: Vec<i64> = seen.iter().map(|(at, _)| *at).collect();
        at.sort_unstable();
        self.gaps.extend(at.windows(2).map(|pair| pair[1].abs_diff(pair[0])));
        self.channels.push((channel, seen.len()));
        self.sizes.extend(seen.into_iter().map(|(_, size)| size));
        self.think_ns.extend(tally.think_ns);
        self.send_ns += tally.send_ns;
        self.receive_ns += tally.receive_ns;
        self.off_cpu_ns = sum(self.off_cpu_ns, tally.off_cpu_ns);
        self.queued = self.queued.max(tally.queued);
    }

    fn summary(self, direction: Direction) -> Option<DirectionSummary> {
        let busiest =
            self.channels.iter().max_by_key(|(channel, n)| (n, std::cmp::Reverse(channel)));
        Some(DirectionSummary {
            channel: busiest?.0,
            channels: self.channels.len(),
            direction,
            messages: self.sizes.len() as u64,
            bytes: self.sizes.iter().sum(),
            size_bytes: Spread::of(self.sizes)?,
            gap_ns: Spread::of(self.gaps),
            send_ns: self.send_ns,
            receive_ns: self.receive_ns,
            off_cpu_ns: self.off_cpu_ns,
            think_ns: Spread::of(self.think_ns),
            queued_bytes_max: self.queued,
        })
    }
}

impl DirectionSummary {
    /// The part of the time in its calls in which the calling thread had no CPU: it was blocked, or waited for a CPU.
    /// `None` if the method does not know.
    pub fn off_cpu_share(&self) -> Option<f64> {
        let ns = self.send_ns + self.receive_ns;
        self.off_cpu_ns.filter(|_| ns > 0).map(|off| off as f64 / ns as f64)
    }
}

impl Summary {
    /// Summarises a recording, each channel for itself.
    pub fn of(recording: &Recording) -> Summary {
        Self::pooled(recording, |channel| channel)
    }

    /// Summarises a recording, channels of the same kind between the same processes together. A gap
    /// is still one between two messages of the same channel. Channels with an end that was not
    /// recorded are together only if their names are equal.
    pub fn of_groups(recording: &Recording) -> Summary {
        let mut first = BTreeMap::new();
        let groups: Vec<u32> = (0_u32..)
            .zip(&recording.head.channels)
            .map(|(index, channel)| {
                let is_open = channel.from.is_empty() || channel.to.is_empty();
                let name = if is_open { &channel.name[..] } else { "" };
                let key = (&channel.from, &channel.to, &channel.carrier, name);
                *first.entry(key).or_insert(index)
            })
            .collect();
        Self::pooled(recording, |channel| groups[channel as usize])
    }

    fn pooled(recording: &Recording, group: impl Fn(u32) -> u32) -> Summary {
        let mut tallies: BTreeMap<(u32, Direction), Tally> = BTreeMap::new();
        let mut shares: BTreeMap<u32, ThreadShare> = BTreeMap::new();
        let cpu_ns = recording.head.process_cpu_ns();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for (index, event) in recording.events.iter().enumerate() {
            let end = event.at_ns.saturating_add_unsigned(event.call_ns);
            (first, last) = (first.min(event.at_ns), last.max(end));
            let process = recording.head.threads[event.thread as usize];
            let share = shares.entry(process).or_insert(ThreadShare {
                process,
                in_channels_ns: 0,
                in_waits_ns: 0,
                cpu_ns: cpu_ns.get(process as usize).copied().flatten(),
            });
            let Some(channel) = event.channel.filter(|_| event.operation != Operation::Wait) else {
                share.in_waits_ns += event.call_ns;
                continue;
            };
            share.in_channels_ns += event.call_ns;
            let tally = tallies.entry((channel, event.direction)).or_default();
            tally.off_cpu_ns = sum(tally.off_cpu_ns, event.off_cpu_ns);
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
        let mut pools: BTreeMap<(u32, Direction), Pool> = BTreeMap::new();
        for ((channel, direction), tally) in tallies {
            pools.entry((group(channel), direction)).or_default().add(channel, tally);
        }
        let mut directions: Vec<DirectionSummary> = pools
            .into_iter()
            .filter_map(|((_, direction), pool)| pool.summary(direction))
            .collect();
        directions.sort_by_key(|d| (std::cmp::Reverse(d.messages), d.channel, d.direction));
        Summary {
            directions,
            processes: shares.into_values().collect(),
            span_ns: last.saturating_sub(first).max(0).unsigned_abs(),
        }
    }
}
