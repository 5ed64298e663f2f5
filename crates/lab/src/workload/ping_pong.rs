//! Request and reply. Each round trip needs a single clock read, which ends one round trip and begins the next.

use crossway_mech::{Mechanism, Tx};

use super::{ByCopy, InPlace, Put, enter, metered, take};
use crate::control::{Outcome, Window};
use crate::role_context::{RoleContext, RoleError};
use crossway_records::inputs::Span;

pub(super) fn ask<M: Mechanism>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    let mut outcome = if context.in_place() {
        ask_by::<M, InPlace>(context, window)?
    } else {
        ask_by::<M, ByCopy>(context, window)?
    };
    outcome.sent = window.messages;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    let distribution = context.samples.distribution(&context.ticker, window.batch);
    outcome.histograms.push((Span::RoundTrip, distribution.encode()));
    Ok(outcome)
}

fn ask_by<M: Mechanism, P: Put>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    let len = context.receive_len();
    let RoleContext { channels, source, scratch, checkers, samples, ticker, .. } = context;
    let (tx, rx) = &mut channels[0];
    let checker = &mut checkers[0];
    let batch = u64::from(window.batch.max(1));
    metered(|| {
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
    })
}

pub(super) fn answer<M: Mechanism>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    let mut outcome = if context.in_place() {
        answer_by::<M, InPlace>(context, window)?
    } else {
        answer_by::<M, ByCopy>(context, window)?
    };
    outcome.sent = window.messages;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    Ok(outcome)
}

fn answer_by<M: Mechanism, P: Put>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    let len = context.receive_len();
    let RoleContext { channels, source, scratch, checkers, .. } = context;
    let (tx, rx) = &mut channels[0];
    let checker = &mut checkers[0];
    metered(|| {
        for _ in 0..window.messages {
            take(rx, &mut scratch[..len], checker)?;
            P::put(tx, source, scratch)?;
            tx.flush()?;
        }
        Ok(())
    })
}
