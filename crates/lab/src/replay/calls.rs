//! The calls on recorded channels: which messages they carried, and in which order each role made them.

use std::collections::{HashMap, HashSet, VecDeque};

use crossway_observe::recording::{Direction, Event, Operation, Recording};

use super::roles::Cast;
use super::unseen::received_unseen;

/// Of two ends that take turns, each waits for about half of the time. If one sleeps for less than this part of it, it
/// does not wait asleep.
pub const AWAKE: f64 = 0.05;

/// A message, in the order of the sends.
pub(super) struct Message {
    /// Its channel, as a number of the cast.
    pub(super) channel: usize,
    /// Its direction: 0 from the channel's first end, 1 from the second one.
    pub(super) direction: usize,
    pub(super) size: u64,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: Option<u32>,
    /// Whether its thread waited for something else before it.
    pub(super) idle: bool,
    /// Time in which its thread looked before it whether something had come, nanoseconds: see [`Moved::looked_ns`].
    pub(super) looked_ns: u64,
}

/// A step before it is known when it happens.
#[derive(Clone, Copy)]
pub(super) struct Op {
    /// Orders the steps of an end: begin of a send, return of a receive.
    pub(super) key_ns: i64,
    pub(super) message: usize,
    pub(super) sends: bool,
    /// When the call returned.
    pub(super) end_ns: i64,
    /// Whether it receives after the thread had waited until something could be received.
    pub(super) polled: bool,
}

/// A call on one of the channels.
struct Moved<'a> {
    channel: usize,
    event: &'a Event,
    /// Whether the thread waited for something else since its previous call on one of the channels.
    idle: bool,
    /// Whether it waited in poll, epoll or select since then.
    polled: bool,
    /// Time of the waits since then in a thread that never sleeps, with the method's cost, nanoseconds. Such a thread
    /// asks again and again, before a send as well; what it asks is the channel, so this is not its computing.
    looked_ns: u64,
}

/// The calls on channels.
pub(super) struct Calls<'a> {
    moves: Vec<Moved<'a>>,
    /// Threads that received something on one of the channels.
    pub(super) receivers: HashSet<u32>,
    /// When each thread was first seen in a call.
    first_ns: HashMap<u32, i64>,
}

impl<'a> Calls<'a> {
    pub(super) fn of(recording: &'a Recording, channels: &[u32]) -> Calls<'a> {
        let awake = never_asleep(recording);
        let cost_ns = recording.head.method.cost_ns_per_call.unwrap_or(0);
        let mut looked: HashMap<u32, u64> = HashMap::new();
        let places: HashMap<u32, usize> =
            channels.iter().enumerate().map(|(place, channel)| (*channel, place)).collect();
        let [mut waited, mut polled]: [HashSet<u32>; 2] = Default::default();
        let mut moves = Vec::new();
        let mut receivers = HashSet::new();
        let mut first_ns: HashMap<u32, i64> = HashMap::new();
        for event in &recording.events {
            let first = first_ns.entry(event.thread).or_insert(event.at_ns);
            *first = event.at_ns.min(*first);
            let moving = event.operation != Operation::Wait && event.size_bytes > 0;
            let place = event.channel.filter(|_| moving).and_then(|c| places.get(&c));
            let Some(channel) = place.copied() else {
                if event.operation == Operation::Wait && awake.contains(&event.thread) {
                    *looked.entry(event.thread).or_default() += event.call_ns + cost_ns;
                    continue;
                }
                waited.insert(event.thread);
                // A wait on a futex has the channel that its memory is.
                if event.operation == Operation::Wait && event.channel.is_none() {
                    polled.insert(event.thread);
                }
                continue;
            };
            if event.operation == Operation::Receive {
                receivers.insert(event.thread);
            }
            let [idle, polled] = [&mut waited, &mut polled].map(|set| set.remove(&event.thread));
            let looked_ns = looked.remove(&event.thread).unwrap_or(0);
            moves.push(Moved { channel, event, idle, polled, looked_ns });
        }
        Calls { moves, receivers, first_ns }
    }

    /// Whether any call was recorded at this end of a channel.
    pub(super) fn has_end(&self, channel: usize, end: usize) -> bool {
        self.moves.iter().any(|moved| moved.channel == channel && end_of(moved.event) == end)
    }

    /// The calls on a channel in one direction.
    fn those(&self, channel: usize, direction: usize) -> Vec<&Moved<'a>> {
        let of =
            |moved: &&Moved<'a>| moved.channel == channel && direction_of(moved.event) == direction;
        self.moves.iter().filter(of).collect()
    }

    /// The messages of all channels and directions: what was sent or, if the sending end was not recorded, what was
    /// received.
    pub(super) fn messages(&self, channels: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        for (channel, direction) in (0..channels).flat_map(|channel| [(channel, 0), (channel, 1)]) {
            let those = self.those(channel, direction);
            let sends = those.iter().any(|moved| moved.event.operation == Operation::Send);
            let operation = if sends { Operation::Send } else { Operation::Receive };
            for Moved { event, idle, looked_ns, .. } in those {
                if event.operation != operation {
                    continue;
                }
                let end_ns = returned(event);
                messages.push(Message {
                    channel,
                    direction,
                    size: event.size_bytes,
                    begin_ns: if sends { event.at_ns } else { end_ns },
                    end_ns,
                    thread: sends.then_some(event.thread),
                    idle: *idle,
                    looked_ns: *looked_ns,
                });
            }
        }
        messages
    }

    /// The steps of each role in their order, and the bytes that were received without having been sent. `seen`: which
    /// ends of each channel were recorded.
    pub(super) fn ops(
        &self,
        messages: &[Message],
        cast: &Cast,
        seen: &[[bool; 2]],
    ) -> (Vec<Vec<Op>>, u64) {
        let mut ops: Vec<Vec<Op>> = vec![Vec::new(); cast.roles];
        let mut unseen = 0;
        let mut ways: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
        for (number, message) in messages.iter().enumerate() {
            let (key_ns, end_ns) = (message.begin_ns, message.end_ns);
            let role = cast.ends[message.channel][message.direction];
            ops[role].push(Op { key_ns, message: number, sends: true, end_ns, polled: false });
            ways.entry((message.channel, message.direction)).or_default().push(number);
        }
        for ((channel, direction), numbers) in ways {
            let receiver = &mut ops[cast.ends[channel][1 - direction]];
            let ends: Vec<(i64, u64)> = numbers
                .iter()
                .scan(0u64, |end, number| {
                    *end += messages[*number].size;
                    Some((messages[*number].begin_ns, *end))
                })
                .collect();
            let mut left: VecDeque<(usize, u64)> =
                numbers.iter().zip(&ends).map(|(number, (_, end))| (*number, *end)).collect();
            if !seen[channel][1 - direction] {
                // The unseen end receives what the other one sends as it is sent.
                receiver.extend(left.drain(..).map(|(message, _)| {
                    let key_ns = messages[message].begin_ns;
                    Op { key_ns, message, sends: false, end_ns: key_ns, polled: false }
                }));
                continue;
            }
            let mut those = self.those(channel, direction);
            those.retain(|moved| moved.event.operation == Operation::Receive);
            let (mut got, mut sent) = (0u64, 0u64);
            if let Some(first) = those.first() {
                let first_ns = self.first_ns[&first.event.thread];
                let receives = those.iter().map(|m| (returned(m.event), m.event.size_bytes));
                // Received before the thread's first call: the call itself was not seen.
                let at = first_ns.saturating_sub(1);
                got = received_unseen(&ends, receives, first_ns);
                let whole = left.iter().take_while(|(_, end)| *end <= got).count();
                receiver.extend(left.drain(..whole).map(|(message, _)| {
                    let polled = first.polled;
                    Op { key_ns: at, message, sends: false, end_ns: at, polled }
                }));
            }
            let mut upcoming = numbers.iter().peekable();
            for Moved { event, polled, .. } in those {
                let at = returned(event);
                while let Some(number) = upcoming.next_if(|n| messages[**n].begin_ns <= at) {
                    sent += messages[*number].size;
                }
                got += event.size_bytes;
                // More than was seen sent: it was sent before the recording began.
                unseen += got.saturating_sub(sent);
                got = got.min(sent);
                while let Some((message, _)) = left.front().copied().filter(|(_, end)| *end <= got)
                {
                    left.pop_front();
                    let polled = *polled;
                    receiver.push(Op { key_ns: at, message, sends: false, end_ns: at, polled });
                }
            }
            // What was not seen received is received at the end.
            receiver.extend(left.into_iter().map(|(message, _)| Op {
                key_ns: i64::MAX,
                message,
                sends: false,
                end_ns: i64::MAX,
                polled: false,
            }));
        }
        for ops in &mut ops {
            // Independent of the order in which the channels came.
            ops.sort_by_key(|op| (op.key_ns, !op.sends, op.message));
        }
        (ops, unseen)
    }

    /// The times of exchanges, given by begin and end, ascending, without the method's cost, and its share of them. Only
    /// calls on these channels count as a part of them.
    pub(super) fn exchanges(
        &self,
        spans: &[(i64, i64)],
        channels: impl Fn(usize) -> bool,
        cost_ns: Option<u64>,
    ) -> (Vec<u64>, Option<f64>) {
        let returns: Vec<i64> = {
            let those = self.moves.iter().filter(|moved| channels(moved.channel));
            let mut all: Vec<i64> = those.map(|moved| returned(moved.event)).collect();
            all.sort_unstable();
            all
        };
        let (mut whole, mut of_method) = (0u64, 0u64);
        let mut times: Vec<u64> = spans
            .iter()
            .map(|(begin, end)| {
                let ns = end.saturating_sub(*begin).unsigned_abs();
                let calls = returns.partition_point(|at| at <= end)
                    - returns.partition_point(|at| at <= begin);
                let cost = (cost_ns.unwrap_or(0) * calls as u64).min(ns);
                whole += ns;
                of_method += cost;
                ns - cost
            })
            .collect();
        times.sort_unstable();
        let share = cost_ns.filter(|_| whole > 0).map(|_| of_method as f64 / whole as f64);
        (times, share)
    }

    /// The CPU on which most calls of a role returned; `None` if they have no CPU.
    pub(super) fn usual_cpu(&self, cast: &Cast, role: usize) -> Option<u32> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        let those =
            self.moves.iter().filter(|moved| cast.ends[moved.channel][end_of(moved.event)] == role);
        for cpu in those.filter_map(|moved| moved.event.cpu) {
            *counts.entry(cpu).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(cpu, n)| (*n, std::cmp::Reverse(*cpu))).map(|(cpu, _)| cpu)
    }
}

/// The threads that wait, but hardly ever asleep.
fn never_asleep(recording: &Recording) -> HashSet<u32> {
    // Of each thread: begin of the first call, end of the last one, and the time asleep in them.
    let mut threads: HashMap<u32, (i64, i64, Option<u64>)> = HashMap::new();
    let mut waits = HashSet::new();
    for event in &recording.events {
        let fresh = (event.at_ns, event.at_ns, Some(0));
        let (first, last, asleep) = threads.entry(event.thread).or_insert(fresh);
        (*first, *last) = (event.at_ns.min(*first), returned(event).max(*last));
        *asleep = asleep.zip(event.off_cpu_ns).map(|(before, ns)| before + ns);
        if event.operation == Operation::Wait {
            waits.insert(event.thread);
        }
    }
    let awake = |thread: &u32| {
        let (first, last, asleep) = threads[thread];
        let span = last.saturating_sub(first).max(1) as f64;
        asleep.is_some_and(|ns| ns as f64 <= AWAKE * span)
    };
    waits.retain(awake);
    waits
}

/// The direction of the first message of each channel that carried any: that of the end that sends first. What was sent
/// counts from its begin. What was received says who was first only if no send in its direction was recorded: the
/// recording may have begun in the middle of an exchange.
pub fn first_directions(recording: &Recording) -> HashMap<u32, Direction> {
    // Of each direction, the begin of the first send and the return of the first receive.
    let mut firsts: HashMap<u32, [[Option<i64>; 2]; 2]> = HashMap::new();
    for event in recording.events.iter().filter(|event| event.size_bytes > 0) {
        let (Some(channel), at, kind) = (match event.operation {
            Operation::Send => (event.channel, event.at_ns, 0),
            Operation::Receive => (event.channel, returned(event), 1),
            Operation::Wait => continue,
        }) else {
            continue;
        };
        let first = &mut firsts.entry(channel).or_default()[direction_of(event)][kind];
        *first = Some(first.map_or(at, |before| before.min(at)));
    }
    let earlier = |[forward, backward]: [[Option<i64>; 2]; 2]| {
        let begin = |[sent, received]: [Option<i64>; 2]| sent.or(received).unwrap_or(i64::MAX);
        if begin(backward) < begin(forward) { Direction::Backward } else { Direction::Forward }
    };
    firsts.into_iter().map(|(channel, found)| (channel, earlier(found))).collect()
}

pub(super) fn direction_of(event: &Event) -> usize {
    usize::from(event.direction == Direction::Backward)
}

/// The end at which the call was made.
pub(super) fn end_of(event: &Event) -> usize {
    let direction = direction_of(event);
    if event.operation == Operation::Send { direction } else { 1 - direction }
}

pub(super) fn returned(event: &Event) -> i64 {
    event.at_ns.saturating_add_unsigned(event.call_ns)
}
