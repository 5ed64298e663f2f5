//! An open-ended workload, which runs concurrently with the measured one. The duration is not known in advance: the
//! sending role sends at least one message and continues until the controller stops it. The stream then ends with an
//! end mark in place of a message.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crossway_mech::{Mechanism, Tx};
use crossway_sys::clock::{Ticker, monotonic_ns};

use super::latencies::Latencies;
use super::paced::{Pace, Punctuality};
use super::{enter, metered, stop_ordered, take};
use crate::control::{Outcome, Part};
use crate::payload::Seen;
use crate::role_context::{Distribution, RoleContext, RoleError};
use crossway_records::inputs::Span;
use crossway_records::inputs::Workload;

/// Interval in nanoseconds at which a sender checks for the controller's order.
const LOOK_EVERY_NS: u64 = 1_000_000;

/// Runs this role's part until the connection to the controller is readable, or until the peer's end mark arrives.
pub(super) fn run<M: Mechanism>(
    context: &mut RoleContext<M>,
    at_ns: u64,
    line: BorrowedFd<'_>,
) -> Result<Outcome, RoleError> {
    let stop = Stop::new(context.ticker, line);
    match (context.task.inputs.workload, context.task.part) {
        (Workload::Throughput, Part::Sender) => stream(context, stop),
        (Workload::Throughput, Part::Receiver) => receive(context, None),
        (Workload::PingPong, Part::Client) => ask(context, stop),
        (Workload::PingPong, Part::Server) => answer(context),
        (Workload::Paced { burst_bytes, period_us }, part) => {
            let pace = Pace::new(burst_bytes, period_us, context.source.size(), at_ns);
            match part {
                Part::Sender => send_paced(context, stop, &pace),
                _ => receive(context, Some(&pace)),
            }
        }
        (workload, part) => Err(RoleError::Wrong(format!(
            "the workload {} has no open-ended form for a {}",
            workload.word(),
            part.name()
        ))),
    }
}

/// Checks periodically whether the controller has ordered a stop.
struct Stop<'a> {
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
    fn asked(&mut self) -> Result<bool, RoleError> {
        let now = self.ticker.now();
        if now.wrapping_sub(self.last) < self.every {
            return Ok(false);
        }
        self.last = now;
        self.asked_now()
    }

    /// Whether the stream should end; called before each burst of a paced stream, which has at least one burst.
    fn after(&self, bursts: u64) -> Result<bool, RoleError> {
        Ok(bursts > 0 && self.asked_now()?)
    }

    fn asked_now(&self) -> Result<bool, RoleError> {
        stop_ordered(self.line, Instant::now())
    }
}

fn stream<M: Mechanism>(
    context: &mut RoleContext<M>,
    mut stop: Stop<'_>,
) -> Result<Outcome, RoleError> {
    let RoleContext { channels, source, .. } = context;
    let (tx, _) = &mut channels[0];
    let mut sent = 0;
    let mut outcome = metered(|| {
        loop {
            tx.send(source.next_message(), None)?;
            sent += 1;
            if stop.asked()? {
                break;
            }
        }
        tx.send(source.end_message(), None)?;
        Ok(tx.flush()?)
    })?;
    outcome.sent = sent;
    Ok(outcome)
}

fn send_paced<M: Mechanism>(
    context: &mut RoleContext<M>,
    stop: Stop<'_>,
    pace: &Pace,
) -> Result<Outcome, RoleError> {
    let RoleContext { channels, source, .. } = context;
    let (tx, _) = &mut channels[0];
    let mut punctuality = Punctuality::new(pace);
    let mut sent = 0;
    let mut outcome = metered(|| {
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
        Ok(tx.flush()?)
    })?;
    outcome.sent = sent;
    // The first operation is the first burst, not the sleep before it.
    outcome.start_ns = outcome.start_ns.max(pace.instant_ns(0));
    outcome.pacing = Some(punctuality.finish());
    Ok(outcome)
}

/// Receives until the end mark; for a paced stream, records the latency of each message.
fn receive<M: Mechanism>(
    context: &mut RoleContext<M>,
    pace: Option<&Pace>,
) -> Result<Outcome, RoleError> {
    let len = context.receive_len();
    let size = context.source.size();
    let RoleContext { channels, checkers, scratch, .. } = context;
    let (_, rx) = &mut channels[0];
    let (scratch, checker) = (&mut scratch[..len], &mut checkers[0]);
    let first = checker.position();
    let mut latencies = pace.map(Latencies::new);
    let mut last_ns = monotonic_ns();
    let mut outcome = metered(|| {
        while take(rx, scratch, checker)? == Seen::Message {
            if let (Some(pace), Some(latencies)) = (pace, &mut latencies) {
                last_ns = monotonic_ns();
                latencies.add(pace.burst_of(checker.position() - first), last_ns);
            }
        }
        Ok(())
    })?;
    if let Some(latencies) = latencies {
        // Excludes the wait for the end of the last period.
        outcome.end_ns = last_ns;
        latencies.enter(Span::OneWay, &mut outcome);
    }
    enter(&mut outcome, checkers, size);
    Ok(outcome)
}

fn ask<M: Mechanism>(
    context: &mut RoleContext<M>,
    mut stop: Stop<'_>,
) -> Result<Outcome, RoleError> {
    let (len, size) = (context.receive_len(), context.source.size());
    let RoleContext { channels, source, scratch, checkers, ticker, .. } = context;
    let (tx, rx) = &mut channels[0];
    let checker = &mut checkers[0];
    let mut times = Distribution::new();
    let mut sent = 0;
    let mut outcome = metered(|| {
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
        Ok(tx.flush()?)
    })?;
    outcome.sent = sent;
    enter(&mut outcome, checkers, size);
    outcome.histograms.push((Span::RoundTrip, times.encode()));
    Ok(outcome)
}

fn answer<M: Mechanism>(context: &mut RoleContext<M>) -> Result<Outcome, RoleError> {
    let (len, size) = (context.receive_len(), context.source.size());
    let RoleContext { channels, source, scratch, checkers, .. } = context;
    let (tx, rx) = &mut channels[0];
    let checker = &mut checkers[0];
    let mut sent = 0;
    let mut outcome = metered(|| {
        while take(rx, &mut scratch[..len], checker)? == Seen::Message {
            tx.send(source.next_message(), None)?;
            tx.flush()?;
            sent += 1;
        }
        Ok(())
    })?;
    outcome.sent = sent;
    enter(&mut outcome, checkers, size);
    Ok(outcome)
}
