//! Several clients of one server, each with one or several requests in flight, until a common time. Each client then waits
//! for the replies that are still due and sends an end mark; the server ends with the last of these marks.
//!
//! The latency of a request counts from the moment at which its client sends it, so it contains the time that the request
//! waits behind others, of its own client and of other clients. Clients that send at a rate are those of `requests.rs`;
//! their server is this one.

use std::collections::VecDeque;

use crossway_mech::{RecvError, Rx, SendError, Tx};

use super::shared::{TURN, ticks_until, wait_for_any};
use super::{Put, enter, metered, take};
use crate::LoopError;
use crate::Outcome;
use crate::ends::Ends;
use crate::payload::Seen;
use crate::role_context::{Distribution, RoleContext, sleeps};
use crossway_records::inputs::Span;

/// What a client has asked, and how long the replies took.
pub(crate) struct Asked {
    in_flight: usize,
    sent: u64,
    times: Distribution,
}

/// Keeps requests in flight until the time at which the window ends.
pub(super) fn ask(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    until_ns: u64,
    in_flight: u32,
) -> Result<Outcome, LoopError> {
    let in_flight = in_flight.max(1) as usize;
    let mut asked = Asked { in_flight, sent: 0, times: Distribution::new() };
    let mut outcome = metered(|| ends.ask_in_flight(context, until_ns, &mut asked))?;
    outcome.sent = asked.sent;
    outcome.histograms.push((Span::RoundTrip, asked.times.encode()));
    enter(&mut outcome, &context.checkers, context.received_bytes());
    Ok(outcome)
}

pub(crate) fn ask_loop<T: Tx, R: Rx, P: Put>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    until_ns: u64,
    asked: &mut Asked,
    _: P,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let in_place = context.in_place();
    let RoleContext { source, scratch, checkers, ticker, .. } = context;
    let checker = &mut checkers[0];
    let mut begun = VecDeque::with_capacity(asked.in_flight);
    let mut now = ticker.now();
    let end = now + ticks_until(ticker, until_ns);
    loop {
        while begun.len() < asked.in_flight && now < end {
            begun.push_back(now);
            asked.sent += 1;
            // With replies under way, a send must not wait: the server may wait for room for them.
            if in_place || begun.len() == 1 {
                P::put(tx, source, scratch)?;
            } else {
                send_amid_replies(tx, source.next_message(), || {
                    if begun.len() == 1 {
                        return Ok(false);
                    }
                    take(rx, &mut scratch[..len], checker)?;
                    now = ticker.now();
                    let began = begun.pop_front().unwrap_or(now);
                    asked.times.record(ticker.ns(now.wrapping_sub(began)));
                    Ok(true)
                })?;
            }
            tx.flush()?;
            if asked.in_flight > 1 {
                now = ticker.now();
            }
        }
        let Some(began) = begun.pop_front() else { break };
        take(rx, &mut scratch[..len], checker)?;
        now = ticker.now();
        asked.times.record(ticker.ns(now.wrapping_sub(began)));
    }
    tx.send(source.end_message(), None)?;
    tx.flush()?;
    Ok(())
}

/// Sends a request. If there is no room for it, takes a reply before it tries again; `take_reply`
/// returns false if none is under way, and the request may then wait.
#[inline(always)]
pub(super) fn send_amid_replies<T: Tx>(
    tx: &mut T,
    request: &[u8],
    mut take_reply: impl FnMut() -> Result<bool, LoopError>,
) -> Result<(), LoopError> {
    loop {
        match tx.try_send(request) {
            Ok(()) => return Ok(()),
            Err(SendError::Full) => {
                tx.flush()?;
                if !take_reply()? {
                    return Ok(tx.send(request, None)?);
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Answers all clients until the end mark of each has arrived.
pub(super) fn answer(ends: &mut dyn Ends, context: &mut RoleContext) -> Result<Outcome, LoopError> {
    context.sequences.resize(ends.channels(), 0);
    let mut outcome = metered(|| ends.answer_all(context))?;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    outcome.sent = outcome.received;
    if context.task.inputs.workload.facts().paced() {
        for channel in 0..ends.channels() {
            let Some((tx, _)) = ends.halves(channel) else { continue };
            tx.send(context.source.end_message(), None)?;
            tx.flush()?;
        }
    }
    Ok(outcome)
}

pub(crate) fn answer_loop<T: Tx, R: Rx, P: Put>(
    channels: &mut [(T, R)],
    context: &mut RoleContext,
    _: P,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let may_sleep = sleeps(context.spec.wait);
    let RoleContext { source, scratch, checkers, sequences, .. } = context;
    let mut reply = |tx: &mut T, scratch: &mut [u8], at: usize| -> Result<(), LoopError> {
        source.swap_sequence(&mut sequences[at]);
        P::put(tx, source, scratch)?;
        source.swap_sequence(&mut sequences[at]);
        Ok(tx.flush()?)
    };
    if let [(tx, rx)] = channels {
        while take(rx, &mut scratch[..len], &mut checkers[0])? == Seen::Message {
            reply(tx, scratch, 0)?;
        }
        return Ok(());
    }
    let mut open: Vec<usize> = (0..channels.len()).collect();
    while !open.is_empty() {
        let mut idle = true;
        let mut ended = Vec::new();
        for &at in &open {
            let (tx, rx) = &mut channels[at];
            for _ in 0..TURN {
                match rx.try_recv(&mut scratch[..len]) {
                    Ok(n) => {
                        idle = false;
                        if checkers[at].check(&scratch[..n]) == Seen::End {
                            ended.push(at);
                            break;
                        }
                        reply(tx, scratch, at)?;
                    }
                    Err(RecvError::Empty) => break,
                    Err(e) => return Err(e.into()),
                }
            }
        }
        open.retain(|at| !ended.contains(at));
        if idle {
            wait_for_any(open.iter().map(|&at| channels[at].1.wait_fd()), may_sleep)?;
        }
    }
    Ok(())
}
