//! Workloads with several roles: many pairs, many senders to one receiver, one sender to many receivers.
//!
//! All senders stop at the same time. Their shares can therefore differ. An end mark in place of a message ends each
//! stream. Senders that send at a rate are those of `paced.rs`; their receiver is this one.

use std::os::fd::BorrowedFd;

use crossway_mech::{RecvError, Rx, Tx};
use crossway_sys::clock::{Ticker, monotonic_ns};
use crossway_sys::{OsError, poll};

use super::latencies::Arrivals;
use super::paced::Pace;
use super::throughput::receive_until_mark;
use super::{Put, enter, metered};
use crate::LoopError;
use crate::Outcome;
use crate::ends::Ends;
use crate::payload::{Checker, SENDER_SHIFT, Seen, sender_of};
use crate::role_context::{RoleContext, sleeps};
use crossway_records::inputs::Workload;

/// Maximum number of messages received from one channel before the next channel gets its turn.
pub(super) const TURN: u32 = 16;

/// Sends to each channel in turn until the time at which the window ends, and then sends the end marks.
pub(super) fn send(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    until_ns: u64,
) -> Result<Outcome, LoopError> {
    let first = u64::from(context.task.index) << SENDER_SHIFT;
    context.sequences.resize(ends.channels(), first);
    let mut sent = Sent::default();
    let mut outcome = metered(|| {
        sent = ends.send_to_all(context, until_ns)?;
        Ok(())
    })?;
    outcome.sent = sent.messages;
    outcome.longest_wait_ns = Some(context.ticker.ns(sent.longest));
    Ok(outcome)
}

/// What a sender has sent.
#[derive(Default)]
pub(crate) struct Sent {
    messages: u64,
    /// The longest time between two messages, ticks.
    longest: u64,
}

pub(crate) fn send_loop<T: Tx, R: Rx, P: Put>(
    channels: &mut [(T, R)],
    context: &mut RoleContext,
    until_ns: u64,
    _: P,
) -> Result<Sent, LoopError> {
    let RoleContext { source, scratch, ticker, sequences, .. } = context;
    let mut sent = 0;
    let mut longest = 0;
    let mut last = ticker.now();
    let end = last + ticks_until(ticker, until_ns);
    'all: loop {
        for ((tx, _), sequence) in channels.iter_mut().zip(sequences.iter_mut()) {
            source.swap_sequence(sequence);
            P::put(tx, source, scratch)?;
            source.swap_sequence(sequence);
            sent += 1;
            let now = ticker.now();
            longest = longest.max(now.wrapping_sub(last));
            last = now;
            if now >= end {
                break 'all;
            }
        }
    }
    for (tx, _) in channels.iter_mut() {
        tx.send(source.end_message(), None)?;
        tx.flush()?;
    }
    Ok(Sent { messages: sent, longest })
}

pub(super) fn ticks_until(ticker: &Ticker, until_ns: u64) -> u64 {
    (until_ns.saturating_sub(monotonic_ns()) as f64 / ticker.ns_per_tick()) as u64
}

/// Receives until every sender's end mark has arrived.
pub(super) fn receive(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
) -> Result<Outcome, LoopError> {
    let mut outcome = receive_noting(ends, context, None)?;
    outcome.shares = context.checkers.iter().map(|c| c.messages).collect();
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

/// Receives what several senders send at a rate, until every one's end mark has arrived. The
/// schedule of each begins later than `pace` by its phase.
pub(super) fn receive_paced(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    pace: &Pace,
    phases_ns: &[u64],
) -> Result<Outcome, LoopError> {
    let mut arrivals = Arrivals::new(pace, &context.checkers, phases_ns);
    let mut outcome = receive_noting(ends, context, Some(&mut arrivals))?;
    arrivals.enter(&mut outcome);
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

fn receive_noting(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    arrivals: Option<&mut Arrivals<'_>>,
) -> Result<Outcome, LoopError> {
    let (fan_in, work_us) = match context.task.inputs.workload {
        Workload::FanIn { receiver_us, .. } => (true, receiver_us),
        _ => (false, 0),
    };
    let work = Work { ticker: context.ticker, ns: u64::from(work_us) * 1000, arrivals };
    metered(|| ends.receive_from_all(context, fan_in, work))
}

pub(crate) fn receive_loop<T: Tx, R: Rx>(
    channels: &mut [(T, R)],
    context: &mut RoleContext,
    fan_in: bool,
    work: Work<'_, '_>,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let may_sleep = sleeps(context.spec.wait);
    let RoleContext { checkers, scratch, .. } = context;
    let scratch = &mut scratch[..len];
    match channels {
        [(_, rx)] if fan_in => receive_mixed(rx, scratch, checkers, work),
        [(_, rx)] => receive_until_mark(rx, scratch, &mut checkers[0]),
        _ => {
            let rxs = channels.iter_mut().map(|(_, rx)| rx).collect();
            receive_in_turn(rxs, scratch, checkers, may_sleep, work)
        }
    }
}

/// What a receiver does with each message after the check: notes its arrival, if the senders have
/// schedules, and keeps its CPU busy for `ns` nanoseconds, if it is a slow one.
pub(crate) struct Work<'a, 'p> {
    ticker: Ticker,
    ns: u64,
    arrivals: Option<&'a mut Arrivals<'p>>,
}

impl Work<'_, '_> {
    #[inline]
    fn on_a_message(&mut self, sender: usize, checker: &Checker) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.note(sender, checker.position());
        }
        if self.ns > 0 {
            let begin = self.ticker.now();
            while self.ticker.ns(self.ticker.now().wrapping_sub(begin)) < self.ns {
                crossway_sys::spin::hint();
            }
        }
    }
}

/// Receives from all senders through one end. The sequence number identifies the sender of a message.
fn receive_mixed<R: Rx>(
    rx: &mut R,
    scratch: &mut [u8],
    checkers: &mut [Checker],
    mut work: Work<'_, '_>,
) -> Result<(), LoopError> {
    let first = checkers[0].position() >> SENDER_SHIFT;
    let mut open = checkers.len();
    while open > 0 {
        rx.recv_in_place(scratch, None, |message| match sender_of(message) {
            None => open -= 1,
            Some(sender) => {
                let at = usize::from(sender).wrapping_sub(first as usize);
                // A number that belongs to no sender is corrupt; it is counted for the first one.
                let at = if at < checkers.len() { at } else { 0 };
                checkers[at].check(message);
                work.on_a_message(at, &checkers[at]);
            }
        })?;
    }
    Ok(())
}

/// Receives from one end per sender; checks each in turn. If all are empty and `may_sleep` is set, waits for any of
/// them, provided that they can be polled.
fn receive_in_turn<R: Rx>(
    mut rxs: Vec<&mut R>,
    scratch: &mut [u8],
    checkers: &mut [Checker],
    may_sleep: bool,
    mut work: Work<'_, '_>,
) -> Result<(), LoopError> {
    let mut open: Vec<usize> = (0..rxs.len()).collect();
    while !open.is_empty() {
        let mut idle = true;
        let mut ended = Vec::new();
        for &at in &open {
            for _ in 0..TURN {
                match rxs[at].try_recv(scratch) {
                    Ok(n) => {
                        idle = false;
                        if checkers[at].check(&scratch[..n]) == Seen::End {
                            ended.push(at);
                            break;
                        }
                        work.on_a_message(at, &checkers[at]);
                    }
                    Err(RecvError::Empty) => break,
                    Err(e) => return Err(e.into()),
                }
            }
        }
        open.retain(|at| !ended.contains(at));
        if idle {
            wait_for_any(open.iter().map(|&at| rxs[at].wait_fd()), may_sleep)?;
        }
    }
    Ok(())
}

/// Waits until one of these ends has a message: asleep if that is allowed and all of them can be polled.
pub(super) fn wait_for_any<'a>(
    fds: impl Iterator<Item = Option<BorrowedFd<'a>>>,
    may_sleep: bool,
) -> Result<(), LoopError> {
    if !may_sleep {
        crossway_sys::spin::hint();
        return Ok(());
    }
    let fds: Option<Vec<BorrowedFd<'_>>> = fds.collect();
    match fds {
        Some(fds) if fds.is_empty() => {}
        Some(fds) => drop(poll::any_readable(&fds, None).map_err(|e| OsError::new("poll", "", e))?),
        None => std::thread::yield_now(),
    }
    Ok(())
}
