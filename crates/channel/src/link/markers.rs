//! Markers: a sender ends the old transport with a marker, and the receiver that reads the marker continues on the new
//! transport.

use crossway_mech::SendError;

use super::{Link, State, flag};
use crate::error::RecvError;
use crate::fault;
use crate::protocol::{Internal, MARKER_LEN};
use crate::receiver::RxState;
use crate::sender::TxState;
use crate::transport::RxHalf;

impl Link {
    /// If the marker is due, sends it and continues on the new transport. Returns false if there is no room for it.
    pub(crate) fn try_mark(&self, tx: &mut TxState) -> Result<bool, SendError> {
        let mut state = self.lock();
        if state.must_mark {
            match tx.half.try_send_reliably(&self.marker(&state, tx.sequence)) {
                Ok(()) => self.marked(&mut state, tx),
                Err(SendError::Full) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the marker if it is due.
    pub(crate) fn due_marker(&self, sequence: u64) -> Option<[u8; MARKER_LEN]> {
        let state = self.lock();
        state.must_mark.then(|| self.marker(&state, sequence))
    }

    fn marker(&self, state: &State, sequence: u64) -> [u8; MARKER_LEN] {
        let epoch = state.switch.epoch().wrapping_add(1);
        self.marks.encode(Internal::Move { epoch, sequence })
    }

    /// Continues on the new transport after the marker was sent.
    pub(crate) fn marked(&self, state: &mut State, tx: &mut TxState) {
        fault::point("Marked");
        // The switch may have become pointless meanwhile, because the peer has ended.
        if let Some(next) = state.next_tx.take() {
            state.old.tx.push(tx.replace(next));
            state.must_mark = false;
            self.tx.lower(flag::MOVE);
            state.switch.tx_moved();
            self.carry_out(state);
        }
    }

    /// Handles a marker that the receiver has read, and continues on the new transport.
    pub(crate) fn follow(
        &self,
        rx: &mut RxState,
        epoch: u32,
        sequence: u64,
    ) -> Result<(), RecvError> {
        if sequence != rx.sequence {
            return Err(RecvError::Damaged(format!(
                "{sequence} messages were sent before switch {epoch}, but {} were received",
                rx.sequence
            )));
        }
        let mut state = self.lock();
        let due = state.switch.epoch().wrapping_add(1) == epoch;
        let Some(next) = state.next_rx.take_if(|_| due) else {
            let what = format!("a marker of switch {epoch} arrived unexpectedly");
            return Err(RecvError::Damaged(what));
        };
        self.followed(&mut state, rx, next)
    }

    /// Moves a parked receiver, which has nothing to read, to the next transport. Returns false if there is none yet.
    pub(crate) fn follow_parked(&self, rx: &mut RxState) -> Result<bool, RecvError> {
        let mut state = self.lock();
        let Some(next) = state.next_rx.take() else { return Ok(false) };
        self.followed(&mut state, rx, next)?;
        Ok(true)
    }

    fn followed(&self, state: &mut State, rx: &mut RxState, next: RxHalf) -> Result<(), RecvError> {
        fault::point("Followed");
        let old = rx.replace(next)?;
        state.old.rx.push(old);
        state.switch.rx_moved();
        self.carry_out(state);
        Ok(())
    }
}
