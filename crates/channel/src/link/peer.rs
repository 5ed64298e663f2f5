//! Handling the peer's packets and its end.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::{Link, Moving, flag};
use crate::event::{EventKind, Reason};
use crate::message::Message;
use crate::protocol::{Role, Signal};

impl Link {
    /// Handles a packet from the peer. An error ends the channel.
    pub(crate) fn handle(&self, message: Message, fds: Vec<OwnedFd>) -> Result<(), String> {
        let mut state = self.lock();
        if state.over {
            return Ok(());
        }
        match message {
            Message::Signal { signal, offer, why } => {
                if let (Signal::Offer(_), Some(offer)) = (signal, offer) {
                    let why = why.unwrap_or(Reason::Asked);
                    if state.transport.spins() && why.is_urgent() {
                        self.relax(true);
                    }
                    state.offered = Some((offer, fds, why, Instant::now()));
                }
                state.switch.handle_signal(signal).map_err(|violation| violation.to_string())?;
                self.carry_out(&mut state);
            }
            Message::Wish { transport, why } if self.role == Role::Leader => {
                state.wished = Some((transport, why));
                self.call_policy();
            }
            Message::Policy { transports } => {
                state.peer_allows = transports;
                self.call_policy();
            }
            Message::Received { epoch, items } => {
                // A packet about an epoch that is over contains no news.
                if let Some(session) = state.session(epoch)
                    && !session.acknowledged(items)
                {
                    return Err(format!("it acknowledges {items} items, but fewer were sent"));
                }
                self.call();
            }
            Message::Broken { epoch, connection } => {
                if let Some(session) = state.session(epoch)
                    && session.connections() == connection
                {
                    session.disconnect();
                    self.call();
                }
            }
            Message::Moving { far } if self.role == Role::Follower => {
                self.is_left(&mut state, far);
            }
            Message::Gone if self.role == Role::Leader => self.is_answered(&mut state, Ok(())),
            Message::Stays(why) if self.role == Role::Leader => {
                self.is_answered(&mut state, Err(why));
            }
            Message::Rejoined if self.role == Role::Leader => self.is_found(&mut state),
            Message::Deaf => self.tx.raise(flag::DEAF),
            Message::Bye => state.peer_said_bye = true,
            other => return Err(format!("unexpected packet in an open channel: {other:?}")),
        }
        Ok(())
    }

    /// Ends the channel as if this process had died.
    pub(crate) fn give_up(&self) {
        self.lost(None);
        self.lock().wire.close();
        self.call();
    }

    /// Ends the channel because the control connection is closed. `violation` is the rule that the peer broke, if it
    /// did.
    pub(crate) fn lost(&self, violation: Option<String>) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        state.over = true;
        state.moving = Moving::No;
        state.switch.end();
        state.must_mark = false;
        state.sessions.iter().for_each(|session| session.end());
        self.tx.raise(flag::DEAF);
        let what = match violation {
            Some(why) => EventKind::Violated(why),
            // A transport may report the peer's end before the control thread has read the peer's last packets.
            None if state.peer_said_bye || state.wire.ends_with_goodbye() => EventKind::PeerClosed,
            None => EventKind::PeerDied,
        };
        let died = what == EventKind::PeerDied;
        self.log(&mut state, what);
        drop(state);
        self.changed.notify_all();
        if died {
            // If the listener was killed, its socket is still in the directory.
            self.directory.sweep(&self.name);
        }
    }
}
