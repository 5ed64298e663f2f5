//! Requests at a fixed rate, open loop: each is due at a fixed time, even if earlier requests are late. Only one
//! request is outstanding at a time, so a request that is due while the previous one is unanswered has to wait. Its
//! latency counts from the time at which it was due, so a stall is charged to every request that it delayed.

use crossway_mech::{Mechanism, Tx};
use crossway_sys::clock::monotonic_ns;

use super::latencies::Latencies;
use super::paced::{Pace, Punctuality, SPIN_AHEAD_NS, owns_a_core};
use super::{ByCopy, InPlace, Put, enter, metered, take};
use crate::control::{Outcome, Window};
use crate::role_context::{RoleContext, RoleError};
use crossway_records::inputs::Span;

pub(super) fn ask<M: Mechanism>(
    context: &mut RoleContext<M>,
    window: &Window,
    period_ns: u64,
    first_ns: u64,
) -> Result<Outcome, RoleError> {
    let pace = Pace::of_one(period_ns, first_ns);
    let mut outcome = if context.in_place() {
        ask_by::<M, InPlace>(context, window, &pace)?
    } else {
        ask_by::<M, ByCopy>(context, window, &pace)?
    };
    outcome.sent = window.messages;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    Ok(outcome)
}

fn ask_by<M: Mechanism, P: Put>(
    context: &mut RoleContext<M>,
    window: &Window,
    pace: &Pace,
) -> Result<Outcome, RoleError> {
    let spin_ahead_ns = if owns_a_core(&context.task.inputs) { SPIN_AHEAD_NS } else { 0 };
    let len = context.receive_len();
    let RoleContext { channels, source, scratch, checkers, .. } = context;
    let (tx, rx) = &mut channels[0];
    let checker = &mut checkers[0];
    let mut punctuality = Punctuality::new(pace);
    let mut latencies = Latencies::new(pace);
    let mut outcome = metered(|| {
        for request in 0..window.messages {
            let instant = pace.instant_ns(request);
            let began = pace.wait_for(request, spin_ahead_ns);
            P::put(tx, source, scratch)?;
            tx.flush()?;
            take(rx, &mut scratch[..len], checker)?;
            let now = monotonic_ns();
            latencies.add(request, now);
            punctuality.add(instant, began, now);
        }
        Ok(())
    })?;
    // The first operation is the first request, not the sleep before it.
    outcome.start_ns = outcome.start_ns.max(pace.instant_ns(0));
    outcome.pacing = Some(punctuality.finish());
    latencies.enter(Span::RoundTrip, &mut outcome);
    Ok(outcome)
}
