//! Finds the flows of a recording.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crossway_observe::recording::{Direction, Event, Kinship, Operation, Recording};

use super::{Flow, shape};
use crossway_lab::replay::{Channels, Replay, first_directions};
use crossway_records::inputs::ReplayShape;
use crossway_records::sorting::SortSmall;

/// What an exchange of a channel has so far.
#[derive(Default)]
struct Open {
    begin_ns: i64,
    end_ns: i64,
    sent: u64,
    received: u64,
}

/// Calls of a thread that belong together.
struct Waited {
    calls: u64,
    ns: u64,
    /// `None` if it is unknown.
    off_cpu_ns: Option<u64>,
}

impl Default for Waited {
    fn default() -> Self {
        Waited { calls: 0, ns: 0, off_cpu_ns: Some(0) }
    }
}

impl Waited {
    fn add(&mut self, event: &Event) {
        self.calls += 1;
        self.ns += event.call_ns;
        self.off_cpu_ns = self.off_cpu_ns.zip(event.off_cpu_ns).map(|(a, b)| a + b);
    }
}

/// What is known about a channel after all of its calls.
struct Channel {
    number: u32,
    /// The direction of what the end that sends first sends.
    forward: Direction,
    first_ns: i64,
    last_ns: i64,
    messages: u64,
    exchanges: u64,
    sizes: [BTreeMap<u64, u64>; 2],
    open_ns: Option<u64>,
    calls: [u64; 2],
    in_calls_ns: [u64; 2],
    off_cpu_ns: [Option<u64>; 2],
    cpus: [HashMap<u32, u64>; 2],
    open: Option<Open>,
    /// Whether the client's calls were recorded; otherwise, the server's stand in.
    client_seen: bool,
    /// Whether messages flow in both directions.
    both: bool,
}

/// What the channels of a flow have in common: carrier, processes, and whether messages flow in both directions.
type Kind = (String, [Option<u32>; 2], bool);

/// The flows of a recording: those between two recorded processes first, and of these the one that took the most time.
pub fn flows(recording: &Recording) -> Vec<Flow> {
    let channels = channels(recording);
    let mut groups: BTreeMap<Kind, Vec<Channel>> = BTreeMap::new();
    for channel in channels {
        let about = &recording.head.channels[channel.number as usize];
        let (from, to) = match channel.forward {
            Direction::Forward => (&about.from, &about.to),
            Direction::Backward => (&about.to, &about.from),
        };
        let ends = [from.first().copied(), to.first().copied()];
        if ends[0].is_some() && ends[0] == ends[1] {
            // With itself, a process has other means.
            continue;
        }
        groups.entry((about.carrier.clone(), ends, channel.both)).or_default().push(channel);
    }
    let mut flows: Vec<Flow> = groups
        .into_iter()
        .map(|((carrier, ends, both), group)| put_together(recording, carrier, ends, both, group))
        .collect();
    // What goes to a process that was not recorded is the smaller part of the story.
    flows.sort_small_by_key(|flow| {
        let whole = flow.ends.iter().all(Option::is_some);
        std::cmp::Reverse((whole, flow.in_calls_ns.iter().sum::<u64>()))
    });
    flows
}

fn put_together(
    recording: &Recording,
    carrier: String,
    ends: [Option<u32>; 2],
    both: bool,
    mut group: Vec<Channel>,
) -> Flow {
    group.sort_small_by_key(|channel| (std::cmp::Reverse(channel.messages), channel.number));
    let busiest = group[0].number;
    // A stream that the program paces differs from one that the channel holds back.
    let one_way = || {
        let replay = {
            let channel = Channels::These(vec![busiest]);
            Replay::of(recording, Path::new("recording"), &channel, 100).ok()
        };
        replay.as_ref().and_then(shape).unwrap_or(ReplayShape::Bulk)
    };
    let shape = if both { ReplayShape::Exchanges } else { one_way() };
    let merged = |of: fn(&Channel) -> &BTreeMap<u64, u64>| {
        let mut all = BTreeMap::new();
        for (size, count) in group.iter().flat_map(of) {
            *all.entry(*size).or_default() += count;
        }
        all
    };
    let total = |of: &dyn Fn(&Channel) -> u64| group.iter().map(of).sum::<u64>();
    let first = group.iter().map(|c| c.first_ns).min().unwrap_or(0);
    let last = group.iter().map(|c| c.last_ns).max().unwrap_or(0);
    let usual_cpu = |end: usize| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for (cpu, count) in group.iter().flat_map(|c| &c.cpus[end]) {
            *counts.entry(*cpu).or_default() += count;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(cpu, _)| cpu)
    };
    let both_ends = ends[0].zip(ends[1]);
    Flow {
        channels: group.iter().map(|c| c.number).collect(),
        carrier,
        ends,
        names: ends.map(|end| {
            end.map_or("a process that was not recorded".to_owned(), |end| recording.process(end))
        }),
        kinship: both_ends.map_or(Kinship::Unknown, |(a, b)| recording.head.kinship(a, b)),
        namespaces: both_ends.and_then(|(a, b)| recording.head.namespaces(a, b)),
        shape,
        exchanges: total(&|c| if both { c.exchanges } else { c.messages }),
        requests: merged(|c| &c.sizes[0]),
        replies: merged(|c| &c.sizes[1]),
        span_ns: last.saturating_sub(first).max(0).unsigned_abs(),
        open_ns: group.iter().map(|c| c.open_ns).sum(),
        calls: [0, 1].map(|end| total(&|c| c.calls[end])),
        in_calls_ns: [0, 1].map(|end| total(&|c| c.in_calls_ns[end])),
        off_cpu_ns: [0, 1].map(|end| group.iter().map(|c| c.off_cpu_ns[end]).sum()),
        cpus: [0, 1].map(usual_cpu),
        awake: 1.0,
    }
}

fn channels(recording: &Recording) -> Vec<Channel> {
    let mut channels: HashMap<u32, Channel> = HashMap::new();
    prepare(recording, &mut channels);
    // A wait belongs to the channel from which its thread receives next.
    let mut waited: HashMap<u32, Waited> = HashMap::new();
    for event in &recording.events {
        let number = event.channel.filter(|_| event.operation != Operation::Wait);
        let Some(channel) = number.and_then(|number| channels.get_mut(&number)) else {
            waited.entry(event.thread).or_default().add(event);
            continue;
        };
        channel.take(event, waited.remove(&event.thread));
    }
    let mut channels: Vec<Channel> = channels
        .into_values()
        .filter(|channel| channel.messages > 0)
        .map(|mut channel| {
            channel.close();
            channel
        })
        .collect();
    channels.sort_small_by_key(|channel| channel.number);
    channels
}

/// Creates the channels, and finds out who sends first on each.
fn prepare(recording: &Recording, channels: &mut HashMap<u32, Channel>) {
    let forward = first_directions(recording);
    for event in &recording.events {
        let Some(number) = event.channel.filter(|_| event.operation != Operation::Wait) else {
            continue;
        };
        let at = channels.entry(number).or_insert_with(|| Channel {
            number,
            forward: forward.get(&number).copied().unwrap_or(event.direction),
            first_ns: event.at_ns,
            last_ns: event.at_ns,
            messages: 0,
            exchanges: 0,
            sizes: Default::default(),
            open_ns: None,
            calls: [0; 2],
            in_calls_ns: [0; 2],
            off_cpu_ns: [Some(0); 2],
            cpus: Default::default(),
            open: None,
            client_seen: false,
            both: false,
        });
        at.first_ns = at.first_ns.min(event.at_ns);
        at.both |= event.direction != at.forward;
        at.client_seen |= (event.operation == Operation::Send) == (event.direction == at.forward);
    }
}

impl Channel {
    /// 0 at the end that sends first.
    fn end_of(&self, event: &Event) -> usize {
        let forward = event.direction == self.forward;
        usize::from((event.operation == Operation::Send) != forward)
    }

    fn take(&mut self, event: &Event, waited: Option<Waited>) {
        let end = self.end_of(event);
        let returned = event.at_ns.saturating_add_unsigned(event.call_ns);
        self.last_ns = self.last_ns.max(returned);
        let mut all = waited.filter(|_| event.operation == Operation::Receive).unwrap_or_default();
        all.add(event);
        self.calls[end] += all.calls;
        self.in_calls_ns[end] += all.ns;
        let off_cpu = self.off_cpu_ns[end].zip(all.off_cpu_ns);
        self.off_cpu_ns[end] = off_cpu.map(|(before, more)| before + more);
        if let Some(cpu) = event.cpu {
            *self.cpus[end].entry(cpu).or_default() += 1;
        }
        // The end whose calls tell what an exchange is.
        let teller = usize::from(!self.client_seen);
        let sends = event.operation == Operation::Send;
        let forward = event.direction == self.forward;
        if !self.both {
            let counted = if self.client_seen { sends } else { !sends };
            if counted {
                self.messages += 1;
                *self.sizes[0].entry(event.size_bytes).or_default() += 1;
            }
            return;
        }
        self.messages += u64::from(sends || !self.client_seen);
        if end != teller || event.size_bytes == 0 {
            return;
        }
        let answered = self.open.as_ref().is_some_and(|open| open.received > 0);
        if forward && (answered || self.open.is_none()) {
            self.close();
            self.open =
                Some(Open { begin_ns: event.at_ns, end_ns: event.at_ns, ..Open::default() });
        }
        if let Some(open) = &mut self.open {
            if forward {
                open.sent += event.size_bytes;
            } else {
                open.received += event.size_bytes;
                open.end_ns = returned;
            }
        }
    }

    /// Ends the exchange that is open, if it was answered.
    fn close(&mut self) {
        let Some(open) = self.open.take().filter(|open| open.received > 0) else { return };
        self.exchanges += 1;
        *self.sizes[0].entry(open.sent).or_default() += 1;
        *self.sizes[1].entry(open.received).or_default() += 1;
        if self.client_seen {
            let ns = open.end_ns.saturating_sub(open.begin_ns).max(0).unsigned_abs();
            self.open_ns = Some(self.open_ns.unwrap_or(0) + ns);
        }
    }
}
