//! The calls on a recorded channel: which messages they carried, and in which order each end made them.

use std::collections::{HashMap, HashSet, VecDeque};

use crossway_observe::recording::{Direction, Event, Operation, Recording};

/// A message, in the order of the sends.
pub(super) struct Message {
    /// Its direction: 0 from the channel's first end, 1 from the second one.
    pub(super) direction: usize,
    pub(super) size: u64,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: Option<u32>,
    /// Whether its thread waited for something else before it.
    pub(super) idle: bool,
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
}

/// The calls on a channel.
pub(super) struct Calls<'a> {
    /// With the number of the row, and whether the thread waited for something else since its previous call here.
    events: Vec<(usize, &'a Event, bool)>,
    /// Threads that received something here.
    pub(super) receivers: HashSet<u32>,
}

impl<'a> Calls<'a> {
    pub(super) fn of(recording: &'a Recording, channel: u32) -> Calls<'a> {
        let mut waited: HashSet<u32> = HashSet::new();
        let mut events = Vec::new();
        let mut receivers = HashSet::new();
        for (row, event) in recording.events.iter().enumerate() {
            let moves = event.operation != Operation::Wait && event.size_bytes > 0;
            if event.channel != Some(channel) || !moves {
                waited.insert(event.thread);
                continue;
            }
            if event.operation == Operation::Receive {
                receivers.insert(event.thread);
            }
            events.push((row, event, waited.remove(&event.thread)));
        }
        Calls { events, receivers }
    }

    /// Whether any call was recorded at this end.
    pub(super) fn has_end(&self, end: usize) -> bool {
        self.events.iter().any(|(_, event, _)| end_of(event) == end)
    }

    /// The messages of both directions: what was sent or, if the sending end was not recorded, what was received.
    pub(super) fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        for direction in [0, 1] {
            let of = |operation| {
                self.events.iter().filter(move |(_, event, _)| {
                    direction_of(event) == direction && event.operation == operation
                })
            };
            let sends = of(Operation::Send).next().is_some();
            let operation = if sends { Operation::Send } else { Operation::Receive };
            for (_, event, idle) in of(operation) {
                let end_ns = returned(event);
                messages.push(Message {
                    direction,
                    size: event.size_bytes,
                    begin_ns: if sends { event.at_ns } else { end_ns },
                    end_ns,
                    thread: sends.then_some(event.thread),
                    idle: *idle,
                });
            }
        }
        messages
    }

    /// The steps of both ends in their order, and the bytes that were received without having been sent.
    pub(super) fn ops(&self, messages: &[Message], seen: [bool; 2]) -> ([Vec<Op>; 2], u64) {
        let mut ops: [Vec<Op>; 2] = [Vec::new(), Vec::new()];
        let mut unseen = 0;
        for (number, message) in messages.iter().enumerate() {
            let (key_ns, end_ns) = (message.begin_ns, message.end_ns);
            ops[message.direction].push(Op { key_ns, message: number, sends: true, end_ns });
        }
        for direction in [0, 1] {
            let numbers = || (0..messages.len()).filter(|n| messages[*n].direction == direction);
            let receiver = &mut ops[1 - direction];
            let mut left: VecDeque<(usize, u64)> = numbers()
                .scan(0u64, |end, number| {
                    *end += messages[number].size;
                    Some((number, *end))
                })
                .collect();
            if !seen[1 - direction] {
                // The unseen end receives what the other one sends as it is sent.
                receiver.extend(left.drain(..).map(|(message, _)| {
                    let key_ns = messages[message].begin_ns;
                    Op { key_ns, message, sends: false, end_ns: key_ns }
                }));
                continue;
            }
            let (mut got, mut sent) = (0u64, 0u64);
            let mut upcoming = numbers().peekable();
            for (_, event, _) in self.events.iter().filter(|(_, event, _)| {
                direction_of(event) == direction && event.operation == Operation::Receive
            }) {
                let at = returned(event);
                while let Some(number) = upcoming.next_if(|n| messages[*n].begin_ns <= at) {
                    sent += messages[number].size;
                }
                got += event.size_bytes;
                // More than was seen sent: it was sent before the recording began.
                unseen += got.saturating_sub(sent);
                got = got.min(sent);
                while let Some((message, _)) = left.front().copied().filter(|(_, end)| *end <= got)
                {
                    left.pop_front();
                    receiver.push(Op { key_ns: at, message, sends: false, end_ns: at });
                }
            }
            // What was not seen received is received at the end.
            receiver.extend(left.into_iter().map(|(message, _)| Op {
                key_ns: i64::MAX,
                message,
                sends: false,
                end_ns: i64::MAX,
            }));
        }
        for ops in &mut ops {
            ops.sort_by_key(|op| op.key_ns);
        }
        (ops, unseen)
    }

    /// The times of the exchanges, ascending, without the method's cost, and its share of them.
    pub(super) fn exchanges(
        &self,
        client: &[Op],
        messages: &[Message],
        begins: &[u32],
        cost_ns: Option<u64>,
    ) -> (Vec<u64>, Option<f64>) {
        let mut spans: Vec<(i64, i64)> = Vec::with_capacity(begins.len());
        for op in client {
            if op.sends && begins.binary_search(&(op.message as u32)).is_ok() {
                spans.push((messages[op.message].begin_ns, i64::MIN));
            } else if let Some((_, end)) = spans.last_mut().filter(|_| !op.sends) {
                *end = (*end).max(op.end_ns);
            }
        }
        spans.retain(|(begin, end)| end > begin && *end != i64::MAX);
        let returns: Vec<i64> = {
            let mut all: Vec<i64> = self.events.iter().map(|(_, e, _)| returned(e)).collect();
            all.sort_unstable();
            all
        };
        let (mut whole, mut of_method) = (0u64, 0u64);
        let mut times: Vec<u64> = spans
            .into_iter()
            .map(|(begin, end)| {
                let ns = end.saturating_sub(begin).unsigned_abs();
                let calls = returns.partition_point(|at| *at <= end)
                    - returns.partition_point(|at| *at <= begin);
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

    /// The CPU on which most calls of an end returned; `None` if they have no CPU.
    pub(super) fn usual_cpu(&self, end: usize) -> Option<u32> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for cpu in
            self.events.iter().filter(|(_, e, _)| end_of(e) == end).filter_map(|(_, e, _)| e.cpu)
        {
            *counts.entry(cpu).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(cpu, n)| (*n, std::cmp::Reverse(*cpu))).map(|(cpu, _)| cpu)
    }
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

fn direction_of(event: &Event) -> usize {
    usize::from(event.direction == Direction::Backward)
}

/// The end at which the call was made.
fn end_of(event: &Event) -> usize {
    let direction = direction_of(event);
    if event.operation == Operation::Send { direction } else { 1 - direction }
}

fn returned(event: &Event) -> i64 {
    event.at_ns.saturating_add_unsigned(event.call_ns)
}
