//! A model of two ends, everything in transit between them, and every step that can come next.

use std::collections::{BTreeMap, VecDeque};

use crossway_channel::protocol::{Action, Role, Signal, Switch};

/// An item in transit on a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A message and its number.
    Message(u64),
    /// The marker of an epoch, and the number of messages sent before it.
    Marker(u32, u64),
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The program of this end sends a message.
    Send(usize),
    /// The program of this end receives.
    Receive(usize),
    /// This end sends its marker on the old transport.
    Mark(usize),
    /// The driver reports to the state machine that the marker was sent.
    TxMoved(usize),
    /// The driver reports to the state machine that its receiver has followed a marker.
    RxMoved(usize),
    /// This end reads its control connection.
    Control(usize),
    /// The follower has opened the offered transport (true), or could not (false).
    Opened(bool),
    /// The leader begins a switch.
    Offer,
    /// This end is killed.
    Kill(usize),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct End {
    switch: Switch,
    alive: bool,
    sent: u64,
    received: u64,
    tx_epoch: u32,
    rx_epoch: u32,
    /// The epoch of the new transport once this end can use it: for its sender and for its receiver.
    installed: [Option<u32>; 2],
    opening: bool,
    must_mark: bool,
    marked: bool,
    followed: bool,
}

/// The steps that may still happen without being a reaction to others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Messages that each end may still send.
    pub(crate) messages: [u64; 2],
    /// Switches that the leader may still begin.
    pub(crate) switches: u32,
    /// Whether the follower may refuse.
    pub(crate) refusals: bool,
    /// Whether an end may be killed.
    pub(crate) kills: bool,
    /// Items that a transport holds in each direction.
    pub(crate) room: usize,
}

/// The state of the whole model.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    ends: [End; 2],
    /// The signals that each end has not read from its control connection.
    control: [VecDeque<Signal>; 2],
    /// The items that each end has sent and its peer has not received, by epoch.
    data: [BTreeMap<u32, VecDeque<Item>>; 2],
    budget: Budget,
}

const LEADER: usize = 0;
const FOLLOWER: usize = 1;

impl World {
    pub(crate) fn new(budget: Budget) -> World {
        let end = |role| End {
            switch: Switch::new(role),
            alive: true,
            sent: 0,
            received: 0,
            tx_epoch: 0,
            rx_epoch: 0,
            installed: [None; 2],
            opening: false,
            must_mark: false,
            marked: false,
            followed: false,
        };
        let first = || BTreeMap::from([(0, VecDeque::new())]);
        World {
            ends: [end(Role::Leader), end(Role::Follower)],
            control: [VecDeque::new(), VecDeque::new()],
            data: [first(), first()],
            budget,
        }
    }

    /// Returns all steps that are possible now. If only kills are left, the history is at its end.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for i in [LEADER, FOLLOWER] {
            let (end, peer) = (&self.ends[i], &self.ends[1 - i]);
            if !end.alive {
                continue;
            }
            let room = self.data[i].get(&end.tx_epoch).is_some_and(|q| q.len() < self.budget.room);
            let has_peer = peer.alive;
            if self.budget.messages[i] > 0 && room && has_peer {
                steps.push(Step::Send(i));
            }
            let waiting = self.data[1 - i].get(&end.rx_epoch).is_some_and(|q| !q.is_empty());
            if waiting && !end.followed {
                steps.push(Step::Receive(i));
            }
            if end.must_mark && room && has_peer {
                steps.push(Step::Mark(i));
            }
            if end.marked {
                steps.push(Step::TxMoved(i));
            }
            if end.followed {
                steps.push(Step::RxMoved(i));
            }
            if !self.control[i].is_empty() || (!has_peer && !end.switch.has_ended()) {
                steps.push(Step::Control(i));
            }
            if self.budget.kills && has_peer {
                steps.push(Step::Kill(i));
            }
        }
        if self.ends[FOLLOWER].alive && self.ends[FOLLOWER].opening {
            steps.push(Step::Opened(true));
            if self.budget.refusals {
                steps.push(Step::Opened(false));
            }
        }
        let leader = &self.ends[LEADER];
        if leader.alive
            && self.budget.switches > 0
            && leader.switch.is_settled()
            && !leader.switch.has_ended()
        {
            steps.push(Step::Offer);
        }
        steps
    }

    /// Carries out a step and checks the invariants.
    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Send(i) => {
                let end = &mut self.ends[i];
                self.budget.messages[i] -= 1;
                let queue = self.data[i].get_mut(&end.tx_epoch).expect("the transport is there");
                queue.push_back(Item::Message(end.sent));
                end.sent += 1;
            }
            Step::Receive(i) => self.receive(i),
            Step::Mark(i) => {
                let end = &mut self.ends[i];
                let next = end.installed[0].take().expect("installed before the sender moves");
                let old = self.data[i].get_mut(&end.tx_epoch).expect("the old transport is there");
                old.push_back(Item::Marker(next, end.sent));
                end.tx_epoch = next;
                self.data[i].entry(next).or_default();
                (end.must_mark, end.marked) = (false, true);
            }
            Step::TxMoved(i) => {
                self.ends[i].marked = false;
                self.ends[i].switch.tx_moved();
                self.carry_out(i);
            }
            Step::RxMoved(i) => {
                self.ends[i].followed = false;
                self.ends[i].switch.rx_moved();
                self.carry_out(i);
            }
            Step::Control(i) => match self.control[i].pop_front() {
                Some(signal) => {
                    let known = self.ends[i].switch.handle_signal(signal);
                    known.expect("a correct peer is understood in every state");
                    self.carry_out(i);
                }
                None => self.ends[i].switch.end(),
            },
            Step::Opened(worked) => {
                self.ends[FOLLOWER].opening = false;
                self.ends[FOLLOWER].switch.opened(worked);
                self.carry_out(FOLLOWER);
            }
            Step::Offer => {
                self.budget.switches -= 1;
                self.ends[LEADER].switch.offer().expect("settled");
                self.carry_out(LEADER);
            }
            Step::Kill(i) => {
                self.ends[i].alive = false;
                self.control[i].clear();
            }
        }
    }

    fn receive(&mut self, i: usize) {
        let end = &mut self.ends[i];
        let queue = self.data[1 - i].get_mut(&end.rx_epoch).expect("the transport is there");
        match queue.pop_front().expect("something is there") {
            Item::Message(number) => {
                assert_eq!(number, end.received, "no loss, no double, in order");
                end.received += 1;
            }
            Item::Marker(epoch, sent) => {
                assert_eq!(sent, end.received, "all that went before the marker was received");
                assert!(queue.is_empty(), "nothing follows a marker");
                let next = end.installed[1].take();
                assert_eq!(next, Some(epoch), "the receiver has what the marker leads to");
                end.rx_epoch = epoch;
                end.followed = true;
            }
        }
    }

    fn carry_out(&mut self, i: usize) {
        while let Some(action) = self.ends[i].switch.poll_action() {
            match action {
                Action::Send(signal) => {
                    if self.ends[1 - i].alive {
                        self.control[1 - i].push_back(signal);
                    }
                }
                Action::Open(_) => self.ends[i].opening = true,
                Action::Install(epoch) => self.ends[i].installed = [Some(epoch); 2],
                Action::MoveTx(_) => self.ends[i].must_mark = true,
                Action::Discard(_) => {}
                Action::Settled(epoch) => {
                    let end = &self.ends[i];
                    assert_eq!((end.tx_epoch, end.rx_epoch), (epoch, epoch));
                    for data in &mut self.data {
                        for (old, queue) in data.range(..epoch) {
                            assert!(queue.is_empty(), "{old} is dropped with messages in it");
                        }
                        data.retain(|old, _| *old >= epoch);
                    }
                }
            }
        }
    }

    /// Checks what must be true when no more steps are possible. Returns the number of messages that each end received.
    pub(crate) fn check_end(&self) -> [u64; 2] {
        let both = self.ends.iter().all(|end| end.alive);
        for i in [LEADER, FOLLOWER] {
            let (end, peer) = (&self.ends[i], &self.ends[1 - i]);
            if both {
                assert!(end.switch.is_settled(), "a switch comes to its end");
                assert_eq!(end.received, peer.sent, "everything arrives");
                assert_eq!(self.data[i].len(), 1, "one transport is left");
            } else if end.alive {
                assert!(end.switch.has_ended(), "the survivor learns of it");
                assert!(end.received <= peer.sent);
            }
        }
        [self.ends[0].received, self.ends[1].received]
    }
}
