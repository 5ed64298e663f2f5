//! Connect, one request, one reply, close (item C4 of the cluster study). The client times set-up and exchange.
//! Tear-down lasts from when the client begins to close until the server has closed too, so the controller pairs the
//! time stamps of both ends.

use crossway_mech::{Mechanism, Offer, RecvError, Rx, Tx, opening};
use crossway_sys::clock::monotonic_ns;

use super::{Put, enter, metered, take};
use crate::LoopError;
use crate::ends::Ends;
use crate::role_context::{Distribution, RoleContext};
use crate::{Outcome, Window};
use crossway_records::inputs::Span;

/// The times of a client's exchanges.
pub(crate) struct Times {
    set_up: Distribution,
    exchanged: Distribution,
    /// When the client began to close each channel, CLOCK_MONOTONIC, nanoseconds.
    closing: Vec<u64>,
}

pub(super) fn ask(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
) -> Result<Outcome, LoopError> {
    ends.close();
    let mut times = Times {
        set_up: Distribution::new(),
        exchanged: Distribution::new(),
        closing: Vec::with_capacity(window.messages as usize),
    };
    let mut outcome = metered(|| ends.exchange(context, window.messages, &mut times))?;
    outcome.sent = window.messages;
    outcome.stamps = times.closing;
    outcome.histograms.push((Span::SetUp, times.set_up.encode()));
    outcome.histograms.push((Span::Exchange, times.exchanged.encode()));
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

pub(crate) fn ask_loop<M: Mechanism, P: Put>(
    context: &mut RoleContext,
    exchanges: u64,
    times: &mut Times,
    _: P,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, offers, spec, .. } = context;
    let words = offers[0].words.clone();
    for _ in 0..exchanges {
        let mut offer = Offer { words: words.clone(), fds: Vec::new() };
        let begin = monotonic_ns();
        let (mut tx, mut rx) = opening::connect::<M>(spec, &mut offer)?;
        let connected = monotonic_ns();
        P::put(&mut tx, source, scratch)?;
        tx.flush()?;
        take(&mut rx, &mut scratch[..len], &mut checkers[0])?;
        let answered = monotonic_ns();
        opening::close((tx, rx));
        times.set_up.record(connected - begin);
        times.exchanged.record(answered - connected);
        times.closing.push(answered);
    }
    Ok(())
}

pub(super) fn answer(
    ends: &mut dyn Ends,
    context: &mut RoleContext,
    window: &Window,
) -> Result<Outcome, LoopError> {
    ends.close();
    let mut closed = Vec::with_capacity(window.messages as usize);
    let mut outcome = metered(|| ends.serve_exchanges(context, window.messages, &mut closed))?;
    outcome.sent = window.messages;
    outcome.stamps = closed;
    enter(&mut outcome, &context.checkers, context.source.size());
    Ok(outcome)
}

pub(crate) fn answer_loop<M: Mechanism, P: Put>(
    listener: &mut M::Listener,
    context: &mut RoleContext,
    exchanges: u64,
    closed: &mut Vec<u64>,
    _: P,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let sees_close = context.caps.detects_peer_death;
    let RoleContext { source, scratch, checkers, .. } = context;
    for _ in 0..exchanges {
        let (mut tx, mut rx) = opening::accept(listener, None)?;
        take(&mut rx, &mut scratch[..len], &mut checkers[0])?;
        P::put(&mut tx, source, scratch)?;
        tx.flush()?;
        if sees_close {
            match rx.recv(&mut scratch[..len], None) {
                Err(RecvError::PeerClosed) => {}
                Ok(_) => {
                    return Err(LoopError::Wrong(
                        "a second request arrived on a connection that serves only one".to_owned(),
                    ));
                }
                // A reset is a close, too: the client may have closed before it received the last part of our
                // reply.
                Err(RecvError::Os(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        opening::close((tx, rx));
        closed.push(monotonic_ns());
    }
    Ok(())
}
