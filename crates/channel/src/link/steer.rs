//! Starting switches, and carrying out the actions of the switch protocol.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crossway_mech::OpenError;

use super::state::Pending;
use super::{Link, State, flag};
use crate::event::{EventKind, Reason};
use crate::fault;
use crate::message::{Message, OfferText};
use crate::protocol::{Action, Role, Signal};
use crate::transport::Transport;

impl Link {
    /// Carries out the actions of the switch protocol, in order.
    pub(crate) fn carry_out(&self, state: &mut State) {
        while let Some(action) = state.switch.poll_action() {
            match action {
                Action::Send(signal) => {
                    let (offer, fds, why) = match signal {
                        Signal::Offer(_) => state.to_offer.take().map_or_else(
                            || (None, Vec::new(), None),
                            |(text, fds, why)| (Some(text), fds, Some(why)),
                        ),
                        _ => (None, Vec::new(), None),
                    };
                    let message = Message::Signal { signal, offer, why };
                    state.wire.send(&message, fds);
                    fault::point(&format!("{signal:?}"));
                }
                Action::Open(_) => state.must_open = true,
                Action::Install(_) => {
                    let halves = state.pending.as_mut().and_then(|p| p.halves.take());
                    let (tx, rx) = halves.expect("made before it is installed");
                    if let Some(datagrams) = tx.datagrams() {
                        datagrams.take_into_use();
                    }
                    self.take_session_of(state, &tx);
                    (state.next_tx, state.next_rx) = (Some(tx), Some(rx));
                }
                Action::MoveTx(_) => {
                    state.must_mark = true;
                    self.tx.raise(flag::MOVE);
                }
                Action::Discard(epoch) => {
                    state.forget_session(epoch);
                    if let Some(pending) = state.pending.take() {
                        let (from, to) = (state.transport, pending.transport);
                        state.judge.failed(to, Instant::now());
                        let because = "the peer cannot open it".to_owned();
                        self.log(state, EventKind::Refused { from, to, because });
                    }
                    self.relax(false);
                }
                Action::Settled(_) => {
                    let pending = state.pending.take().expect("a switch ends that has begun");
                    let from = std::mem::replace(&mut state.transport, pending.transport);
                    state.is_releasing = true;
                    let epoch = state.switch.epoch();
                    state.sessions.retain(|session| session.epoch() >= Some(epoch));
                    let took_us =
                        pending.since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
                    let (to, why) = (pending.transport, pending.why);
                    self.log(state, EventKind::Switched { from, to, why, took_us });
                    // A channel that was parked chooses its transport again at the first check.
                    if from != Transport::Parked {
                        state.judge.switched(Instant::now());
                    }
                    // Spinning ends on one CPU stall each other, so the first check must not wait as long as it would
                    // after an idle one.
                    if state.wished.is_some() || state.transport.spins() {
                        self.hurry.store(true, Ordering::Release);
                    }
                    self.relax(false);
                    fault::point("Settled");
                }
            }
        }
        // Wakes blocked halves, and the control thread, which opens transports, moves idle halves and drops old ones.
        self.changed.notify_all();
        self.call();
    }

    /// Leader: begins a switch. Returns false if no switch can begin now: at the follower, during another switch, while
    /// the old transport's memory is being freed, during a move, or after the end of the channel.
    ///
    /// # Errors
    /// The transport cannot be created.
    pub(crate) fn start(&self, to: Transport, why: Reason) -> Result<bool, OpenError> {
        {
            let state = self.lock();
            if self.role != Role::Leader
                || !state.switch.is_settled()
                || state.is_releasing()
                || state.over
                || state.is_elsewhere()
            {
                return Ok(false);
            }
        }
        self.check_carries(to)?;
        let (halves, offer) = match to {
            Transport::Udp => self.make_lossy()?,
            _ => self.shape.make(to)?,
        };
        fault::point("Made");
        let mut state = self.lock();
        if state.over || state.is_elsewhere() || state.switch.offer().is_err() {
            return Ok(false);
        }
        // The peer may connect before its Ready signal arrives here.
        self.take_session_of(&mut state, &halves.0);
        let (text, fds) = OfferText::new(to, offer);
        state.to_offer = Some((text, fds, why.clone()));
        if state.transport.spins() && why.is_urgent() {
            self.relax(true);
        }
        state.pending =
            Some(Pending { transport: to, why, since: Instant::now(), halves: Some(halves) });
        self.carry_out(&mut state);
        Ok(true)
    }

    /// Checks that a transport can connect this end to the other.
    pub(crate) fn check_carries(&self, transport: Transport) -> Result<(), OpenError> {
        let state = self.lock();
        let why = match &state.abroad {
            _ if transport == Transport::Parked => return Ok(()),
            None if Transport::LOCAL.contains(&transport) => return Ok(()),
            Some(abroad) if abroad.transport == transport => return Ok(()),
            Some(abroad) if transport == Transport::Udp && abroad.transport == Transport::Tcp => {
                match self.forbids_datagrams(&state) {
                    None => return Ok(()),
                    Some(why) => why,
                }
            }
            Some(abroad) => format!("the peer is on another host, at {}", abroad.peer),
            None => "both ends are on one host".to_owned(),
        };
        Err(OpenError::Unsupported { mechanism: transport.id(), why })
    }

    /// Requests a switch to a transport. A follower passes the request on to the leader.
    pub(crate) fn wish(&self, transport: Transport) {
        let mut state = self.lock();
        if self.role == Role::Leader {
            state.wished = Some((transport, Reason::Asked));
            drop(state);
            self.call_policy();
        } else {
            state.say(Message::Wish { transport, why: Reason::Asked });
        }
    }

    pub(super) fn relax(&self, on: bool) {
        if on {
            self.tx.raise(flag::RELAX);
            self.rx.raise(flag::RELAX);
        } else {
            self.tx.lower(flag::RELAX);
            self.rx.lower(flag::RELAX);
        }
    }
}
