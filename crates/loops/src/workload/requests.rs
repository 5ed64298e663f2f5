//! Requests at a fixed rate, open loop: each is due at a fixed time, even if earlier requests are late. Only one
//! request is outstanding at a time, so a request that is due while the previous one is unanswered has to wait. Its
//! latency counts from the time at which it was due, so a stall is charged to every request that it delayed. Of several
//! clients, each has its own schedule, and ends its window by a mark for the server,
//! which the server returns when it has those of all.

use crossway_mech::{Rx, Tx};
use crossway_sys::clock::{monotonic_ns, sleep_until_ns};

use super::latencies::Latencies;
use super::paced::{Pace, Punctuality, spin_ahead_ns};
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
    period_ns: u64,
    first_ns: u64,
) -> Result<Outcome, LoopError> {
    let pace = Pace::of_one(period_ns, first_ns);
    let mut punctuality = Punctuality::new(&pace);
    let mut latencies = Latencies::new(&pace);
    let mut outcome =
        metered(|| ends.request(context, window.messages, &mut punctuality, &mut latencies))?;
    if context.task.inputs.workload.ends_with_mark()
        && let Some((tx, rx)) = ends.halves(0)
    {
        tx.send(context.source.end_message(), None)?;
        tx.flush()?;
        // What follows a window takes CPU time, which other clients on this CPU may still need
        // for their last requests.
        sleep_until_ns(pace.instant_ns(window.messages));
        rx.recv(&mut context.scratch, None)?;
    }
    // The first operation is the first request, not the sleep before it.
    outcome.start_ns = outcome.start_ns.max(pace.instant_ns(0));
    outcome.pacing = Some(punctuality.finish());
    latencies.enter(Span::RoundTrip, &mut outcome);
    outcome.sent = window.messages;
    enter(&mut outcome, &context.checkers, context.received_bytes());
    Ok(outcome)
}

pub(crate) fn ask_loop<T: Tx, R: Rx, P: Put>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    messages: u64,
    punctuality: &mut Punctuality,
    latencies: &mut Latencies<'_>,
    _: P,
) -> Result<(), LoopError> {
    let spin_ahead_ns = spin_ahead_ns(&context.task.inputs);
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, .. } = context;
    let checker = &mut checkers[0];
    for request in 0..messages {
        let instant = latencies.pace().instant_ns(request);
        let began = latencies.pace().wait_for(request, spin_ahead_ns);
        P::put(tx, source, scratch)?;
        tx.flush()?;
        take(rx, &mut scratch[..len], checker)?;
        let now = monotonic_ns();
        latencies.add(request, now);
        punctuality.add(instant, began, now);
    }
    Ok(())
}
