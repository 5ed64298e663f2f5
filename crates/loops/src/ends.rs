//! The ends of a role's channels, whatever their mechanism.
//!
//! Only what touches messages in a measured loop is compiled once per mechanism: the loops of the workloads, which are
//! generic over the halves of a channel. A role reaches them through [`Ends`], by one virtual call per window. All
//! that surrounds the loops exists once, and so do the loops that [`EndsOf`] passes halves behind virtual calls.

mod of_mechanism;

use std::time::Duration;

use crossway_mech::erased::{AnyRx, AnyTx};
use crossway_mech::{Caps, Facts, Offer, OpenError, Spec};

use crate::LoopError;
use crate::Window;
use crate::role_context::{Distribution, RoleContext};
use crate::workload::{
    Arrivals, Latencies, Pace, Punctuality, Receipts, Stop, clients, exchange, shared,
};
pub(crate) use of_mechanism::EndsOf;

/// The ends of a role. Methods that take a [`RoleContext`] run one loop of a workload on the first channel, unless they
/// say otherwise.
pub(crate) trait Ends {
    fn caps(&self) -> Caps;

    /// Adds a listener; returns its offer.
    fn listen(&mut self, spec: &Spec) -> Result<Offer, OpenError>;

    /// Adds the channel that the offer describes.
    fn connect(&mut self, spec: &Spec, offer: &mut Offer) -> Result<(), OpenError>;

    /// Adds one channel from each listener; waits for each peer as long as `timeout`.
    fn accept(&mut self, timeout: Duration) -> Result<(), OpenError>;

    /// Closes all channels.
    fn close(&mut self);

    fn channels(&self) -> usize;

    /// Both halves of a channel, for code in which a virtual call for each message does not matter; `None` if there is
    /// no such channel.
    fn halves(&mut self, channel: usize) -> Option<(&mut dyn AnyTx, &mut dyn AnyRx)>;

    /// Values that the system reports about the first channel.
    fn facts(&self) -> Facts;

    fn send(&mut self, context: &mut RoleContext, messages: u64) -> Result<(), LoopError>;

    fn receive(
        &mut self,
        context: &mut RoleContext,
        window: &Window,
    ) -> Result<Receipts, LoopError>;

    fn ask(&mut self, context: &mut RoleContext, window: &Window) -> Result<(), LoopError>;

    fn answer(&mut self, context: &mut RoleContext, messages: u64) -> Result<(), LoopError>;

    fn request(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        punctuality: &mut Punctuality,
        latencies: &mut Latencies<'_>,
    ) -> Result<(), LoopError>;

    fn send_paced(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        pace: &Pace,
        punctuality: &mut Punctuality,
    ) -> Result<(), LoopError>;

    fn receive_paced(
        &mut self,
        context: &mut RoleContext,
        window: &Window,
        arrivals: &mut Arrivals<'_>,
    ) -> Result<(), LoopError>;

    /// Performs the steps of this role's end of a recording.
    fn replay(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        begin_ns: u64,
    ) -> Result<(), LoopError>;

    /// Opens a channel for each exchange, as the client.
    fn exchange(
        &mut self,
        context: &mut RoleContext,
        exchanges: u64,
        times: &mut exchange::Times,
    ) -> Result<(), LoopError>;

    /// Accepts a channel for each exchange; enters when each was closed.
    fn serve_exchanges(
        &mut self,
        context: &mut RoleContext,
        exchanges: u64,
        closed: &mut Vec<u64>,
    ) -> Result<(), LoopError>;

    /// Sends on all channels in turn.
    fn send_to_all(
        &mut self,
        context: &mut RoleContext,
        until_ns: u64,
    ) -> Result<shared::Sent, LoopError>;

    /// Sends each message on all channels, at fixed times.
    fn publish(
        &mut self,
        context: &mut RoleContext,
        messages: u64,
        pace: &Pace,
        punctuality: &mut Punctuality,
    ) -> Result<(), LoopError>;

    /// Keeps requests in flight.
    fn ask_in_flight(
        &mut self,
        context: &mut RoleContext,
        until_ns: u64,
        asked: &mut clients::Asked,
    ) -> Result<(), LoopError>;

    /// Answers on all channels.
    fn answer_all(&mut self, context: &mut RoleContext) -> Result<(), LoopError>;

    /// Receives from all channels.
    fn receive_from_all(
        &mut self,
        context: &mut RoleContext,
        fan_in: bool,
        work: shared::Work<'_, '_>,
    ) -> Result<(), LoopError>;

    fn stream(&mut self, context: &mut RoleContext, stop: Stop<'_>) -> Result<u64, LoopError>;

    fn stream_paced(
        &mut self,
        context: &mut RoleContext,
        stop: Stop<'_>,
        pace: &Pace,
        punctuality: &mut Punctuality,
    ) -> Result<u64, LoopError>;

    fn receive_stream(
        &mut self,
        context: &mut RoleContext,
        arrivals: Option<&mut Arrivals<'_>>,
    ) -> Result<(), LoopError>;

    fn ask_until(
        &mut self,
        context: &mut RoleContext,
        stop: Stop<'_>,
        times: &mut Distribution,
    ) -> Result<u64, LoopError>;

    fn answer_stream(&mut self, context: &mut RoleContext) -> Result<u64, LoopError>;
}
