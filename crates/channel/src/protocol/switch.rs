//! One end's part in the switch from one epoch to the next.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Which end of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepted the connection; offers epochs.
    Leader,
    /// Connected.
    Follower,
}

/// What the ends tell each other over the control connection, which keeps order. The transport that belongs to an offer travels with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// The leader has made a transport for this epoch.
    Offer(u32),
    /// The follower has opened it.
    Ready(u32),
    /// The follower cannot open it.
    Refuse(u32),
    /// The leader can receive on it, and sends there from its marker on.
    Go(u32),
    /// The sender of this signal has followed its peer's marker.
    Moved(u32),
}

/// What the driver must do, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this to the peer.
    Send(Signal),
    /// Follower: open the transport that came with the offer, then call [`Switch::opened`].
    Open(u32),
    /// Make the new transport available to this end's receiver and sender; the sender does not use it yet.
    Install(u32),
    /// Send the marker on the old transport, then use the new one, then call [`Switch::tx_moved`].
    MoveTx(u32),
    /// The offer was refused: drop the transport made for it.
    Discard(u32),
    /// Nothing is on the old transport any more: drop it.
    Settled(u32),
}

/// A switch is going on, or the peer is gone: no other can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a switch is going on already, or the peer is gone")]
pub struct Busy;

/// The peer said what no correct peer says now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer signalled {signal:?} in epoch {epoch}, where it makes no sense")]
pub struct Violation {
    /// What it said.
    pub signal: Signal,
    /// The settled epoch.
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Settled,
    /// Leader: the offer is out.
    Offered,
    /// Follower: the driver opens the transport.
    Opening,
    /// Follower: ready; the leader's marker may overtake its Go.
    Prepared {
        rx: bool,
    },
    Moving {
        /// This end's marker is out.
        tx: bool,
        /// This end has followed the peer's marker.
        rx: bool,
        /// The peer has followed this end's marker.
        peer: bool,
    },
}

/// One end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    role: Role,
    epoch: u32,
    phase: Phase,
    /// The peer has settled and offered again before this end's driver said that the marker is out.
    early_offer: bool,
    ended: bool,
    actions: VecDeque<Action>,
}

impl Switch {
    /// An end of a new channel, in epoch 0.
    pub fn new(role: Role) -> Self {
        Self::at(role, 0)
    }

    /// An end of a channel that is settled in an epoch.
    pub fn at(role: Role, epoch: u32) -> Self {
        let phase = Phase::Settled;
        Switch { role, epoch, phase, early_offer: false, ended: false, actions: VecDeque::new() }
    }

    /// The epoch in which both ends were last settled.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether no switch is going on.
    pub fn is_settled(&self) -> bool {
        self.phase == Phase::Settled
    }

    /// Whether the peer is gone.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// This end's part.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Leader: begins a switch to a transport that the driver has made. Returns its epoch.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn offer(&mut self) -> Result<u32, Busy> {
        if self.role != Role::Leader || self.ended || !self.is_settled() {
            return Err(Busy);
        }
        self.phase = Phase::Offered;
        self.actions.push_back(Action::Send(Signal::Offer(self.next())));
        Ok(self.next())
    }

    /// What the peer has said.
    ///
    /// # Errors
    /// [`Violation`]; the channel cannot be trusted then.
    pub fn handle_signal(&mut self, signal: Signal) -> Result<(), Violation> {
        if self.ended {
            return Ok(());
        }
        let next = self.next();
        match (self.role, signal, self.phase) {
            (Role::Follower, Signal::Offer(e), Phase::Settled) if e == next => self.open(),
            (
                Role::Follower,
                Signal::Offer(e),
                Phase::Moving { tx: false, rx: true, peer: true },
            ) if e == next + 1 => self.early_offer = true,
            (Role::Leader, Signal::Ready(e), Phase::Offered) if e == next => {
                self.phase = Phase::Moving { tx: false, rx: false, peer: false };
                self.actions.extend([
                    Action::Install(e),
                    Action::Send(Signal::Go(e)),
                    Action::MoveTx(e),
                ]);
            }
            (Role::Leader, Signal::Refuse(e), Phase::Offered) if e == next => {
                self.phase = Phase::Settled;
                self.epoch = next;
                self.actions.push_back(Action::Discard(e));
            }
            (Role::Follower, Signal::Go(e), Phase::Prepared { rx }) if e == next => {
                self.phase = Phase::Moving { tx: false, rx, peer: false };
                self.actions.push_back(Action::MoveTx(e));
            }
            (_, Signal::Moved(e), Phase::Moving { tx, rx, peer: false }) if e == next => {
                self.progress(tx, rx, true);
            }
            _ => return Err(Violation { signal, epoch: self.epoch }),
        }
        Ok(())
    }

    /// Follower: the transport of [`Action::Open`] is open, or could not be opened.
    pub fn opened(&mut self, worked: bool) {
        if self.ended {
            return;
        }
        assert_eq!(self.phase, Phase::Opening, "nothing was to be opened");
        let next = self.next();
        if worked {
            self.phase = Phase::Prepared { rx: false };
            self.actions.extend([Action::Install(next), Action::Send(Signal::Ready(next))]);
        } else {
            self.phase = Phase::Settled;
            self.epoch = next;
            self.actions.push_back(Action::Send(Signal::Refuse(next)));
        }
    }

    /// The marker of [`Action::MoveTx`] is out, and the sender uses the new transport.
    pub fn tx_moved(&mut self) {
        match self.phase {
            _ if self.ended => {}
            Phase::Moving { tx: false, rx, peer } => self.progress(true, rx, peer),
            phase => panic!("the sender moved in {phase:?}"),
        }
    }

    /// The receiver has read the peer's marker and uses the new transport.
    pub fn rx_moved(&mut self) {
        match self.phase {
            _ if self.ended => {}
            Phase::Prepared { rx: false } => {
                self.phase = Phase::Prepared { rx: true };
                self.actions.push_back(Action::Send(Signal::Moved(self.next())));
            }
            Phase::Moving { tx, rx: false, peer } => {
                self.actions.push_back(Action::Send(Signal::Moved(self.next())));
                self.progress(tx, true, peer);
            }
            phase => panic!("the receiver moved in {phase:?}"),
        }
    }

    /// The peer is gone. What is installed stays available to the receiver.
    pub fn end(&mut self) {
        self.ended = true;
        self.actions.clear();
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    const fn next(&self) -> u32 {
        self.epoch.wrapping_add(1)
    }

    fn open(&mut self) {
        self.phase = Phase::Opening;
        self.actions.push_back(Action::Open(self.next()));
    }

    fn progress(&mut self, tx: bool, rx: bool, peer: bool) {
        self.phase = Phase::Moving { tx, rx, peer };
        if tx && rx && peer {
            self.epoch = self.next();
            self.phase = Phase::Settled;
            self.actions.push_back(Action::Settled(self.epoch));
            if std::mem::take(&mut self.early_offer) {
                self.open();
            }
        }
    }
}
