//! One direction, as fast as possible. Both ends know the number of messages, so neither has to read a clock in the
//! loop. If messages may be lost, the receiver cannot rely on the number. The sender then repeats an end mark, outside
//! the timed part, until the controller orders it to stop, because
//! the receiver has ended its window.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crossway_mech::{Rx, SendError, Tx};
use crossway_sys::clock::monotonic_ns;

use super::{Put, enter, metered, stop_ordered, take};
use crate::LoopError;
use crate::ends::Ends;
use crate::payload::{END_MARK, Seen};
use crate::role_context::RoleContext;
use crate::{Outcome, Window};

/// Interval between two end marks.
const MARK_PERIOD: Duration = Duration::from_millis(1);
/// Number of end marks after which the sender considers the receiver dead.
const MARK_LIMIT: u32 = 5_000;

pub(super) fn send(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
    line: BorrowedFd<'_>,
) -> Result<Outcome, LoopError> {
    let mut outcome = metered(|| ends.send(context, window.messages))?;
    outcome.sent = window.messages;
    if context.lossy() {
        end_lossy(ends, window.number, line)?;
    }
    Ok(outcome)
}

pub(crate) fn send_loop<T: Tx, P: Put>(
    tx: &mut T,
    context: &mut RoleContext,
    messages: u64,
    _: P,
) -> Result<(), LoopError> {
    let RoleContext { source, scratch, .. } = context;
    for _ in 0..messages {
        P::put(tx, source, scratch)?;
    }
    Ok(tx.flush()?)
}

pub(super) fn receive(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
) -> Result<Outcome, LoopError> {
    let mut receipts = Receipts::default();
    let mut outcome = metered(|| {
        receipts = ends.receive(context, window)?;
        Ok(())
    })?;
    outcome.first_receipt_ns = receipts.first_ns;
    if let Some(mark_ns) = receipts.mark_ns {
        outcome.end_ns = mark_ns;
    }
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

/// When messages arrived, CLOCK_MONOTONIC, nanoseconds.
#[derive(Default)]
pub(crate) struct Receipts {
    /// The first message; between hosts, the receiver's own interval counts, which begins here.
    first_ns: Option<u64>,
    /// The end mark, if messages may be lost.
    mark_ns: Option<u64>,
}

pub(crate) fn receive_loop<R: Rx>(
    rx: &mut R,
    context: &mut RoleContext,
    window: &Window,
) -> Result<Receipts, LoopError> {
    let lossy = context.lossy();
    let len = context.receive_len();
    let RoleContext { checkers, scratch, .. } = context;
    let scratch = &mut scratch[..len];
    let checker = &mut checkers[0];
    let mut receipts = Receipts::default();
    if lossy {
        receipts.mark_ns = Some(receive_lossy(rx, scratch, window.number, |m| {
            receipts.first_ns.get_or_insert_with(monotonic_ns);
            checker.check(m);
        })?);
        return Ok(receipts);
    }
    if window.messages > 0 {
        take(rx, scratch, checker)?;
        receipts.first_ns = Some(monotonic_ns());
    }
    for _ in 1..window.messages {
        take(rx, scratch, checker)?;
    }
    Ok(receipts)
}

/// The end mark for the window with this number.
fn mark(window: u32) -> [u8; 16] {
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&END_MARK.to_le_bytes());
    mark[8..].copy_from_slice(&u64::from(window).to_le_bytes());
    mark
}

/// Receives until this window's end mark; returns the time at which it arrived, CLOCK_MONOTONIC, nanoseconds.
///
/// The clock is read only when the mark arrives. Unless the first mark was lost, it arrives immediately after the last
/// message, so the time of the mark is the end of the window, apart from the mark's own latency.
pub(super) fn receive_lossy<R: Rx>(
    rx: &mut R,
    scratch: &mut [u8],
    window: u32,
    mut each: impl FnMut(&[u8]),
) -> Result<u64, LoopError> {
    loop {
        let ended = rx.recv_in_place(scratch, None, |message| {
            // The whole message is compared, so that content cannot be mistaken for a mark.
            let is_mark = message.len() == 16 && message[..8] == END_MARK.to_le_bytes();
            if !is_mark {
                each(message);
            }
            is_mark && *message == mark(window)
        })?;
        if ended {
            return Ok(monotonic_ns());
        }
    }
}

/// Repeats the end mark on all channels until the controller orders a stop, because each receiver has got one. A receiver
/// does not answer it: an answer could be lost, too, and messages that an overloaded receiver has returned can fill the sender's
/// queue.
pub(super) fn end_lossy(
    ends: &mut dyn Ends,
    window: u32,
    line: BorrowedFd<'_>,
) -> Result<(), LoopError> {
    for _ in 0..MARK_LIMIT {
        let until = Instant::now() + MARK_PERIOD;
        for channel in 0..ends.channels() {
            let Some((tx, _)) = ends.halves(channel) else { continue };
            match tx.try_send(&mark(window)) {
                Ok(()) | Err(SendError::Full) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if stop_ordered(line, until)? {
            return Ok(());
        }
    }
    Err(LoopError::Wrong(format!("the receiver got none of {MARK_LIMIT} end marks")))
}

/// Receives until an end mark arrives in place of a message.
pub(super) fn receive_until_mark<R: Rx>(
    rx: &mut R,
    scratch: &mut [u8],
    checker: &mut crate::payload::Checker,
) -> Result<(), LoopError> {
    while take(rx, scratch, checker)? == Seen::Message {}
    Ok(())
}
