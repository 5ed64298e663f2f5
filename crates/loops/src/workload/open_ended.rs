//! An open-ended workload, which runs concurrently with the measured one. The duration is not known in advance: the
//! sending role sends at least one message and continues until the controller stops it. The stream then ends with an
//! end mark in place of a message.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crossway_mech::{Rx, Tx};
use crossway_sys::clock::{Ticker, monotonic_ns};

use super::latencies::Arrivals;
use super::paced::{Pace, Punctuality};
use super::{enter, metered, stop_ordered, take};
use crate::LoopError;
use crate::ends::Ends;
use crate::payload::Seen;
use crate::role_context::{Distribution, RoleContext};
use crate::{Outcome, Part};
use crossway_records::inputs::{Span, Workload};

/// Interval in nanoseconds at which a sender checks for the controller's order.
const LOOK_EVERY_NS: u64 = 1_000_000;

/// Runs this role's part until the connection to the controller is readable, or until the peer's end mark arrives.
pub(super) fn run(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    at_ns: u64,
    line: BorrowedFd<'_>,
) -> Result<Outcome, LoopError> {
    let stop = Stop::new(context.ticker, line);
    match (context.task.inputs.workload, context.task.part) {
        (Workload::Throughput, Part::Sender) => stream(ends, context, stop),
        (Workload::Throughput, Part::Receiver) => receive(ends, context, None),
        (Workload::PingPong, Part::Client) => ask(ends, context, stop),
        (Workload::PingPong, Part::Server) => answer(ends, context),
        (Workload::Paced { burst_bytes, period_us }, part) => {
            let pace = Pace::new(burst_bytes, period_us, context.source.size(), at_ns);
            match part {
                Part::Sender => send_paced(ends, context, stop, &pace),
                _ => receive(ends, context, Some(&pace)),
            }
        }
        (workload, part) => Err(LoopError::Wrong(format!(
            "the workload {} has no open-ended form for a {}",
            workload.word(),
            part.name()
        ))),
    }
}

/// Checks periodically whether the controller has ordered a stop.
pub(crate) struct Stop<'a> {
    line: BorrowedFd<'a>,
    ticker: Ticker,
    every: u64,
    last: u64,
}

impl<'a> Stop<'a> {
    fn new(ticker: Ticker, line: BorrowedFd<'a>) -> Stop<'a> {
        let every = (LOOK_EVERY_NS as f64 / ticker.ns_per_tick()) as u64;
        Stop { line, ticker, every, last: ticker.now() }
    }

    /// Whether a stop was ordered; called after each message. The connection is checked only once per interval.
    fn asked(&mut self) -> Result<bool, LoopError> {
        let now = self.ticker.now();
        if now.wrapping_sub(self.last) < self.every {
            return Ok(false);
        }
        self.last = now;
        self.asked_now()
    }

    /// Whether the stream should end; called before each burst of a paced stream, which has at least one burst.
    fn after(&self, bursts: u64) -> Result<bool, LoopError> {
        Ok(bursts > 0 && self.asked_now()?)
    }

    fn asked_now(&self) -> Result<bool, LoopError> {
        stop_ordered(self.line, Instant::now())
    }
}

fn stream(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    stop: Stop<'_>,
) -> Result<Outcome, LoopError> {
    let mut sent = 0;
    let mut outcome = metered(|| {
        sent = ends.stream(context, stop)?;
        Ok(())
    })?;
    outcome.sent = sent;
    Ok(outcome)
}

/// Returns the number of messages sent, as the other loops of senders do.
pub(crate) fn send_loop<T: Tx>(
    tx: &mut T,
    context: &mut RoleContext,
    mut stop: Stop<'_>,
) -> Result<u64, LoopError> {
    let source = &mut context.source;
    let mut sent = 0;
    loop {
        tx.send(source.next_message(), None)?;
        sent += 1;
        if stop.asked()? {
            break;
        }
    }
    tx.send(source.end_message(), None)?;
    tx.flush()?;
    Ok(sent)
}

fn send_paced(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    stop: Stop<'_>,
    pace: &Pace,
) -> Result<Outcome, LoopError> {
    let mut punctuality = Punctuality::new(pace);
    let mut sent = 0;
    let mut outcome = metered(|| {
        sent = ends.stream_paced(context, stop, pace, &mut punctuality)?;
        Ok(())
    })?;
    outcome.sent = sent;
    // The first operation is the first burst, not the sleep before it.
    outcome.start_ns = outcome.start_ns.max(pace.instant_ns(0));
    outcome.pacing = Some(punctuality.finish());
    Ok(outcome)
}

pub(crate) fn send_paced_loop<T: Tx>(
    tx: &mut T,
    context: &mut RoleContext,
    stop: Stop<'_>,
    pace: &Pace,
    punctuality: &mut Punctuality,
) -> Result<u64, LoopError> {
    let source = &mut context.source;
    let mut sent = 0;
    loop {
        let burst = punctuality.bursts();
        if !pace.wait_unless(burst, || stop.after(burst))? {
            break;
        }
        let began = monotonic_ns();
        for _ in 0..pace.messages_per_burst() {
            tx.send(source.next_message(), None)?;
            sent += 1;
        }
        tx.flush()?;
        punctuality.add(pace.instant_ns(burst), began, monotonic_ns());
    }
    tx.send(source.end_message(), None)?;
    tx.flush()?;
    Ok(sent)
}

/// Receives until the end mark; for a paced stream, records the latency of each message.
fn receive(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    pace: Option<&Pace>,
) -> Result<Outcome, LoopError> {
    let mut arrivals = pace.map(|pace| Arrivals::new(pace, &context.checkers, &[]));
    let mut outcome = metered(|| ends.receive_stream(context, arrivals.as_mut()))?;
    if let Some(arrivals) = arrivals {
        arrivals.enter(&mut outcome);
    }
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

pub(crate) fn receive_loop<R: Rx>(
    rx: &mut R,
    context: &mut RoleContext,
    mut arrivals: Option<&mut Arrivals<'_>>,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let RoleContext { checkers, scratch, .. } = context;
    let (scratch, checker) = (&mut scratch[..len], &mut checkers[0]);
    while take(rx, scratch, checker)? == Seen::Message {
        if let Some(arrivals) = &mut arrivals {
            arrivals.note(0, checker.position());
        }
    }
    Ok(())
}

fn ask(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    stop: Stop<'_>,
) -> Result<Outcome, LoopError> {
    let mut times = Distribution::new();
    let mut sent = 0;
    let mut outcome = metered(|| {
        sent = ends.ask_until(context, stop, &mut times)?;
        Ok(())
    })?;
    outcome.sent = sent;
    enter(&mut outcome, &context.checkers, context.source.size());
    outcome.histograms.push((Span::RoundTrip, times.encode()));
    Ok(outcome)
}

pub(crate) fn ask_loop<T: Tx, R: Rx>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    mut stop: Stop<'_>,
    times: &mut Distribution,
) -> Result<u64, LoopError> {
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, ticker, .. } = context;
    let checker = &mut checkers[0];
    let mut sent = 0;
    let mut last = ticker.now();
    loop {
        tx.send(source.next_message(), None)?;
        tx.flush()?;
        take(rx, &mut scratch[..len], checker)?;
        sent += 1;
        let now = ticker.now();
        times.record(ticker.ns(now.wrapping_sub(last)));
        last = now;
        if stop.asked()? {
            break;
        }
    }
    tx.send(source.end_message(), None)?;
    tx.flush()?;
    Ok(sent)
}

fn answer(ends: &mut dyn Ends, context: &mut RoleContext) -> Result<Outcome, LoopError> {
    let mut sent = 0;
    let mut outcome = metered(|| {
        sent = ends.answer_stream(context)?;
        Ok(())
    })?;
    outcome.sent = sent;
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

pub(crate) fn answer_loop<T: Tx, R: Rx>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
) -> Result<u64, LoopError> {
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, .. } = context;
    let checker = &mut checkers[0];
    let mut sent = 0;
    while take(rx, &mut scratch[..len], checker)? == Seen::Message {
        tx.send(source.next_message(), None)?;
        tx.flush()?;
        sent += 1;
    }
    Ok(sent)
}
