//! Connect, one request, one reply, close (item C4 of the cluster study). The client times set-up and exchange.
//! Tear-down lasts from when the client begins to close until the server has closed too, so the controller pairs the
//! time stamps of both ends.
//!
//! Beside opening a channel, a virtual call does not count: what follows is compiled once for all mechanisms.

use crossway_mech::erased::{AnyRx, AnyTx};
use crossway_mech::{Mechanism, Offer, RecvError, opening};
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
    let words = context.offers[0].words.clone();
    for _ in 0..exchanges {
        let mut offer = Offer { words: words.clone(), fds: Vec::new() };
        let begin = monotonic_ns();
        let (mut tx, mut rx) = opening::connect::<M>(&context.spec, &mut offer)?;
        let connected = monotonic_ns();
        ask_once::<P>(&mut tx, &mut rx, context)?;
        let answered = monotonic_ns();
        opening::close((tx, rx));
        times.set_up.record(connected - begin);
        times.exchanged.record(answered - connected);
        times.closing.push(answered);
    }
    Ok(())
}

#[inline(never)]
fn ask_once<P: Put>(
    mut tx: &mut dyn AnyTx,
    mut rx: &mut dyn AnyRx,
    context: &mut RoleContext,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let RoleContext { source, scratch, checkers, .. } = context;
    P::put(&mut tx, source, scratch)?;
    tx.flush()?;
    take(&mut rx, &mut scratch[..len], &mut checkers[0])?;
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
    for _ in 0..exchanges {
        let (mut tx, mut rx) = opening::accept(listener, None)?;
        answer_once::<P>(&mut tx, &mut rx, context)?;
        opening::close((tx, rx));
        closed.push(monotonic_ns());
    }
    Ok(())
}

/// Answers the request of a connection, and waits until its client closes it.
#[inline(never)]
fn answer_once<P: Put>(
    mut tx: &mut dyn AnyTx,
    mut rx: &mut dyn AnyRx,
    context: &mut RoleContext,
) -> Result<(), LoopError> {
    let len = context.receive_len();
    let sees_close = context.caps.detects_peer_death;
    let RoleContext { source, scratch, checkers, .. } = context;
    take(&mut rx, &mut scratch[..len], &mut checkers[0])?;
    P::put(&mut tx, source, scratch)?;
    tx.flush()?;
    if !sees_close {
        return Ok(());
    }
    match rx.recv(&mut scratch[..len], None) {
        Err(RecvError::PeerClosed) => Ok(()),
        Ok(_) => Err(LoopError::Wrong(
            "a second request arrived on a connection that serves only one".to_owned(),
        )),
        // A reset is a close, too: the client may have closed before it received the last part of our
        // reply.
        Err(RecvError::Os(_)) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
