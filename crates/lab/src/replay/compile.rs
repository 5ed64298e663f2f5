//! From the calls on a recorded channel to the steps of both ends.
//!
//! A send is a message. The end that receives gets it when it has received that many bytes, in however many calls. What
//! an end does in the recording, it does in the same order in the replay: so a reply waits for its request, and a
//! closed loop stays closed. Between two steps lies what the program did in between: it computed, or waited for
//! something else. A thread that sends without ever receiving on the channel is an open loop: its messages have their
//! times, unless it was the channel itself that held it back.

use crossway_observe::recording::{Direction, Recording};
use crossway_records::inputs::ReplayShape;

use super::calls::{Calls, Message, Op, first_directions};
use super::script::{Script, Step, When};
use super::{AS_FAST_AS_POSSIBLE, Recorded};

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
}

/// A compiled channel.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) script: Script,
    pub(super) recorded: Recorded,
    pub(super) shape: ReplayShape,
    pub(super) remarks: Vec<String>,
}

pub(super) fn compile(
    recording: &Recording,
    channel: u32,
    speed_percent: u32,
) -> Result<Compiled, Unplayable> {
    let cost_ns = recording.head.method.cost_ns_per_call;
    let mut remarks = Vec::new();
    let calls = Calls::of(recording, channel);
    let mut messages = calls.messages();
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
    let Some(first) = first_directions(recording).remove(&channel) else {
        return Err(Unplayable::Silent);
    };
    let client = usize::from(first == Direction::Backward);
    let seen = [calls.has_end(0), calls.has_end(1)];
    if seen.contains(&false) {
        remarks.push(
            "only one end of the channel was recorded: what the other one does between receiving and sending is \
             unknown, so it answers at once"
                .to_owned(),
        );
    }
    let (ops, unseen_bytes) = calls.ops(&messages, seen);
    if unseen_bytes > 0 {
        remarks.push(format!(
            "{unseen_bytes} bytes were received without having been seen sent, as if sent before the recording began; \
             they are not replayed"
        ));
    }
    check_order(&ops, messages.len())?;
    let begins = begins(&ops[client], &messages, client);
    let origin_ns = messages[0].begin_ns;
    let held_back = [0, 1].map(|end| held_back(&ops[end], &messages, cost_ns.unwrap_or(0)));
    let speed = Speed(speed_percent);
    let whens: Vec<When> = {
        let mut whens = vec![When::Now; messages.len()];
        for (end, ops) in ops.iter().enumerate() {
            let mut former: Option<&Op> = None;
            for op in ops {
                if op.sends && speed_percent != AS_FAST_AS_POSSIBLE {
                    let message = &messages[op.message];
                    let pause = former.map(|f| {
                        let ns = message.begin_ns.saturating_sub(f.end_ns).max(0).unsigned_abs();
                        ns.saturating_sub(cost_ns.unwrap_or(0))
                    });
                    let open = message.thread.is_none_or(|t| !calls.receivers.contains(&t))
                        && (seen[end] || begins.is_empty())
                        && !held_back[end];
                    whens[op.message] = if open {
                        let at = message.begin_ns.saturating_sub(origin_ns).max(0).unsigned_abs();
                        When::At(speed.scale(at))
                    } else {
                        match pause.filter(|_| seen[end]).map(|ns| speed.scale(ns)) {
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
    let steps = |end: usize| -> Vec<Step> {
        let step = |op: &Op| {
            let when = whens[op.message];
            Step {
                message: op.message as u32,
                size: messages[op.message].size as u32,
                when: op.sends.then_some(when),
                due_ns: match when {
                    When::At(ns) if !op.sends => Some(ns),
                    _ => None,
                },
            }
        };
        ops[end].iter().map(step).collect()
    };
    let timed = whens.iter().any(|when| matches!(when, When::At(_)));
    let shape = match (begins.is_empty(), timed) {
        (false, _) => ReplayShape::Exchanges,
        (true, true) => ReplayShape::Stream,
        (true, false) => ReplayShape::Bulk,
    };
    let (exchanges_ns, method_share) = match seen {
        [true, true] => calls.exchanges(&ops[client], &messages, &begins, cost_ns),
        _ => (Vec::new(), None),
    };
    let cpu = |end| calls.usual_cpu(end);
    let recorded = Recorded {
        carrier: recording.head.channels[channel as usize].carrier.clone(),
        sent_ns: messages
            .iter()
            .map(|m| speed.scale(m.begin_ns.saturating_sub(origin_ns).max(0).unsigned_abs()))
            .collect(),
        sizes: messages.iter().map(|m| m.size as u32).collect(),
        by_client: messages.iter().map(|m| m.direction == client).collect(),
        exchanges_ns,
        method_share,
        span_ns,
        cpus: [cpu(client), cpu(1 - client)],
    };
    let script = Script {
        ends: [steps(client), steps(1 - client)],
        messages: messages.len() as u32,
        begins,
        span_ns,
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

/// Performs the steps of both ends in thought: each message must be sent before it is received.
fn check_order(ops: &[Vec<Op>; 2], messages: usize) -> Result<(), Unplayable> {
    let mut sent = vec![false; messages];
    let mut at = [0usize; 2];
    loop {
        let before = at;
        for end in [0, 1] {
            while let Some(op) = ops[end].get(at[end]) {
                if op.sends {
                    sent[op.message] = true;
                } else if !sent[op.message] {
                    break;
                }
                at[end] += 1;
            }
        }
        if at == [ops[0].len(), ops[1].len()] {
            return Ok(());
        }
        if at == before {
            return Err(Unplayable::Contradictory);
        }
    }
}

/// The messages with which the end that sends first begins an exchange: its first one, and each that follows something
/// that it received. Empty if the other end sends nothing.
fn begins(client: &[Op], messages: &[Message], end: usize) -> Vec<u32> {
    if messages.iter().all(|m| m.direction == end) {
        return Vec::new();
    }
    let mut begins = Vec::new();
    let mut open = false;
    for op in client {
        if op.sends && !open {
            begins.push(op.message as u32);
        }
        open = op.sends;
    }
    begins.sort_unstable();
    begins
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
