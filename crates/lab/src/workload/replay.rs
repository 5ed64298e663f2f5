//! Repeats one end of a recorded channel. Everything is prepared before the window: the steps, the places of the
//! messages and what they add up to, and room for the samples. The loop reads the clock only where a pause, a sample or
//! a later step needs it.

use crossway_mech::{Boundaries, Rx, Tx};
use crossway_sys::clock::{monotonic_ns, sleep_until_ns};
use crossway_sys::spin;

use super::metered;
use crate::control::{Outcome, Part, Replayed, Window};
use crate::ends::Ends;
use crate::replay::arena::{Arena, Place, Tally};
use crate::replay::{Script, When};
use crate::role_context::{Distribution, RoleContext, RoleError};
use crossway_records::inputs::Span;

/// Pauses shorter than this are not slept, nanoseconds: going to sleep and waking up takes about as long.
const SLEEP_AT_LEAST_NS: u64 = 100_000;

/// A step, with everything that the loop needs.
#[derive(Clone, Copy, Debug)]
struct Move {
    message: u32,
    when: Option<When>,
    due_ns: Option<u64>,
    /// Whether it begins an exchange.
    begins: bool,
    place: Place,
}

/// One end of a recording, and its messages.
#[derive(Debug)]
pub(crate) struct Player {
    moves: Vec<Move>,
    arena: Arena,
    script: Script,
    /// Numbers of the next message that is sent and received.
    next: [u64; 2],
    tally: Tally,
    gaps_ns: Vec<u64>,
    exchanges_ns: Vec<u64>,
    delays_ns: Vec<u64>,
    first_ns: Option<u64>,
    first_receipt_ns: Option<u64>,
    last_ns: u64,
    computed_ns: u64,
}

impl Player {
    /// Prepares the messages of an end: 0 for the one that sends first.
    pub(crate) fn new(script: Script, end: usize, seed: u64, working_set_bytes: usize) -> Player {
        let arena = Arena::new(&script, seed, working_set_bytes);
        let places = arena.places(&script, end);
        let moves = script.ends[end]
            .iter()
            .zip(places)
            .map(|(step, place)| Move {
                message: step.message,
                when: step.when,
                due_ns: step.due_ns,
                begins: end == 0
                    && step.when.is_some()
                    && script.begins.binary_search(&step.message).is_ok(),
                place,
            })
            .collect();
        Player {
            moves,
            arena,
            script,
            next: [0; 2],
            tally: Tally::default(),
            gaps_ns: Vec::new(),
            exchanges_ns: Vec::new(),
            delays_ns: Vec::new(),
            first_ns: None,
            first_receipt_ns: None,
            last_ns: 0,
            computed_ns: 0,
        }
    }

    /// Allocates and touches the memory for a window's samples, and resets the counters.
    pub(crate) fn prepare(&mut self, messages: u64) {
        let room = self.script.whole_exchanges(messages) as usize;
        let exchanges = self.script.exchanges_in(room as u64) as usize;
        let dues = if self.moves.iter().any(|m| m.due_ns.is_some()) { room } else { 0 };
        for (samples, room) in [
            (&mut self.gaps_ns, room),
            (&mut self.exchanges_ns, exchanges),
            (&mut self.delays_ns, dues),
        ] {
            samples.clear();
            // Filled with a value other than zero, since the allocator would hand out untouched pages for zeros.
            samples.resize(room, 1);
            samples.clear();
        }
        self.tally = Tally::default();
        (self.first_ns, self.first_receipt_ns) = (None, None);
        (self.last_ns, self.computed_ns) = (0, 0);
    }
}

pub(super) fn run(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
    at_ns: u64,
) -> Result<Outcome, RoleError> {
    // Both ends count from the same time.
    sleep_until_ns(at_ns);
    let begin_ns = at_ns;
    let mut outcome = metered(|| ends.replay(context, window.messages, begin_ns))?;
    let (client, sends) = (context.task.part == Part::Client, context.task.part == Part::Sender);
    let Some(player) = &context.player else { return Err(no_script()) };
    let messages = player.script.whole_exchanges(window.messages);
    let exchanges = player.script.exchanges_in(messages);
    // Neither the sleep before the first step, nor what the clock was read for after the last one.
    outcome.start_ns = player.first_ns.unwrap_or(outcome.start_ns).max(outcome.start_ns);
    outcome.end_ns = player.last_ns.max(outcome.start_ns);
    outcome.first_receipt_ns = player.first_receipt_ns;
    outcome.user_ns = outcome.user_ns.saturating_sub(player.computed_ns);
    let tally = player.tally;
    (outcome.bytes, outcome.out_of_order) = (tally.bytes, tally.out_of_order);
    (outcome.corrupt, outcome.missing) = (tally.corrupt, tally.missing);
    let distribution = |samples: &[u64]| {
        let mut all = Distribution::new();
        samples.iter().for_each(|ns| all.record(*ns));
        all.encode()
    };
    if client {
        // An exchange counts as one, like a round trip.
        (outcome.sent, outcome.received) = (exchanges, player.exchanges_ns.len() as u64);
        outcome.histograms.push((Span::RoundTrip, distribution(&player.exchanges_ns)));
    } else {
        (outcome.sent, outcome.received) = (if sends { messages } else { 0 }, tally.messages);
    }
    if !player.delays_ns.is_empty() {
        outcome.histograms.push((Span::OneWay, distribution(&player.delays_ns)));
    }
    outcome.replayed = Some(Replayed {
        messages,
        gaps: distribution(&player.gaps_ns),
        computed_ns: player.computed_ns,
    });
    Ok(outcome)
}

fn no_script() -> RoleError {
    RoleError::Wrong("a replay without a recording".to_owned())
}

pub(crate) fn play<T: Tx, R: Rx>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    messages: u64,
    begin_ns: u64,
) -> Result<(), RoleError> {
    let streams = context.caps.boundaries == Boundaries::Stream;
    let RoleContext { player, scratch, .. } = context;
    let Some(player) = player else { return Err(no_script()) };
    let Player { moves, arena, script, next, tally, .. } = player;
    let (gaps, exchanges) = (&mut player.gaps_ns, &mut player.exchanges_ns);
    let delays = &mut player.delays_ns;
    let all = u64::from(script.messages).max(1);
    let mut left = script.whole_exchanges(messages);
    let mut round_ns = begin_ns;
    // When the previous step ended, and the previous send began.
    let (mut last, mut sent) = (monotonic_ns(), None);
    // When the exchange began, and when its last message so far arrived.
    let mut exchange: Option<(u64, u64)> = None;
    while left > 0 {
        let end = left.min(all) as u32;
        for step in moves.iter().filter(|step| step.message < end) {
            let Some(when) = step.when else {
                let len = if streams { step.place.size } else { scratch.len() };
                let number = next[1];
                next[1] += 1;
                rx.recv_in_place(&mut scratch[..len], None, |message| {
                    tally.check(message, &step.place, number);
                })?;
                last = monotonic_ns();
                player.first_receipt_ns.get_or_insert(last);
                if let Some((_, arrived)) = &mut exchange {
                    *arrived = last;
                }
                if let Some(due) = step.due_ns {
                    delays.push(last.saturating_sub(round_ns + due));
                }
                continue;
            };
            let now = pause(when, last, round_ns, &mut player.computed_ns);
            player.first_ns.get_or_insert(now);
            if step.begins
                && let Some((began, arrived)) = exchange.replace((now, now))
            {
                exchanges.push(arrived - began);
            }
            if let Some(before) = sent.replace(now) {
                gaps.push(now - before);
            }
            let number = next[0];
            next[0] += 1;
            arena.with_number(&step.place, number, |message| tx.send(message, None))?;
            tx.flush()?;
            last = monotonic_ns();
        }
        left -= u64::from(end);
        round_ns += script.span_ns;
    }
    exchanges.extend(exchange.map(|(began, arrived)| arrived - began));
    player.last_ns = last;
    Ok(())
}

/// Waits until a message is to be sent; returns the time. `last` is when the previous step ended, `round_ns` when the
/// round began.
#[inline]
fn pause(when: When, last: u64, round_ns: u64, computed_ns: &mut u64) -> u64 {
    let (until, busy) = match when {
        When::Now => return last,
        When::Busy(ns) => (last + ns, true),
        When::Idle(ns) => (last + ns, false),
        When::At(ns) => (round_ns + ns, false),
    };
    let mut now = monotonic_ns();
    if !busy && until > now + SLEEP_AT_LEAST_NS {
        sleep_until_ns(until);
        return monotonic_ns();
    }
    let began = now;
    while now < until {
        spin::hint();
        now = monotonic_ns();
    }
    *computed_ns += now - began;
    now
}
