//! One link to one peer over one bearer: set-up, supervision, sequencing and retransmission.
//!
//! The states are `Reset` (sends RESET), `Establishing` (the peer's end is known; sends ACTIVATE), `Established`, and
//! `FailingOver` (silent until its traffic has been transferred over another link). The kernel has more states, which
//! it needs only because its locks force it to reset a link in several steps. The kernel's link state `Synching` is a
//! state of the node here.

mod divided;
mod protocol;
mod receive;
mod send;
mod settings;
mod stats;
mod supervise;
mod tunnel;

use divided::Divided;
pub use settings::LinkSettings;
pub use stats::{LinkStats, PROFILE_BOUNDS};
pub(crate) use supervise::Pending;
pub(crate) use tunnel::Remains;

use crate::addr::{BearerId, NodeAddr};
use crate::backlog::Backlog;
use crate::limits::{
    NACK_REPEAT, PROBE_FIRST, SILENT_TICKS_MAX, TICK_MAX, TOLERANCE_MAX, TOLERANCE_MIN,
};
use crate::reassembly::Reassembly;
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::SendQueue;
use crate::seq::Seq;
use crate::time::{Nanos, earliest};
use crate::window::Window;
use crate::wire::{Capabilities, GapAck, InterfaceName};
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::time::Duration;

/// Configuration of a link before any exchange with the peer.
#[derive(Clone, Debug)]
pub(crate) struct LinkConfig {
    pub(crate) own: NodeAddr,
    pub(crate) peer: NodeAddr,
    pub(crate) bearer: BearerId,
    pub(crate) interface: InterfaceName,
    pub(crate) mtu: usize,
    /// Largest packet that the medium carries without dividing it, in bytes.
    pub(crate) whole_max: usize,
    pub(crate) window_max: u16,
    pub(crate) tolerance: Duration,
    pub(crate) priority: u8,
    /// Capabilities that both ends support.
    pub(crate) common: Capabilities,
}

/// State of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LinkState {
    /// Down: sends RESET until the peer's end answers.
    Reset,
    /// The peer's end has answered; sending ACTIVATE.
    Establishing,
    /// Up: sends and accepts packets with sequence numbers.
    Established,
    /// Down and silent until both ends have received the link's traffic over another link.
    FailingOver,
}

/// Why a link went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LinkDownReason {
    /// No sign of life was received from the peer for the tolerance time.
    Silent,
    /// The caller reported that the medium at this end is no longer available.
    MediumLost,
    /// The peer reset its end.
    PeerReset,
    /// The peer announced that it is stopping.
    PeerStopping,
    /// The oldest packet was not acknowledged despite retransmissions.
    ResendFailed,
    /// The oldest packet was not acknowledged despite retransmissions, and the medium divides packets of its size, so
    /// at least one fragment was lost each time. The link comes up again and then sends packets that the medium carries
    /// whole.
    FragmentsLost,
    /// Fragments of a message arrived out of order: the state of the two ends is no longer consistent.
    OutOfStep,
    /// The peer restarted or changed its media address.
    PeerChanged,
    /// The peer requested a different priority.
    PriorityChanged,
    /// A queue for this peer exceeded its limit: the backlog of the protocol's own messages, the packets held back for
    /// another link, or the name updates that wait for an earlier one.
    Overrun,
    /// The bearer was disabled, or the node is stopping.
    BearerDisabled,
    /// The peer's end of this link failed, and the peer now sends this link's traffic over another link.
    PeerFailedOver,
    /// A packet of the failed link does not fit into a packet of the remaining link, and the peer cannot reassemble
    /// tunnelled fragments.
    TunnelTooNarrow,
}

/// An event that a link reports to its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkEvent {
    Up,
    Down(LinkDownReason),
}

/// What to report about the broadcast link in a STATE message to the peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct BcastReport {
    /// Whether this end of the peer's broadcast link is open.
    pub(crate) open: bool,
    /// Last broadcast received in sequence.
    pub(crate) ack: Seq,
    pub(crate) gap: u16,
    pub(crate) runs: ArrayVec<GapAck, { crate::limits::GAP_ACK_BLOCKS_MAX }>,
    /// Last broadcast sent by this node.
    pub(crate) last_sent: Seq,
    /// Whether there is contact with the peer over any link.
    pub(crate) contact: bool,
}

/// A control message to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Reset { stopping: bool },
    Activate,
    State { probe: bool, keepalive: bool },
}

/// One end of a link.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    cfg: LinkConfig,
    state: LinkState,
    session: u16,
    /// Session number of the peer's end; `None` while it is not known.
    peer_session: Option<u16>,
    peer_bearer: BearerId,
    peer_interface: InterfaceName,
    mtu: usize,
    divided: Divided,
    tolerance: Duration,
    priority: u8,
    plane: u8,
    stats: LinkStats,

    tx: SendQueue,
    backlog: Backlog,
    /// Sequence number of the first packet that must not be sent yet; `None` if all may be sent.
    limit: Option<Seq>,
    window: Window,

    rx: ReceiveQueue,
    reassembly: Reassembly,
    /// Packets received since the last acknowledgement.
    unacked: u16,
    /// The largest number of packets received between two acknowledgements. The peer's window is at least this large,
    /// unless it shrank after a loss.
    unacked_max: u16,
    /// The sequence number that the peer reported as its next one.
    peer_next: Seq,
    /// Whether the next STATE must also report missing packets after the last one received, because the peer has
    /// probed.
    report_tail: bool,

    state_tx: Seq,
    state_rx: Seq,
    due: Option<Due>,
    /// Number of STATE messages to come that carry settings changed by an operator.
    tellings: u8,

    tick_at: Nanos,
    ticks: u32,
    silent_ticks: u32,
    tick_next_sent: Seq,
    /// Number of probes sent since another node reported the peer lost; `None` if there is no such report or the peer
    /// has been heard since.
    suspected: Option<u32>,
    /// When to send the next additional probe between two ticks; `None` unless a sign of life from the peer is overdue.
    insist_at: Option<Nanos>,
    probe_at: Option<Nanos>,
    probe_wait: Duration,
    probe_sent: Option<Nanos>,
    round_trip: Option<Duration>,
    nack_at: Option<Nanos>,
    /// When to acknowledge what was received unless more arrives; `None` below [`ACK_EVERY`](crate::limits::ACK_EVERY)
    /// packets.
    ack_at: Option<Nanos>,
    nack_wait: Duration,

    /// The contents of the queues when the link went down, until the node takes them.
    remains: Option<Box<Remains>>,
}

impl Link {
    pub(crate) fn new(now: Nanos, cfg: LinkConfig, session: u16) -> Self {
        let mut link = Self {
            state: LinkState::Reset,
            session,
            peer_session: None,
            peer_bearer: BearerId(0),
            peer_interface: InterfaceName::default(),
            mtu: cfg.mtu,
            divided: Divided::new(cfg.whole_max),
            tolerance: cfg.tolerance,
            priority: cfg.priority,
            plane: cfg.bearer.0,
            stats: LinkStats::default(),
            tx: SendQueue::new(Seq(1)),
            backlog: Backlog::new(cfg.own, cfg.peer),
            limit: None,
            window: Window::new(cfg.window_max),
            rx: ReceiveQueue::new(Seq(1)),
            reassembly: Reassembly::default(),
            unacked: 0,
            unacked_max: 0,
            peer_next: Seq(1),
            report_tail: false,
            state_tx: Seq(1),
            state_rx: Seq(1),
            due: None,
            tellings: 0,
            tick_at: now,
            ticks: 0,
            silent_ticks: 0,
            tick_next_sent: Seq(1),
            suspected: None,
            insist_at: None,
            probe_at: None,
            probe_wait: PROBE_FIRST,
            probe_sent: None,
            round_trip: None,
            nack_at: None,
            ack_at: None,
            nack_wait: NACK_REPEAT,
            remains: None,
            cfg,
        };
        link.due = Some(Due::Reset { stopping: false });
        link.tick_at = now + link.tick_interval();
        link
    }

    pub(crate) const fn state(&self) -> LinkState {
        self.state
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == LinkState::Established
    }

    pub(crate) const fn bearer(&self) -> BearerId {
        self.cfg.bearer
    }

    pub(crate) const fn peer_bearer(&self) -> BearerId {
        self.peer_bearer
    }

    pub(crate) const fn peer_interface(&self) -> &InterfaceName {
        &self.peer_interface
    }

    pub(crate) const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.mtu
    }

    /// The largest packet that this end offers for the next session.
    pub(crate) const fn mtu_offered(&self) -> usize {
        self.cfg.mtu
    }

    pub(crate) const fn tolerance(&self) -> Duration {
        self.tolerance
    }

    pub(crate) const fn priority(&self) -> u8 {
        self.priority
    }

    pub(crate) const fn plane(&self) -> u8 {
        self.plane
    }

    pub(crate) const fn window_size(&self) -> u16 {
        self.window.size()
    }

    pub(crate) const fn window_max(&self) -> u16 {
        self.cfg.window_max
    }

    pub(crate) const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Sequence number of the last packet received in sequence from the peer.
    pub(crate) fn acked(&self) -> Seq {
        self.rx.next().prev()
    }

    /// Whether the link is up and the peer has acknowledged packet `seq`.
    pub(crate) fn is_acked(&self, seq: Seq) -> bool {
        self.is_up() && self.tx.base().after(seq)
    }

    /// Number of bytes of packets in the link's queues, for the memory limit.
    pub(crate) fn held_bytes(&self) -> usize {
        self.tx.held_bytes()
            + self.backlog.held_bytes()
            + self.rx.early_bytes()
            + self.reassembly.held_bytes()
    }

    fn tick_interval(&self) -> Duration {
        (self.tolerance / SILENT_TICKS_MAX).min(TICK_MAX)
    }

    /// Enters the reset state, with a new session and empty queues. Returns whether the link was up.
    fn reset(&mut self, now: Nanos) -> bool {
        let was_up = self.is_up();
        let fresh = Self::new(now, self.cfg.clone(), self.session.wrapping_add(1));
        let old = core::mem::replace(self, fresh);
        self.stats = old.stats;
        // Fragments of lost packets still occupy the peer's memory.
        self.divided = old.divided;
        (self.tolerance, self.priority, self.plane) = (old.tolerance, old.priority, old.plane);
        self.tick_at = now + self.tick_interval();
        (self.peer_interface, self.peer_bearer) = (old.peer_interface, old.peer_bearer);
        if was_up {
            let Self { tx, backlog, rx, reassembly, .. } = old;
            self.remains = Some(Box::new(Remains { tx, backlog, rx, reassembly }));
        }
        was_up
    }

    /// Resets the link for this reason. If it is [`LinkDownReason::FragmentsLost`], the link henceforth offers only a
    /// packet size that the medium carries whole. Returns the event to report, or `None` if the link was not up.
    pub(crate) fn fail(&mut self, now: Nanos, reason: LinkDownReason) -> Option<LinkEvent> {
        if reason == LinkDownReason::FragmentsLost {
            self.cfg.mtu = self.cfg.mtu.min(self.cfg.whole_max);
        }
        self.reset(now).then_some(LinkEvent::Down(reason))
    }

    /// Takes the link down for good. Returns the same as [`Link::fail`]; the next [`Link::poll_transmit`] returns the
    /// frame that notifies the peer.
    pub(crate) fn stop(&mut self, now: Nanos) -> Option<LinkEvent> {
        let event = self.fail(now, LinkDownReason::BearerDisabled);
        self.due = Some(Due::Reset { stopping: true });
        event
    }

    fn establish(&mut self, now: Nanos) -> LinkEvent {
        self.state = LinkState::Established;
        (self.ticks, self.silent_ticks) = (0, 0);
        self.tick_at = now + self.tick_interval();
        self.stats.ups += 1;
        self.want_state(false, false);
        LinkEvent::Up
    }

    /// Requests a STATE to be sent if the link is up; several requests are combined into one message.
    pub(crate) fn want_state(&mut self, probe: bool, keepalive: bool) {
        if !self.is_up() {
            return;
        }
        self.due = Some(match self.due {
            Some(Due::State { probe: p, keepalive: k }) => {
                Due::State { probe: probe | p, keepalive: keepalive | k }
            }
            _ => Due::State { probe, keepalive },
        });
    }

    /// When [`Link::handle_timeout`] must be called next.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        let repair = earliest(earliest(self.probe_at, self.nack_at), self.ack_at);
        earliest(Some(self.tick_at), earliest(repair, self.insist_at)).unwrap_or(self.tick_at)
    }

    fn impose(&mut self, tolerance_ms: u16) {
        let tolerance = Duration::from_millis(tolerance_ms.into());
        if (TOLERANCE_MIN..=TOLERANCE_MAX).contains(&tolerance) {
            self.tolerance = tolerance;
        }
    }
}

#[cfg(test)]
mod tests;
