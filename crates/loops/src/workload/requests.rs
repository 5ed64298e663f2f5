//! Requests at a fixed rate, open loop: each is due at a fixed time, even if earlier requests are
//! late. Only one request, or a given number of them, is outstanding at a time, so a request that
//! is due while these are unanswered has to wait. Its latency counts from the time at which it was
//! due, so a stall is charged to every request that it delayed. Of several clients, each has its
//! own schedule, and ends its window by a mark for the server, which the server returns when it has
//! those of all.

use crossway_mech::{RecvError, Rx, Tx};
use crossway_sys::clock::{instant_at, monotonic_ns, sleep_until_ns};

use super::clients::send_amid_replies;
use super::latencies::Latencies;
use super::paced::{Pace, Punctuality, spin_ahead_ns};
use super::{Put, enter, metered, take};
use crate::LoopError;
use crate::ends::Ends;
use crate::role_context::RoleContext;
use crate::{Outcome, Window};
use crossway_records::inputs::{Span, Workload};

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
    ends: &mut (T, R),
    context: &mut RoleContext,
    messages: u64,
    punctuality: &mut Punctuality,
    latencies: &mut Latencies<'_>,
    _: P,
) -> Result<(), LoopError> {
    if let Workload::Clients { in_flight: several @ 2.., .. } = context.task.inputs.workload {
        let most = u64::from(several);
        return ask_several::<T, R, P>(ends, context, (messages, most), punctuality, latencies);
    }
    let (tx, rx) = ends;
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

/// Keeps at most `most` of the requests under way. While fewer are, waits for the time at which the
/// next one is due or for a reply, whichever comes first.
fn ask_several<T: Tx, R: Rx, P: Put>(
    (tx, rx): &mut (T, R),
    context: &mut RoleContext,
    (messages, most): (u64, u64),
    punctuality: &mut Punctuality,
    latencies: &mut Latencies<'_>,
) -> Result<(), LoopError> {
    let spin_ahead_ns = spin_ahead_ns(&context.task.inputs);
    let (len, in_place) = (context.receive_len(), context.in_place());
    let RoleContext { source, scratch, checkers, .. } = context;
    let checker = &mut checkers[0];
    let (mut sent, mut replied) = (0, 0);
    while replied < messages {
        let under_way = sent - replied;
        if sent == messages || under_way == most {
            take(rx, &mut scratch[..len], checker)?;
            let now = monotonic_ns();
            latencies.add(replied, now);
            punctuality.held_up_until(now);
            replied += 1;
            continue;
        }
        let instant = latencies.pace().instant_ns(sent);
        let began = match under_way {
            0 => latencies.pace().wait_for(sent, spin_ahead_ns),
            _ => monotonic_ns(),
        };
        if began < instant {
            match rx.recv(&mut scratch[..len], Some(instant_at(instant))) {
                Ok(n) => {
                    checker.check(&scratch[..n]);
                    latencies.add(replied, monotonic_ns());
                    replied += 1;
                }
                Err(RecvError::TimedOut) => {}
                Err(e) => return Err(e.into()),
            }
            continue;
        }
        // With replies under way, a send must not wait: the server may wait for room for them.
        if in_place || under_way == 0 {
            P::put(tx, source, scratch)?;
        } else {
            send_amid_replies(tx, source.next_message(), || {
                if replied == sent {
                    return Ok(false);
                }
                take(rx, &mut scratch[..len], checker)?;
                latencies.add(replied, monotonic_ns());
                replied += 1;
                Ok(true)
            })?;
        }
        tx.flush()?;
        sent += 1;
        punctuality.add(instant, began, monotonic_ns());
    }
    Ok(())
}
