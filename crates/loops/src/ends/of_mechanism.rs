//! The ends of a role's channels of one mechanism.
//!
//! The loops of throughput and round trips are compiled for each mechanism; so are, over rings, those of pairs and fans at
//! full speed. The others exist once for all mechanisms, behind virtual calls: beside a system call, a look at the clock or
//! a wait, these do not count, and they are the same for all that are compared. Open-ended loops are other programs' load.

use std::time::Duration;

use crossway_mech::erased::{AnyRx, AnyTx};
use crossway_mech::{Caps, Facts, Mechanism, Offer, OpenError, Reliability, Rx, Spec, Tx, opening};
use crossway_sys::clock::{instant_at, monotonic_ns};

use super::Ends;
use crate::LoopError;
use crate::Window;
use crate::role_context::{Distribution, RoleContext};
use crate::workload::{
    Arrivals, ByCopy, InPlace, Latencies, Pace, Punctuality, Receipts, Stop, clients, exchange,
    open_ended, paced, ping_pong, replay, requests, shared, throughput,
};

/// The ends of channels of one mechanism.
pub(crate) struct EndsOf<M: Mechanism> {
    listeners: Vec<M::Listener>,
    channels: Vec<(M::Tx, M::Rx)>,
}

impl<M: Mechanism> EndsOf<M> {
    pub(crate) fn new() -> EndsOf<M> {
        EndsOf { listeners: Vec::new(), channels: Vec::new() }
    }
}

/// Calls a loop with the way in which the sender passes messages. The loop that writes in place exists only for
/// mechanisms that can.
macro_rules! by_access {
    ($context:ident, $put:ident => $call:expr) => {
        if M::caps().in_place && $context.in_place() {
            let $put = InPlace;
            $call
        } else {
            let $put = ByCopy;
            $call
        }
    };
}

/// Calls a loop with the channels behind virtual calls.
macro_rules! virtually {
    ($self:ident, $channels:ident => $call:expr) => {{
        let mut behind = behind_virtual_calls(&mut $self.channels);
        let $channels = &mut behind[..];
        $call
    }};
}

/// Calls a loop with the channels: with the mechanism's own halves if its messages do not enter the kernel, and otherwise
/// with halves behind virtual calls, so that the loop exists once for all such mechanisms.
macro_rules! by_reach {
    ($self:ident, $channels:ident => $call:expr) => {
        if M::CARRIER.enters_kernel() {
            virtually!($self, $channels => $call)
        } else {
            let $channels = &mut $self.channels[..];
            $call
        }
    };
}

/// Both halves of each channel, behind virtual calls.
fn behind_virtual_calls<T: Tx, R: Rx>(
    channels: &mut [(T, R)],
) -> Vec<(&mut dyn AnyTx, &mut dyn AnyRx)> {
    let halves = channels.iter_mut();
    halves.map(|(tx, rx)| (tx as &mut dyn AnyTx, rx as &mut dyn AnyRx)).collect()
}

/// Whether messages may be lost. The loops that wait for a message which ends them do not exist for such a mechanism.
fn loses<M: Mechanism>() -> bool {
    M::caps().reliability == Reliability::Lossy
}

const NO_EXCHANGES: &str = "the mechanism cannot open its channel again for each exchange";
const NO_END: &str = "the mechanism may lose the message that ends the workload";

/// The error of an order that no plan leads to, since its checks of cases refuse the workload for the mechanism.
#[cold]
#[inline(never)]
fn no_loop(why: &str) -> LoopError {
    LoopError::Wrong(why.to_owned())
}

impl<M: Mechanism> Ends for EndsOf<M> {
    fn caps(&self) -> Caps {
        M::caps()
    }

    fn listen(&mut self, spec: &Spec) -> Result<Offer, OpenError> {
        let (listener, offer) = opening::listen::<M>(spec)?;
        self.listeners.push(listener);
        Ok(offer)
    }

    fn connect(&mut self, spec: &Spec, offer: &mut Offer) -> Result<(), OpenError> {
        self.channels.push(opening::connect::<M>(spec, offer)?);
        Ok(())
    }

    fn accept(&mut self, timeout: Duration) -> Result<(), OpenError> {
        for listener in &mut self.listeners {
            let until = instant_at(monotonic_ns() + timeout.as_nanos() as u64);
            self.channels.push(opening::accept(listener, Some(until))?);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.channels.clear();
    }

    fn channels(&self) -> usize {
        self.channels.len()
    }

    fn halves(&mut self, channel: usize) -> Option<(&mut dyn AnyTx, &mut dyn AnyRx)> {
        let (tx, rx) = self.channels.get_mut(channel)?;
        Some((tx, rx))
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        if let Some((tx, rx)) = self.channels.first() {
            crossway_mech::combine(&mut facts, Tx::facts(tx));
            crossway_mech::combine(&mut facts, Rx::facts(rx));
        }
        facts
    }

    fn send(&mut self, context: &mut RoleContext, messages: u64) -> Result<(), LoopError> {
        let (tx, _) = &mut self.channels[0];
        by_access!(context, put => throughput::send_loop(tx, context, messages, put))
    }

    fn receive(
        &mut self,
        context: &mut RoleContext,
        window: &Window,
    ) -> Result<Receipts, LoopError> {
        throughput::receive_loop(&mut self.channels[0].1, context, window)
    }

    fn ask(&mut self, context: &mut RoleContext, window: &Window) -> Result<(), LoopError> {
        let ends = &mut self.channels[0];
        by_access!(context, put => ping_pong::ask_loop(ends, context, window, put))
    }

    fn answer(&mut self, context: &mut RoleContext, messages: u64) -> Result<(), LoopError> {
        let ends = &mut self.channels[0];
        by_access!(context, put => ping_pong::answer_loop(ends, context, messages, put))
    }

    fn request(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        punctuality: &mut Punctuality,
        latencies: &mut Latencies<'_>,
    ) -> Result<(), LoopError> {
        virtually!(self, channels => by_access!(context, put => {
            requests::ask_loop(&mut channels[0], context, messages, punctuality, latencies, put)
        }))
    }

    fn send_paced(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        pace: &Pace,
        punctuality: &mut Punctuality,
    ) -> Result<(), LoopError> {
        virtually!(self, channels => by_access!(context, put => {
            paced::send_loop(&mut channels[0].0, context, messages, pace, punctuality, put)
        }))
    }

    fn receive_paced(
        &mut self,
        context: &mut RoleContext,
        window: &Window,
        arrivals: &mut Arrivals<'_>,
    ) -> Result<(), LoopError> {
        virtually!(self, channels => {
            paced::receive_loop(&mut channels[0].1, context, window, arrivals)
        })
    }

    fn replay(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        begin_ns: u64,
    ) -> Result<(), LoopError> {
        if loses::<M>() {
            return Err(no_loop(NO_END));
        }
        virtually!(self, channels => replay::play(channels, context, messages, begin_ns))
    }

    fn exchange(
        &mut self,
        context: &mut RoleContext,
        exchanges: u64,
        times: &mut exchange::Times,
    ) -> Result<(), LoopError> {
        if !M::caps().reconnects {
            return Err(no_loop(NO_EXCHANGES));
        }
        by_access!(context, put => exchange::ask_loop::<M, _>(context, exchanges, times, put))
    }

    fn serve_exchanges(
        &mut self,
        context: &mut RoleContext,
        exchanges: u64,
        closed: &mut Vec<u64>,
    ) -> Result<(), LoopError> {
        if !M::caps().reconnects {
            return Err(no_loop(NO_EXCHANGES));
        }
        let listener = &mut self.listeners[0];
        by_access!(context, put => exchange::answer_loop::<M, _>(listener, context, exchanges, closed, put))
    }

    fn send_to_all(
        &mut self,
        context: &mut RoleContext,
        until_ns: u64,
    ) -> Result<shared::Sent, LoopError> {
        if loses::<M>() {
            return Err(no_loop(NO_END));
        }
        by_reach!(self, channels => by_access!(context, put => {
            shared::send_loop(channels, context, until_ns, put)
        }))
    }

    fn publish(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        pace: &Pace,
        punctuality: &mut Punctuality,
    ) -> Result<(), LoopError> {
        virtually!(self, channels => by_access!(context, put => {
            paced::publish_loop(channels, context, messages, pace, punctuality, put)
        }))
    }

    fn ask_in_flight(
        &mut self,
        context: &mut RoleContext,
        until_ns: u64,
        asked: &mut clients::Asked,
    ) -> Result<(), LoopError> {
        if loses::<M>() {
            return Err(no_loop(NO_END));
        }
        virtually!(self, channels => by_access!(context, put => {
            clients::ask_loop(&mut channels[0], context, until_ns, asked, put)
        }))
    }

    fn answer_all(&mut self, context: &mut RoleContext) -> Result<(), LoopError> {
        if loses::<M>() {
            return Err(no_loop(NO_END));
        }
        virtually!(self, channels => by_access!(context, put => {
            clients::answer_loop(channels, context, put)
        }))
    }

    fn receive_from_all(
        &mut self,
        context: &mut RoleContext,
        fan_in: bool,
        work: shared::Work<'_, '_>,
    ) -> Result<(), LoopError> {
        if loses::<M>() {
            return Err(no_loop(NO_END));
        }
        // Other mechanisms have a channel for each sender.
        let fan_in = M::caps().fan_in && fan_in;
        by_reach!(self, channels => shared::receive_loop(channels, context, fan_in, work))
    }

    fn stream(&mut self, context: &mut RoleContext, stop: Stop<'_>) -> Result<u64, LoopError> {
        virtually!(self, channels => open_ended::send_loop(&mut channels[0].0, context, stop))
    }

    fn stream_paced(
        &mut self,
        context: &mut RoleContext,
        stop: Stop<'_>,
        pace: &Pace,
        punctuality: &mut Punctuality,
    ) -> Result<u64, LoopError> {
        virtually!(self, channels => {
            open_ended::send_paced_loop(&mut channels[0].0, context, stop, pace, punctuality)
        })
    }

    fn receive_stream(
        &mut self,
        context: &mut RoleContext,
        arrivals: Option<&mut Arrivals<'_>>,
    ) -> Result<(), LoopError> {
        virtually!(self, channels => {
            open_ended::receive_loop(&mut channels[0].1, context, arrivals)
        })
    }

    fn ask_until(
        &mut self,
        context: &mut RoleContext,
        stop: Stop<'_>,
        times: &mut Distribution,
    ) -> Result<u64, LoopError> {
        virtually!(self, channels => open_ended::ask_loop(&mut channels[0], context, stop, times))
    }

    fn answer_stream(&mut self, context: &mut RoleContext) -> Result<u64, LoopError> {
        virtually!(self, channels => open_ended::answer_loop(&mut channels[0], context))
    }
}
