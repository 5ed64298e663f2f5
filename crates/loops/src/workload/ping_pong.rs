//! Request and reply. Each round trip needs a single clock read, which ends one round trip and begins the next.

use crossway_mech::{Rx, Tx};

use super::{Put, enter, metered, take};
use crate::LoopError;
use crate::ends::Ends;
use crate::role_context::RoleContext;
use crate::{Outcome, Window};
use crossway_records::inputs::Span;

pub(super) fn ask(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
) -> Result<Outcome, LoopError> {
    let mut outcome = metered(|| ends.ask(context, window))?;
    outcome.sent = window.messages;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    let distribution = context.samples.distribution(&context.ticker, window.batch);
    outcome.histograms.push((Span::RoundTrip, distribution.encode()));
    Ok(outcome)
}

pub(crate) fn ask_loop<T: Tx, R: Rx, P: Put>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    window: &Window,
    _: P,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, samples, ticker, .. } = context;
    let checker = &mut checkers[0];
    let batch = u64::from(window.batch.max(1));
    let mut last = ticker.now();
    for _ in 0..window.messages / batch {
        for _ in 0..batch {
            P::put(tx, source, scratch)?;
            tx.flush()?;
            take(rx, &mut scratch[..len], checker)?;
        }
        let now = ticker.now();
        samples.store(now.wrapping_sub(last));
        last = now;
    }
    Ok(())
}

pub(super) fn answer(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
) -> Result<Outcome, LoopError> {
    let mut outcome = metered(|| ends.answer(context, window.messages))?;
    outcome.sent = window.messages;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    Ok(outcome)
}

pub(crate) fn answer_loop<T: Tx, R: Rx, P: Put>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    messages: u64,
    _: P,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, .. } = context;
    let checker = &mut checkers[0];
    for _ in 0..messages {
        take(rx, &mut scratch[..len], checker)?;
        P::put(tx, source, scratch)?;
        tx.flush()?;
    }
    Ok(())
}
