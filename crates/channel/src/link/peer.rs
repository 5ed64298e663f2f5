//! Handling the peer's packets and its end.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::{Link, Moving, flag};
use crate::event::{EventKind, Reason};
use crate::message::{Message, Packet};
use crate::protocol::{Role, Signal};

impl Link {
    /// Control thread: reads all packets that have arrived; returns false at the end of the connection.
    pub(crate) fn read_packets(&self) -> bool {
        loop {
            let packet = self.lock().receive();
            match packet {
                Packet::Nothing => return true,
                // The link looks for another connection.
                Packet::Broken => {
                    self.broken();
                    return true;
                }
                Packet::End if self.detach() => return true,
                Packet::End => {
                    self.lost(None);
                    return false;
                }
                Packet::Message(message, fds) => {
                    if let Err(why) = self.handle(message, fds) {
                        self.lost(Some(why));
                        return false;
                    }
                }
                Packet::Nonsense(why) => {
                    self.lost(Some(why));
                    return false;
                }
            }
        }
    }

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
            Message::Policy { transports, cpu_budget } => {
                (state.peer_allows, state.peer_budget) = (transports, cpu_budget);
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
            // Noted when it was read.
            Message::Bye => {}
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

    /// Ends the channel, unless it is over already, because the peer has closed it, has died, or broke the protocol, in
    /// which case `violation` says how.
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
            None if state.has_heard_goodbye() => EventKind::PeerClosed,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossway_sys::socket::{SocketType, unix_pair};

    use super::*;
    use crate::net::wire::Wire;
    use crate::{Directory, Options, Policy};

    /// Ends a channel because its transport reports the peer's end. Before, the peer has sent `packets`, and the
    /// control thread has read the first `read` of them. Returns the last entry of the log.
    fn logged_after(packets: &[Message], read: usize) -> Option<EventKind> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { directory: Directory::at(dir.path()), ..Options::default() };
        let listener = options.clone().listen("ends").unwrap();
        let _there = options.connect("ends", None).unwrap();
        let here = listener.accept(None).unwrap();
        let link = here.link();
        let (near, far) = unix_pair(SocketType::Seqpacket).unwrap();
        let mut far = Wire::unix(far);
        let own = std::mem::replace(&mut link.lock().wire, Wire::unix(near));
        packets.iter().for_each(|packet| far.send(packet, Vec::new()));
        for _ in 0..read {
            link.lock().receive();
        }
        // With an unread packet at its end, the first read after the peer's end fails.
        link.lock().wire.send(&Message::Deaf, Vec::new());
        drop(far);
        link.lost(None);
        let last = link.lock().last_event().cloned();
        link.lock().wire = own;
        last
    }

    #[test]
    fn the_accepting_end_learns_the_cpu_budget_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { directory: Directory::at(dir.path()), ..Options::default() };
        let listener = options.clone().listen("budget").unwrap();
        let budget = |cpu_budget| Policy { cpu_budget, ..Policy::default() };
        let there = Options { policy: budget(0.25), ..options }.connect("budget", None).unwrap();
        let here = listener.accept(None).unwrap();
        let learns = |wanted: f64| {
            let limit = Instant::now() + Duration::from_secs(10);
            while here.link().lock().peer_budget != wanted {
                assert!(Instant::now() < limit, "{}", here.link().lock().peer_budget);
                std::thread::yield_now();
            }
        };
        learns(0.25);
        there.handle().set_policy(budget(0.5));
        learns(0.5);
    }

    #[test]
    fn a_peer_that_said_goodbye_has_closed_even_if_its_transport_ends_first() {
        for read in 0..=2 {
            let what = logged_after(&[Message::Deaf, Message::Bye], read);
            assert_eq!(what, Some(EventKind::PeerClosed), "{read} packets read before");
        }
        assert_eq!(logged_after(&[Message::Deaf], 0), Some(EventKind::PeerDied));
    }
}
