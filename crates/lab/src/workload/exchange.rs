//! Connect, one request, one reply, close (item C4 of the cluster study). The client times set-up and exchange.
//! Tear-down lasts from when the client begins to close until the server has closed too, so the controller pairs the
//! time stamps of both ends.

use crossway_mech::{Listener, Mechanism, Offer, RecvError, Rx, Tx};
use crossway_sys::clock::monotonic_ns;

use super::{ByCopy, InPlace, Put, enter, metered, take};
use crate::control::{Outcome, Window};
use crate::role_context::{Distribution, RoleContext, RoleError};
use crossway_records::inputs::Span;

pub(super) fn ask<M: Mechanism>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    if context.in_place() {
        ask_by::<M, InPlace>(context, window)
    } else {
        ask_by::<M, ByCopy>(context, window)
    }
}

fn ask_by<M: Mechanism, P: Put>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    let len = context.receive_len();
    let size = context.source.size();
    let RoleContext { channels, source, scratch, checkers, offers, spec, .. } = context;
    channels.clear();
    let words = offers[0].words.clone();
    let mut set_up = Distribution::new();
    let mut exchanged = Distribution::new();
    let mut closing = Vec::with_capacity(window.messages as usize);
    let mut outcome = metered(|| {
        for _ in 0..window.messages {
            let mut offer = Offer { words: words.clone(), fds: Vec::new() };
            let begin = monotonic_ns();
            let (mut tx, mut rx) = M::connect(spec, &mut offer)?;
            let connected = monotonic_ns();
            P::put(&mut tx, source, scratch)?;
            tx.flush()?;
            take(&mut rx, &mut scratch[..len], &mut checkers[0])?;
            let answered = monotonic_ns();
            drop((tx, rx));
            set_up.record(connected - begin);
            exchanged.record(answered - connected);
            closing.push(answered);
        }
        Ok(())
    })?;
    outcome.sent = window.messages;
    outcome.stamps = closing;
    outcome.histograms.push((Span::SetUp, set_up.encode()));
    outcome.histograms.push((Span::Exchange, exchanged.encode()));
    enter(&mut outcome, checkers, size);
    Ok(outcome)
}

pub(super) fn answer<M: Mechanism>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    if context.in_place() {
        answer_by::<M, InPlace>(context, window)
    } else {
        answer_by::<M, ByCopy>(context, window)
    }
}

fn answer_by<M: Mechanism, P: Put>(
    context: &mut RoleContext<M>,
    window: &Window,
) -> Result<Outcome, RoleError> {
    let len = context.receive_len();
    let size = context.source.size();
    let sees_close = context.caps.detects_peer_death;
    let RoleContext { channels, source, scratch, checkers, listeners, .. } = context;
    channels.clear();
    let mut closed = Vec::with_capacity(window.messages as usize);
    let mut outcome = metered(|| {
        for _ in 0..window.messages {
            let (mut tx, mut rx) = listeners[0].accept(None)?;
            take(&mut rx, &mut scratch[..len], &mut checkers[0])?;
            P::put(&mut tx, source, scratch)?;
            tx.flush()?;
            if sees_close {
                match rx.recv(&mut scratch[..len], None) {
                    Err(RecvError::PeerClosed) => {}
                    Ok(_) => {
                        return Err(RoleError::Wrong(
                            "a second request arrived on a connection that serves only one"
                                .to_owned(),
                        ));
                    }
                    // A reset is a close, too: the client may have closed before it received the last part of our
                    // reply.
                    Err(RecvError::Os(_)) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            drop((tx, rx));
            closed.push(monotonic_ns());
        }
        Ok(())
    })?;
    outcome.sent = window.messages;
    outcome.stamps = closed;
    enter(&mut outcome, checkers, size);
    Ok(outcome)
}
