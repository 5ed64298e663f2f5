//! From the calls on recorded channels to the steps of the roles.
//!
//! A send is a message. The role that receives gets it when it has received that many bytes, in however many calls. What
//! a role does in the recording, it does in the same order in the replay: so a reply waits for its request, and a
//! closed loop stays closed. Between two steps lies what the program did in between: it computed, or waited for
//! something else. A thread that sends without ever receiving on these channels is an open loop: its messages have their
//! times, unless it was the channel itself that held it back.

use crossway_observe::recording::Recording;
use crossway_records::inputs::ReplayShape;

use super::calls::{Calls, Message, Op};
use super::roles::Cast;
use super::{AS_FAST_AS_POSSIBLE, Recorded, RecordedChannel};
use crossway_loops::{Exchange, Script, Step, When};

/// Most messages of a script: more would not fit into the order with which a role gets it.
const MOST_MESSAGES: usize = 300_000;
/// A pause without a call is computing up to this length, nanoseconds; a longer one is a sleep.
const COMPUTING_NS: u64 = 1_000_000;

/// Why a channel cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    /// Nothing was sent or received.
    #[error("it carried no message; choose another one")]
    Silent,
    /// A message is too large.
    #[error("a message has {0} bytes, and the largest that can be replayed has 1 GiB")]
    TooLarge(u64),
    /// The order of its calls is impossible.
    #[error(
        "its times contradict its order, as if a message had been received before it was sent; the clock may have been \
         set while it was recorded; record again"
    )]
    Contradictory,
    /// Only one end was recorded, which is enough only for a channel by itself.
    #[error(
        "only one of its ends was recorded, which can be replayed by itself but not together with other channels; leave \
         it out, or record both processes"
    )]
    OneEnd,
    /// Both ends are played by the same role.
    #[error(
        "both of its ends belong to one thread, or to threads that share an end of another one of the channels; leave \
         it out"
    )]
    OneRole,
}

/// Compiled channels.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) script: Script,
    pub(super) recorded: Recorded,
    pub(super) shape: ReplayShape,
    pub(super) remarks: Vec<String>,
}

pub(super) fn compile(
    recording: &Recording,
    cast: &Cast,
    speed_percent: u32,
) -> Result<Compiled, Unplayable> {
    let cost_ns = recording.head.method.cost_ns_per_call;
    let mut remarks = Vec::new();
    let calls = Calls::of(recording, &cast.channels);
    let mut messages = calls.messages(cast.channels.len());
    if let Some(large) = messages.iter().find(|m| m.size > 1 << 30) {
        return Err(Unplayable::TooLarge(large.size));
    }
    messages.sort_by_key(|m| m.begin_ns);
    if messages.len() > MOST_MESSAGES {
        remarks.push(format!(
            "of {} messages, the first {MOST_MESSAGES} are replayed",
            messages.len()
        ));
        messages.truncate(MOST_MESSAGES);
    }
    let seen: Vec<[bool; 2]> = (0..cast.channels.len())
        .map(|channel| [0, 1].map(|end| calls.has_end(channel, end)))
        .collect();
    let seen_role = |role: usize| {
        seen.iter()
            .zip(&cast.ends)
            .all(|(seen, ends)| seen.iter().zip(ends).all(|(seen, of)| *seen || *of != role))
    };
    if seen.as_flattened().contains(&false) {
        remarks.push(
            "only one end of the channel was recorded: what the other one does between receiving and sending is \
             unknown, so it answers at once"
                .to_owned(),
        );
    }
    let (ops, unseen_bytes) = calls.ops(&messages, cast, &seen);
    if unseen_bytes > 0 {
        remarks.push(format!(
            "{unseen_bytes} bytes were received without having been seen sent, as if sent before the recording began; \
             they are not replayed"
        ));
    }
    check_order(&ops, messages.len())?;
    let talks = talks(&ops, &messages, cast);
    let mut begins: Vec<u32> = talks.iter().flat_map(|talk| talk.begins.iter().copied()).collect();
    begins.sort_unstable();
    let origin_ns = messages[0].begin_ns;
    let speed = Speed(speed_percent);
    let whens: Vec<When> = {
        let mut whens = vec![When::Now; messages.len()];
        for (role, ops) in ops.iter().enumerate() {
            let seen = seen_role(role);
            let held_back = held_back(ops, &messages, cost_ns.unwrap_or(0));
            let mut former: Option<&Op> = None;
            for op in ops {
                if op.sends && speed_percent != AS_FAST_AS_POSSIBLE {
                    let message = &messages[op.message];
                    let pause = former.map(|f| {
                        let ns = message.begin_ns.saturating_sub(f.end_ns).max(0).unsigned_abs();
                        ns.saturating_sub(cost_ns.unwrap_or(0) + message.looked_ns)
                    });
                    let open = message.thread.is_none_or(|t| !calls.receivers.contains(&t))
                        && (seen || begins.is_empty())
                        && !held_back;
                    whens[op.message] = if open {
                        let at = message.begin_ns.saturating_sub(origin_ns).max(0).unsigned_abs();
                        When::At(speed.scale(at))
                    } else {
                        match pause.filter(|_| seen).map(|ns| speed.scale(ns)) {
                            None | Some(0) => When::Now,
                            Some(ns) if message.idle || ns > COMPUTING_NS => When::Idle(ns),
                            Some(ns) => When::Busy(ns),
                        }
                    };
                }
                former = Some(op);
            }
        }
        whens
    };
    let last_ns = ops.iter().flatten().map(|op| op.end_ns).filter(|ns| *ns != i64::MAX).max();
    let span = last_ns.unwrap_or(origin_ns).saturating_sub(origin_ns).max(1).unsigned_abs();
    let span_ns = speed.scale(span);
    let mut marks: Vec<Option<Exchange>> = vec![None; messages.len()];
    for talk in &talks {
        talk.begins.iter().for_each(|m| marks[*m as usize] = Some(Exchange::Begins));
        talk.spans.iter().for_each(|span| marks[span.last as usize] = Some(Exchange::Ends));
    }
    let steps = |ops: &Vec<Op>| -> Vec<Step> {
        let step = |op: &Op| {
            let when = whens[op.message];
            let sends = |mark: &Exchange| (*mark == Exchange::Begins) == op.sends;
            Step {
                message: op.message as u32,
                size: messages[op.message].size as u32,
                channel: messages[op.message].channel as u16,
                when: op.sends.then_some(when),
                due_ns: match when {
                    When::At(ns) if !op.sends => Some(ns),
                    _ => None,
                },
                polled: op.polled,
                exchange: marks[op.message].filter(sends),
            }
        };
        ops.iter().map(step).collect()
    };
    let timed = whens.iter().any(|when| matches!(when, When::At(_)));
    let shape = match (begins.is_empty(), timed) {
        (false, _) => ReplayShape::Exchanges,
        (true, true) => ReplayShape::Stream,
        (true, false) => ReplayShape::Bulk,
    };
    let script = Script {
        roles: ops.iter().map(steps).collect(),
        channels: (0..cast.channels.len())
            .map(|channel| {
                let end = cast.connects(channel);
                [end, 1 - end].map(|end| cast.ends[channel][end] as u16)
            })
            .collect(),
        conversations: cast.conversations.iter().map(|first| *first as u16).collect(),
        messages: messages.len() as u32,
        begins,
        span_ns,
    };
    let clients = script.clients();
    let mut shares = Vec::new();
    let recorded_channels = (0..cast.channels.len())
        .map(|channel| {
            let number = cast.channels[channel];
            let talk = talks.iter().find(|talk| talk.conversation == channel);
            let spans = talk.filter(|_| !seen.as_flattened().contains(&false));
            let spans: Vec<(i64, i64)> = spans.map_or(Vec::new(), |talk| talk.times());
            let own = |other: usize| cast.conversations[other] == cast.conversations[channel];
            let (exchanges_ns, share) = calls.exchanges(&spans, own, cost_ns);
            shares.extend(share);
            RecordedChannel {
                number,
                carrier: recording.head.channels[number as usize].carrier.clone(),
                exchanges_ns,
                by_client: clients[usize::from(script.channels[channel][0])],
            }
        })
        .collect();
    let recorded = Recorded {
        channels: recorded_channels,
        sent_ns: messages
            .iter()
            .map(|m| speed.scale(m.begin_ns.saturating_sub(origin_ns).max(0).unsigned_abs()))
            .collect(),
        sizes: messages.iter().map(|m| m.size as u32).collect(),
        ways: messages
            .iter()
            .map(|m| (m.channel as u16, m.direction == cast.connects(m.channel)))
            .collect(),
        // The largest one: no channel is disturbed more.
        method_share: shares.into_iter().reduce(f64::max),
        span_ns,
        cpus: (0..cast.roles).map(|role| calls.usual_cpu(cast, role)).collect(),
    };
    Ok(Compiled { script, recorded, shape, remarks })
}

/// The factor by which a replay is faster than the recording.
struct Speed(u32);

impl Speed {
    fn scale(&self, ns: u64) -> u64 {
        match self.0 {
            AS_FAST_AS_POSSIBLE => 0,
            100 => ns,
            percent => (u128::from(ns) * 100 / u128::from(percent)) as u64,
        }
    }
}

/// Performs the steps of all roles in thought: each message must be sent before it is received.
fn check_order(ops: &[Vec<Op>], messages: usize) -> Result<(), Unplayable> {
    let mut sent = vec![false; messages];
    let mut at = vec![0usize; ops.len()];
    loop {
        let before = at.clone();
        for (ops, at) in ops.iter().zip(&mut at) {
            while let Some(op) = ops.get(*at) {
                if op.sends {
                    sent[op.message] = true;
                } else if !sent[op.message] {
                    break;
                }
                *at += 1;
            }
        }
        if ops.iter().zip(&at).all(|(ops, at)| ops.len() == *at) {
            return Ok(());
        }
        if at == before {
            return Err(Unplayable::Contradictory);
        }
    }
}

/// The exchanges of a conversation.
struct Talk {
    conversation: usize,
    /// The messages with which they begin.
    begins: Vec<u32>,
    /// Those that had an answer.
    spans: Vec<Span>,
}

/// An exchange with an answer.
struct Span {
    begin_ns: i64,
    end_ns: i64,
    /// The last message that was received.
    last: u32,
}

impl Talk {
    /// Begin and end of the exchanges whose end was seen.
    fn times(&self) -> Vec<(i64, i64)> {
        let seen = self.spans.iter().filter(|s| s.end_ns > s.begin_ns && s.end_ns != i64::MAX);
        seen.map(|span| (span.begin_ns, span.end_ns)).collect()
    }
}

/// The exchanges of each conversation in which both roles send. The role that connects begins one with its first message
/// there, and with each that follows something that it received there.
fn talks(ops: &[Vec<Op>], messages: &[Message], cast: &Cast) -> Vec<Talk> {
    let mut talks: Vec<Talk> = Vec::new();
    for conversation in 0..cast.channels.len() {
        let belongs = |op: &&Op| cast.conversations[messages[op.message].channel] == conversation;
        let client = cast.ends[conversation].into_iter().min().unwrap_or_default();
        let own: Vec<&Op> = ops[client].iter().filter(belongs).collect();
        if own.iter().all(|op| op.sends) || own.iter().all(|op| !op.sends) {
            continue;
        }
        let mut talk = Talk { conversation, begins: Vec::new(), spans: Vec::new() };
        let mut begun: Option<(i64, bool)> = None;
        for op in own {
            match &mut begun {
                Some((_, answered)) if op.sends && !*answered => {}
                _ if op.sends => {
                    talk.begins.push(op.message as u32);
                    begun = Some((messages[op.message].begin_ns, false));
                }
                Some((begin_ns, answered)) => {
                    let last = op.message as u32;
                    let end_ns = op.end_ns;
                    match talk.spans.last_mut().filter(|_| *answered) {
                        Some(span) => (span.end_ns, span.last) = (span.end_ns.max(end_ns), last),
                        None => talk.spans.push(Span { begin_ns: *begin_ns, end_ns, last }),
                    }
                    *answered = true;
                }
                None => {}
            }
        }
        talks.push(talk);
    }
    talks
}

/// Whether an end that sends message after message spent more time in its sends than between them: then the channel
/// decides how fast it is, not the program.
fn held_back(ops: &[Op], messages: &[Message], cost_ns: u64) -> bool {
    let (mut inside, mut between) = (0u64, 0u64);
    for pair in ops.windows(2) {
        if !(pair[0].sends && pair[1].sends) {
            continue;
        }
        let (a, b) = (&messages[pair[0].message], &messages[pair[1].message]);
        let span = |from: i64, to: i64| {
            to.saturating_sub(from).max(0).unsigned_abs().saturating_sub(cost_ns)
        };
        inside += span(a.begin_ns, a.end_ns);
        between += span(a.end_ns, b.begin_ns);
    }
    inside > between
}
