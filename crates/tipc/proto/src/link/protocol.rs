//! Handles and creates the link protocol messages RESET, ACTIVATE and STATE.

use super::{BcastReport, Due, Link, LinkDownReason, LinkEvent, LinkState};
use crate::drops::DropReason;
use crate::limits::{ACK_EVERY, LINK_MTU_MIN};
use crate::monitor::Monitor;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{
    Capabilities, DomainRecord, GapAckBlocks, LinkProtocol, LinkProtocolKind, NAMED_HEADER_LEN,
    Reset, State,
};
use alloc::vec::Vec;

/// The effects of a link protocol message.
pub(crate) struct Handled {
    pub(crate) event: Option<LinkEvent>,
    /// The gap-ack record. The caller passes the part about broadcasts to the broadcast link.
    pub(crate) blocks: GapAckBlocks,
    /// The peer's domain record, or the reason why it was dropped; `None` if the message contains none.
    pub(crate) domain: Option<Result<DomainRecord, DropReason>>,
}

impl Link {
    /// Handles a link protocol message from the peer.
    pub(crate) fn handle_protocol(
        &mut self,
        now: Nanos,
        m: &LinkProtocol<'_>,
    ) -> Result<Handled, DropReason> {
        if self.state == LinkState::FailingOver {
            return Err(DropReason::LinkDown);
        }
        let session = Seq(m.session);
        let known = self.peer_session.map(Seq);
        let mut handled = Handled { event: None, blocks: GapAckBlocks::default(), domain: None };
        match &m.kind {
            LinkProtocolKind::Reset(announced) => {
                if known.is_some_and(|known| !session.after(known)) {
                    return Err(DropReason::WrongSession);
                }
                if m.peer_stopping {
                    handled.event = self.fail(now, LinkDownReason::PeerStopping);
                    return Ok(handled);
                }
                check_mtu(announced)?;
                if self.is_up() {
                    handled.event = self.fail(now, LinkDownReason::PeerReset);
                }
                self.adopt(m, announced);
                self.state = LinkState::Establishing;
                self.ticks = 0;
                self.due = Some(Due::Activate);
            }
            LinkProtocolKind::Activate(announced, answers) => {
                if known.is_some_and(|known| session.before(known)) {
                    return Err(DropReason::WrongSession);
                }
                if let Some(answers) = answers.map(Seq)
                    && answers != Seq(self.session)
                {
                    // The peer remembers a later session than ours: choose one beyond it, otherwise the peer would ignore
                    // us.
                    if !self.is_up() && Seq(self.session).before(answers) {
                        self.session = answers.next().0;
                    }
                    return Err(DropReason::WrongSession);
                }
                check_mtu(announced)?;
                if self.is_up() {
                    // The peer does not know yet that this end is up.
                    self.want_state(false, false);
                    return if known == Some(session) {
                        Ok(handled)
                    } else {
                        Err(DropReason::WrongSession)
                    };
                }
                self.adopt(m, announced);
                handled.event = Some(self.establish(now));
            }
            LinkProtocolKind::State(state) => {
                if known != Some(session) || (!self.is_up() && m.ack != Seq(0)) {
                    return Err(DropReason::WrongSession);
                }
                if self.cfg.common.has(Capabilities::LINK_PROTO_SEQNO) {
                    if m.seq.before(self.state_rx) {
                        return Err(DropReason::OldState);
                    }
                    self.state_rx = m.seq.next();
                }
                let mut rest = state.body;
                if self.cfg.common.has(Capabilities::GAP_ACK_BLOCK) {
                    let (blocks, len) = GapAckBlocks::decode(rest).map_err(DropReason::from)?;
                    (handled.blocks, rest) = (blocks, rest.get(len..).unwrap_or(&[]));
                }
                if !rest.is_empty() {
                    let record = DomainRecord::decode(rest);
                    handled.domain = Some(record.map_err(|_| DropReason::BadMonitorRecord));
                }
                self.handle_state(now, m, state, &mut handled);
            }
        }
        Ok(handled)
    }

    fn handle_state(
        &mut self,
        now: Nanos,
        m: &LinkProtocol<'_>,
        state: &State<'_>,
        handled: &mut Handled,
    ) {
        self.heard();
        self.stats.states_received += 1;
        self.stats.probes_received += u64::from(state.probe);
        self.impose(m.tolerance_ms);
        if m.priority != 0 && m.priority != self.priority {
            self.priority = m.priority;
            handled.event = self.fail(now, LinkDownReason::PriorityChanged);
            return;
        }
        if !self.is_up() {
            handled.event = Some(self.establish(now));
        }
        if state.keepalive && !state.probe {
            self.probe_answered(now);
        }
        self.peer_next = m.next_sent;
        self.handle_ack(now, m.ack);
        self.handle_gaps(now, m.ack, state.gap, &handled.blocks.unicast);
        if state.probe && self.unacked >= ACK_EVERY {
            // The peer was waiting for an acknowledgement that we delayed.
            self.acknowledge_sooner();
        }
        if state.probe || state.keepalive {
            let behind = m.next_sent.after(self.rx.next());
            self.report_tail |= behind;
            // Only a probe is always answered: two ends that both miss packets must not answer each other's answers for
            // ever.
            if state.probe || behind {
                self.want_state(false, state.probe);
            }
        }
    }

    /// Records the session, bearer and interface that the peer announces in RESET or ACTIVATE, and combines the link's
    /// own values with the announced ones: the smaller packet size, the higher priority, the peer's tolerance and the
    /// network plane of the end with the lower address apply.
    fn adopt(&mut self, m: &LinkProtocol<'_>, announced: &Reset) {
        self.peer_session = Some(m.session);
        self.peer_bearer = m.bearer;
        self.peer_interface = announced.interface.clone();
        self.mtu = self.cfg.mtu.min(announced.max_packet);
        self.impose(m.tolerance_ms);
        self.priority = self.priority.max(m.priority);
        // The end with the numerically lower address determines the network plane.
        if m.sender < self.cfg.own {
            self.plane = m.plane;
        }
    }

    /// Appends the pending control message, if there is one, to `out`. Returns whether there was one.
    pub(super) fn encode_due(
        &mut self,
        now: Nanos,
        bcast: &BcastReport,
        monitor: Option<&Monitor>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(due) = self.due.take() else { return false };
        let announced =
            || Reset { max_packet: self.cfg.mtu / 4 * 4, interface: self.cfg.interface.clone() };
        let mut body = Vec::new();
        let mut seq = Seq(self.tx.next().0.wrapping_add(32767));
        let (mut peer_stopping, mut tolerance_ms, mut priority) = (false, 0, 0);
        let kind = match due {
            Due::Reset { stopping } => {
                peer_stopping = stopping;
                LinkProtocolKind::Reset(announced())
            }
            Due::Activate => {
                (tolerance_ms, priority) = (self.tolerance.as_millis() as u16, self.priority);
                LinkProtocolKind::Activate(announced(), self.peer_session)
            }
            Due::State { probe, keepalive } => {
                let sent_to = if self.report_tail { self.peer_next } else { self.rx.next() };
                let gap = self.rx.gap(sent_to);
                if gap > 0 {
                    self.acknowledge_sooner();
                }
                if self.cfg.common.has(Capabilities::GAP_ACK_BLOCK) {
                    let unicast = if gap > 0 { self.rx.runs() } else { Default::default() };
                    GapAckBlocks { bcast: bcast.runs.clone(), unicast }.encode(&mut body);
                }
                // If it does not fit it is left out; the next tick sends it again.
                if let Some(record) = monitor.and_then(|m| m.record_for(self.cfg.peer))
                    && NAMED_HEADER_LEN + body.len() + record.len() <= self.mtu
                {
                    record.encode(&mut body);
                }
                if self.cfg.common.has(Capabilities::LINK_PROTO_SEQNO) {
                    seq = self.state_tx;
                    self.state_tx = self.state_tx.next();
                }
                self.report_tail = false;
                self.unacked = 0;
                self.ack_at = None;
                (tolerance_ms, priority) = self.told_in_state();
                self.stats.states_sent += 1;
                self.stats.gaps_sent += u64::from(gap > 0);
                self.stats.acks_sent += u64::from(gap == 0 && !probe);
                if probe {
                    self.stats.probes_sent += 1;
                    self.probe_sent = Some(now);
                }
                let keepalive = keepalive | probe;
                LinkProtocolKind::State(State {
                    probe,
                    keepalive,
                    gap,
                    bcast_gap: bcast.gap.min(0x3ff),
                    body: &body,
                })
            }
        };
        LinkProtocol {
            sender: self.cfg.own,
            dest: self.cfg.peer,
            session: self.session,
            ack: self.acked(),
            seq,
            bcast_ack: if bcast.open { bcast.ack } else { Seq(0) },
            last_bcast: bcast.last_sent,
            next_sent: self.tx.next(),
            bcast_ack_invalid: !bcast.open,
            peer_stopping,
            redundant_link: bcast.open || bcast.contact,
            bearer: self.cfg.bearer,
            priority,
            plane: self.plane,
            tolerance_ms,
            kind,
        }
        .encode(out);
        true
    }
}

fn check_mtu(announced: &Reset) -> Result<(), DropReason> {
    if announced.max_packet < LINK_MTU_MIN { Err(DropReason::MtuTooSmall) } else { Ok(()) }
}
