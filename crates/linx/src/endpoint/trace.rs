//! An endpoint's part in a trace of its node.

use super::Endpoint;
use crate::Signal;
use crate::channel::Outgoing;
use crate::trace::record::{Record, Way};
use crate::wire::local::Request;

impl Endpoint {
    /// Reports a signal that was sent.
    #[inline]
    pub(super) fn trace_sent(&mut self, out: &Outgoing<'_>) {
        if !self.trace.is_current() {
            self.follow_trace();
        }
        if let Some(tap) = self.trace.tap() {
            tap.write(&Record {
                way: Way::Sent,
                out_of_band: out.out_of_band,
                reporter: self.spid.get(),
                from: out.from.get(),
                to: out.to.get(),
                number: out.number,
                size: out.size() as u32,
                // A signal that was passed by reference belongs to its receiver now.
                payload: if out.block.is_some() { &[] } else { out.payload },
                ..Record::default()
            });
        }
    }

    /// Whether, as far as this endpoint knows, no trace is running, so that sent signals need not be reported.
    pub(super) fn is_untraced(&mut self) -> bool {
        self.trace.is_current() && self.trace.tap().is_none()
    }

    /// Reports a signal that was received.
    #[inline]
    pub(super) fn trace_received(&mut self, signal: &Signal) {
        if !self.trace.is_current() {
            self.follow_trace();
        }
        if let Some(tap) = self.trace.tap() {
            tap.write(&Record {
                way: Way::Received,
                out_of_band: signal.is_out_of_band(),
                reporter: self.spid.get(),
                from: signal.sender().map_or(0, crate::Spid::get),
                to: self.spid.get(),
                number: signal.number(),
                size: signal.size() as u32,
                payload: signal.payload(),
                ..Record::default()
            });
        }
    }

    /// Takes part in a trace that has begun, or stops doing so if it has ended. If this fails, records are lost, but no
    /// signals.
    #[cold]
    fn follow_trace(&mut self) {
        if !self.trace.follow() || self.node_gone {
            return;
        }
        if let Err(error) = self.ask(&Request::JoinTrace, self.spid) {
            tracing::warn!(
                "{}: the trace will not contain this endpoint's signals: {error}",
                self.name
            );
        }
    }
}
