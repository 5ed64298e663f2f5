//! Repeats what one role does on recorded channels. Everything is prepared before the window: the steps, the places of the
//! messages and what they add up to, and room for the samples. The loop reads the clock only where a pause, a sample or
//! a later step needs it.

use crossway_mech::{Boundaries, Rx, Tx, Wait};
use crossway_sys::clock::{monotonic_ns, sleep_until_ns};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{OsError, spin};

use super::metered;
use crate::LoopError;
use crate::arena::{Arena, Place, Tally};
use crate::ends::Ends;
use crate::role_context::{Distribution, RoleContext};
use crate::script::{Exchange, RoleScript, When};
use crate::{LineSeen, Outcome, Part, Replayed, Window};
use crossway_records::inputs::Span;

/// Pauses shorter than this are not slept, nanoseconds: going to sleep and waking up takes about as long.
const SLEEP_AT_LEAST_NS: u64 = 100_000;

/// A step, with everything that the loop needs.
#[derive(Clone, Copy, Debug)]
struct Move {
    message: u32,
    channel: u16,
    when: Option<When>,
    due_ns: Option<u64>,
    polled: bool,
    exchange: Option<Exchange>,
    place: Place,
}

/// What a role keeps of one of its channels.
#[derive(Debug, Default)]
struct Line {
    /// Numbers of the next message that is sent and received.
    next: [u64; 2],
    /// When the previous send began.
    sent: Option<u64>,
    gaps_ns: Vec<u64>,
    /// When the exchange that is open began. Kept, like the times, at the first channel of a conversation.
    began: Option<u64>,
    exchanges_ns: Vec<u64>,
}

/// One role of a recording, and its messages.
#[derive(Debug)]
pub(crate) struct Player {
    moves: Vec<Move>,
    arena: Arena,
    script: RoleScript,
    lines: Vec<Line>,
    /// Messages that the role sends, and exchanges that it begins and ends, in the window.
    due: [u64; 2],
    tally: Tally,
    delays_ns: Vec<u64>,
    first_ns: Option<u64>,
    first_receipt_ns: Option<u64>,
    last_ns: u64,
    computed_ns: u64,
}

impl Player {
    /// Prepares a role's messages.
    pub(crate) fn new(script: RoleScript, seed: u64, working_set_bytes: usize) -> Player {
        let arena = Arena::new(&script, seed, working_set_bytes);
        let places = arena.places(&script.steps);
        let moves = script
            .steps
            .iter()
            .zip(places)
            .map(|(step, place)| Move {
                message: step.message,
                channel: step.channel,
                when: step.when,
                due_ns: step.due_ns,
                polled: step.polled,
                exchange: step.exchange,
                place,
            })
            .collect();
        Player {
            moves,
            arena,
            lines: script.channels.iter().map(|_| Line::default()).collect(),
            script,
            due: [0; 2],
            tally: Tally::default(),
            delays_ns: Vec::new(),
            first_ns: None,
            first_receipt_ns: None,
            last_ns: 0,
            computed_ns: 0,
        }
    }

    /// Allocates and touches the memory for a window's samples, and resets the counters.
    pub(crate) fn prepare(&mut self, messages: u64) {
        let mut rooms = vec![[0u64; 2]; self.lines.len()];
        let mut dues = 0;
        for step in &self.script.steps {
            let (times, channel) = (self.script.times(step, messages), usize::from(step.channel));
            if step.when.is_some() {
                rooms[channel][0] += times;
            }
            if step.exchange == Some(Exchange::Ends) {
                rooms[usize::from(self.script.conversations[channel])][1] += times;
            }
            dues += if step.due_ns.is_some() { times } else { 0 };
        }
        self.due = [0, 1].map(|kind| rooms.iter().map(|room| room[kind]).sum());
        let lines = self.lines.iter_mut().zip(rooms).flat_map(|(line, [sends, ends])| {
            (line.sent, line.began) = (None, None);
            [(&mut line.gaps_ns, sends), (&mut line.exchanges_ns, ends)]
        });
        for (samples, room) in lines.chain([(&mut self.delays_ns, dues)]) {
            samples.clear();
            // Filled with a value other than zero, since the allocator would hand out untouched pages for zeros.
            samples.resize(room as usize, 1);
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
) -> Result<Outcome, LoopError> {
    // Both ends count from the same time.
    sleep_until_ns(at_ns);
    let begin_ns = at_ns;
    let mut outcome = metered(|| ends.replay(context, window.messages, begin_ns))?;
    let part = context.task.part;
    let Some(player) = &context.player else { return Err(no_script()) };
    let [sends, exchanges] = player.due;
    // Neither the sleep before the first step, nor what the clock was read for after the last one.
    outcome.start_ns = player.first_ns.unwrap_or(outcome.start_ns).max(outcome.start_ns);
    outcome.end_ns = player.last_ns.max(outcome.start_ns);
    outcome.first_receipt_ns = player.first_receipt_ns;
    outcome.user_ns = outcome.user_ns.saturating_sub(player.computed_ns);
    let tally = player.tally;
    (outcome.bytes, outcome.out_of_order) = (tally.bytes, tally.out_of_order);
    (outcome.corrupt, outcome.missing) = (tally.corrupt, tally.missing);
    let distribution = |samples: &mut dyn Iterator<Item = &u64>| {
        let mut all = Distribution::new();
        samples.for_each(|ns| all.record(*ns));
        all.encode()
    };
    let lines = &player.lines;
    match part {
        // An exchange counts as one, like a round trip.
        Part::Client => {
            let ended: usize = lines.iter().map(|line| line.exchanges_ns.len()).sum();
            (outcome.sent, outcome.received) = (exchanges, ended as u64);
            let times = distribution(&mut lines.iter().flat_map(|line| &line.exchanges_ns));
            outcome.histograms.push((Span::RoundTrip, times));
        }
        Part::Server => outcome.received = tally.messages,
        Part::Sender | Part::Receiver => {
            (outcome.sent, outcome.received) = (sends, tally.messages);
        }
    }
    if !player.delays_ns.is_empty() {
        outcome.histograms.push((Span::OneWay, distribution(&mut player.delays_ns.iter())));
    }
    let several = player.script.channels_of_all > 1;
    let seen = lines.iter().zip(&player.script.channels).filter(|_| several);
    outcome.replayed = Some(Replayed {
        messages: window.messages,
        gaps: distribution(&mut lines.iter().flat_map(|line| &line.gaps_ns)),
        computed_ns: player.computed_ns,
        lines: seen
            .map(|(line, channel)| LineSeen {
                channel: *channel,
                gaps: distribution(&mut line.gaps_ns.iter()),
                exchanges: distribution(&mut line.exchanges_ns.iter()),
            })
            .collect(),
    });
    Ok(outcome)
}

fn no_script() -> LoopError {
    LoopError::Wrong("a replay without a recording".to_owned())
}

pub(crate) fn play<T: Tx, R: Rx>(
    channels: &mut [(T, R)],
    context: &mut RoleContext,
    messages: u64,
    begin_ns: u64,
) -> Result<(), LoopError> {
    let streams = context.caps.boundaries == Boundaries::Stream;
    // Who looks before sleeping looks instead of polling.
    let may_poll = context.spec.wait == Wait::Block;
    let RoleContext { player, scratch, .. } = context;
    let Some(player) = player else { return Err(no_script()) };
    let Player { moves, arena, script, lines, tally, .. } = player;
    let delays = &mut player.delays_ns;
    let all = u64::from(script.messages).max(1);
    let mut left = messages;
    let mut round_ns = begin_ns;
    // When the previous step ended.
    let mut last = monotonic_ns();
    while left > 0 {
        let end = left.min(all) as u32;
        for step in moves.iter().filter(|step| step.message < end) {
            let at = usize::from(step.channel);
            let ((tx, rx), line) = (&mut channels[at], &mut lines[at]);
            let Some(when) = step.when else {
                let len = if streams { step.place.size } else { scratch.len() };
                let number = line.next[1];
                line.next[1] += 1;
                if step.polled
                    && may_poll
                    && let Some(bell) = rx.wait_fd()
                {
                    wait_ready(bell, Interest::Readable, None)
                        .map_err(|e| OsError::new("poll", "", e))?;
                }
                rx.recv_in_place(&mut scratch[..len], None, |message| {
                    tally.check(message, &step.place, number);
                })?;
                last = monotonic_ns();
                player.first_receipt_ns.get_or_insert(last);
                if step.exchange.is_some() {
                    let talk = &mut lines[usize::from(script.conversations[at])];
                    let began = talk.began.take();
                    talk.exchanges_ns.extend(began.map(|began| last - began));
                }
                if let Some(due) = step.due_ns {
                    delays.push(last.saturating_sub(round_ns + due));
                }
                continue;
            };
            let now = pause(when, last, round_ns, &mut player.computed_ns);
            player.first_ns.get_or_insert(now);
            if let Some(before) = line.sent.replace(now) {
                line.gaps_ns.push(now - before);
            }
            let number = line.next[0];
            line.next[0] += 1;
            if step.exchange.is_some() {
                lines[usize::from(script.conversations[at])].began = Some(now);
            }
            arena.with_number(&step.place, number, |message| tx.send(message, None))?;
            tx.flush()?;
            last = monotonic_ns();
        }
        left -= u64::from(end);
        round_ns += script.span_ns;
    }
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
