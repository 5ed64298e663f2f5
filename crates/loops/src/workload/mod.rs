//! The workloads, one file each. The loop of each is generic over the halves of a channel, so that those of throughput and
//! round trips contain no virtual call; the loops are called through [`Ends`], and all around them exists once.

pub(crate) mod clients;
pub(crate) mod exchange;
mod latencies;
pub(crate) mod open_ended;
pub(crate) mod paced;
pub(crate) mod ping_pong;
pub(crate) mod replay;
pub(crate) mod requests;
pub(crate) mod shared;
pub(crate) mod throughput;

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crossway_mech::{RecvError, Rx, SendError, Tx};
use crossway_sys::clock::monotonic_ns;
use crossway_sys::{OsError, poll};

pub(crate) use latencies::{Arrivals, Latencies};
pub(crate) use open_ended::Stop;
pub(crate) use paced::{Pace, Punctuality};
pub(crate) use throughput::Receipts;

use crate::LoopError;
use crate::ends::Ends;
use crate::payload::{Checker, Seen, Source, write_in_place};
use crate::role_context::RoleContext;
use crate::role_meter::RoleMeter;
use crate::{Outcome, Part, Window};
use crossway_records::inputs::Workload;

/// Runs this role's part of one window. `phases_ns` is how much later than `at_ns` each peer's
/// schedule begins, if the peers have schedules of their own. What the controller orders during the
/// window, on its connection `line`, ends an open-ended window, and the end marks of a sender whose
/// messages may be lost.
pub(crate) fn run(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
    at_ns: u64,
    phases_ns: &[u64],
    line: BorrowedFd<'_>,
) -> Result<Outcome, LoopError> {
    use Part::{Client, Receiver, Sender, Server};
    if window.open {
        return open_ended::run(ends, context, at_ns, line);
    }
    match (context.task.inputs.workload, context.task.part) {
        (Workload::Throughput, Sender) => throughput::send(ends, context, window, line),
        (Workload::Throughput, Receiver) => throughput::receive(ends, context, window),
        (Workload::PingPong, Client) => ping_pong::ask(ends, context, window),
        (
            Workload::Requests { period_ns } | Workload::Clients { period_ns: period_ns @ 1.., .. },
            Client,
        ) => requests::ask(ends, context, window, period_ns, at_ns),
        (Workload::PingPong | Workload::Requests { .. }, Server) => {
            ping_pong::answer(ends, context, window)
        }
        (Workload::Paced { burst_bytes, period_us }, part) => {
            let pace = paced::Pace::new(burst_bytes, period_us, context.source.size(), at_ns);
            match part {
                Sender => paced::send(ends, context, window, &pace, line),
                _ => paced::receive(ends, context, window, &pace),
            }
        }
        (Workload::Exchange, Client) => exchange::ask(ends, context, window),
        (Workload::Exchange, Server) => exchange::answer(ends, context, window),
        (Workload::FanOut { period_us: period @ 1.., .. }, part) => {
            let pace = paced::Pace::of_one(u64::from(period) * 1_000, at_ns);
            match part {
                Sender => paced::send(ends, context, window, &pace, line),
                _ => paced::receive(ends, context, window, &pace),
            }
        }
        (Workload::FanIn { period_us: period @ 1.., .. }, part) => {
            let pace = paced::Pace::of_one(u64::from(period) * 1_000, at_ns);
            match part {
                Sender => paced::send(ends, context, window, &pace, line),
                _ => shared::receive_paced(ends, context, &pace, phases_ns),
            }
        }
        (Workload::Clients { in_flight, .. }, Client) => {
            clients::ask(ends, context, at_ns, in_flight)
        }
        (Workload::Clients { .. }, Server) => clients::answer(ends, context),
        (Workload::Pairs { .. } | Workload::FanIn { .. } | Workload::FanOut { .. }, Sender) => {
            shared::send(ends, context, at_ns)
        }
        (Workload::Pairs { .. } | Workload::FanIn { .. } | Workload::FanOut { .. }, Receiver) => {
            shared::receive(ends, context)
        }
        (Workload::Replay { .. }, _) => replay::run(ends, context, window, at_ns),
        // Every workload is named, so that the compiler reports a new one.
        (
            workload @ (Workload::Throughput
            | Workload::PingPong
            | Workload::Requests { .. }
            | Workload::Exchange
            | Workload::Pairs { .. }
            | Workload::FanIn { .. }
            | Workload::Clients { .. }
            | Workload::FanOut { .. }),
            part,
        ) => Err(LoopError::Wrong(format!("the workload {workload:?} has no {}", part.name()))),
    }
}

/// Whether the controller has ordered a stop, or does so until this time.
fn stop_ordered(line: BorrowedFd<'_>, until: Instant) -> Result<bool, LoopError> {
    let readable = poll::any_readable(&[line], Some(until))
        .map_err(|e| OsError::new("poll", "the controller's line", e))?;
    Ok(readable.contains(&true))
}

/// Runs `work` between two readings of the meters and the clock.
fn metered(work: impl FnOnce() -> Result<(), LoopError>) -> Result<Outcome, LoopError> {
    let mut outcome = Outcome::default();
    let meter = RoleMeter::start();
    outcome.start_ns = monotonic_ns();
    work()?;
    outcome.end_ns = monotonic_ns();
    meter.stop(&mut outcome);
    Ok(outcome)
}

/// Adds a receiver's counters to the outcome.
fn enter(outcome: &mut Outcome, checkers: &[Checker], size: usize) {
    for checker in checkers {
        outcome.received += checker.messages;
        outcome.out_of_order += checker.out_of_order;
        outcome.corrupt += checker.corrupt;
        outcome.missing += checker.missing;
    }
    outcome.bytes = outcome.received * size as u64;
}

/// How a sender passes a message to a mechanism. The way is chosen once, outside the loop.
pub(crate) trait Put {
    fn put<T: Tx>(tx: &mut T, source: &mut Source, scratch: &mut [u8]) -> Result<(), SendError>;
}

/// Copies a prepared message.
pub(crate) struct ByCopy;

impl Put for ByCopy {
    #[inline(always)]
    fn put<T: Tx>(tx: &mut T, source: &mut Source, _: &mut [u8]) -> Result<(), SendError> {
        tx.send(source.next_message(), None)
    }
}

/// Writes the message into the mechanism's own buffer.
pub(crate) struct InPlace;

impl Put for InPlace {
    #[inline(always)]
    fn put<T: Tx>(tx: &mut T, source: &mut Source, scratch: &mut [u8]) -> Result<(), SendError> {
        let sequence = source.next_sequence();
        tx.send_in_place(source.size(), scratch, None, |m| write_in_place(m, sequence))
    }
}

/// Receives one message, reads every byte of it in the receiver's buffer, and checks it.
#[inline(always)]
fn take<R: Rx>(rx: &mut R, scratch: &mut [u8], checker: &mut Checker) -> Result<Seen, RecvError> {
    rx.recv_in_place(scratch, None, |message| checker.check(message))
}
