//! One end's part in the switch from one epoch to the next.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// One of the two ends of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that accepted the connection; it offers epochs.
    Leader,
    /// The end that connected.
    Follower,
}

/// Messages between the ends over the control connection, which preserves their order. An offer carries its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// The leader has made a transport for this epoch.
    Offer(u32),
    /// The follower has opened it.
    Ready(u32),
    /// The follower cannot open it.
    Refuse(u32),
    /// The leader can receive on the new transport, and will send on it after its marker.
    Go(u32),
    /// The sender of this signal has received its peer's marker and uses the new transport.
    Moved(u32),
}

/// An action that the driver must carry out. Actions must be carried out in the order in which they are returned.
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
    /// Drop the transport made for this epoch, because the offer was refused.
    Discard(u32),
    /// Drop the old transport, on which nothing is left.
    Settled(u32),
}

/// The error when a switch cannot begin: another one is in progress, or the peer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a switch is already in progress, or the peer has ended")]
pub struct Busy;

/// The error when the peer sent a signal that is not valid in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent {signal:?} in epoch {epoch}, where it is not valid")]
pub struct Violation {
    /// The signal.
    pub signal: Signal,
    /// The epoch in which this end was last settled.
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Settled,
    /// Leader: an offer was sent.
    Offered,
    /// Follower: the driver is opening the transport.
    Opening,
    /// Follower: ready. The leader's marker may arrive before its Go.
    Prepared {
        rx: bool,
    },
    Moving {
        /// This end's marker was sent.
        tx: bool,
        /// This end has received the peer's marker.
        rx: bool,
        /// The peer has received this end's marker.
        peer: bool,
    },
}

/// The switch protocol at one end of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    role: Role,
    epoch: u32,
    phase: Phase,
    /// Whether the peer has settled and made the next offer before this end's driver reported that its marker was sent.
    early_offer: bool,
    ended: bool,
    actions: VecDeque<Action>,
}

impl Switch {
    /// Returns the state of a new channel, in epoch 0.
    pub fn new(role: Role) -> Self {
        Self::at(role, 0)
    }

    /// Returns the state of a channel that is settled in an epoch.
    pub fn at(role: Role, epoch: u32) -> Self {
        let phase = Phase::Settled;
        Switch { role, epoch, phase, early_offer: false, ended: false, actions: VecDeque::new() }
    }

    /// Returns the epoch in which both ends were last settled.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether no switch is in progress.
    pub fn is_settled(&self) -> bool {
        self.phase == Phase::Settled
    }

    /// Whether the peer has ended.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns which end this is.
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

    /// Handles a signal from the peer.
    ///
    /// # Errors
    /// [`Violation`]; the channel must then be closed.
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

    /// Follower: reports whether the transport of [`Action::Open`] was opened.
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

    /// Reports that the marker of [`Action::MoveTx`] was sent and the sender uses the new transport.
    pub fn tx_moved(&mut self) {
        match self.phase {
            _ if self.ended => {}
            Phase::Moving { tx: false, rx, peer } => self.progress(true, rx, peer),
            phase => panic!("the sender moved in {phase:?}"),
        }
    }

    /// Reports that the receiver has read the peer's marker and uses the new transport.
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

    /// Reports that the peer has ended. Installed transports stay available to the receiver.
    pub fn end(&mut self) {
        self.ended = true;
        self.actions.clear();
    }

    /// Returns the next action, if there is one.
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
