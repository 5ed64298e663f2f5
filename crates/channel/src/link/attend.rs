//! The control thread's work for a link.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::moving::FIRST_CONNECTION;
use super::release::Release;
use super::state::{Old, Pending};
use super::{Abroad, Link, State};
use crate::event::EventKind;
use crate::fault;
use crate::message::Message;
use crate::net::resume;
use crate::net::session::Session;
use crate::net::{Reader, Writer, write_now};
use crate::protocol::Role;
use crate::transport::{RxHalf, Transport, TxHalf};

/// Returns how long to wait for missing connections.
fn patience(abroad: &Abroad, down: &[Arc<Session>]) -> Duration {
    let first = !down.is_empty() && down.iter().all(|session| session.connections() == 0);
    if first { abroad.network.resume.max(FIRST_CONNECTION) } else { abroad.network.resume }
}

impl Link {
    /// Control thread: opens the transport that the leader has offered.
    fn open_offered(&self) {
        let (text, fds, why, since) = {
            let mut state = self.lock();
            if !std::mem::take(&mut state.must_open) || state.over {
                return;
            }
            match state.offered.take() {
                Some(offered) => offered,
                None => return,
            }
        };
        let to = text.transport;
        let opened = text
            .offer(fds)
            .ok_or_else(|| "its descriptors did not arrive".to_owned())
            .and_then(|mut offer| {
                let halves = self.check_carries(to).and_then(|()| match to {
                    Transport::Udp => self.open_lossy(&offer),
                    _ => self.shape.open(to, &mut offer),
                });
                halves.map_err(|e| e.to_string())
            });
        fault::point("Opened");
        let mut state = self.lock();
        let worked = opened.is_ok();
        match opened {
            Ok(halves) => {
                state.pending = Some(Pending { transport: to, why, since, halves: Some(halves) });
            }
            Err(because) => self.not_opened(&mut state, to, because),
        }
        if worked && to == Transport::Udp {
            // The follower is not ready until datagrams have passed in both directions.
            return;
        }
        state.switch.opened(worked);
        self.carry_out(&mut state);
    }

    /// Control thread: does the pending work of halves that are in no call at the moment. Returns true if this function
    /// should be called again soon.
    pub(crate) fn attend(&self) -> bool {
        self.open_offered();
        let (must_mark, installed, unsent, dropped, far, old) = {
            let mut state = self.lock();
            state.wire.flush();
            let installed = state.next_rx.is_some();
            let mut old = Old::default();
            if state.over {
                // The peer can still read what is in its own mappings.
                old = std::mem::take(&mut state.old);
            } else if state.switch.is_settled() && state.is_releasing && state.release.is_none() {
                state.release = Some(Release::new(std::mem::take(&mut state.old)));
            }
            let unsent = state.wire.is_unsent();
            let far = state.abroad.is_some() && !state.over;
            (state.must_mark, installed, unsent, state.dropped, far, old)
        };
        drop(old);
        let mut again = unsent | self.attend_connections();
        if must_mark {
            // If this fails, the program's next call returns the error.
            let marked = self.tx.try_visit(|tx| self.try_mark(tx));
            again |= !matches!(marked, Some(Ok(true) | Err(_)));
        }
        if dropped[0] {
            again |= self.tx.try_visit(|tx| tx.finish(self)) != Some(true);
        }
        if installed || dropped[1] {
            let quiet = self.rx.try_visit(|rx| rx.visit(self, dropped[1]));
            again |= installed && quiet != Some(true);
        }
        if dropped == [true; 2] && self.say_bye() {
            self.close();
        }
        // Packets from the peer must still be read, so that it learns that everything has arrived; they may come at any
        // time.
        again | (dropped == [true; 2] && far)
    }

    /// Between hosts: handles broken connections. Returns true if this function should be called again soon.
    fn attend_connections(&self) -> bool {
        let state = self.lock();
        if state.over || state.leaving {
            return false;
        }
        drop(state);
        if self.attend_move() {
            return self.role == Role::Leader;
        }
        let state = self.lock();
        let Some(abroad) = state.abroad.clone() else { return false };
        let sessions = state.sessions.clone();
        drop(state);
        let unsent = sessions.iter().fold(false, |unsent, session| session.flush() | unsent);
        if sessions.iter().any(|session| session.is_down()) {
            // A peer that closes the channel says goodbye on the control connection first.
            self.read_packets();
        }
        let mut state = self.lock();
        if state.over {
            return unsent;
        }
        if state.peer_said_bye {
            // The peer has everything, and sends nothing more.
            let is_down = sessions.iter().any(|session| session.is_down());
            drop(state);
            if is_down {
                self.lost(None);
            }
            return unsent;
        }
        let down: Vec<_> = sessions.into_iter().filter(|session| session.is_down()).collect();
        if down.is_empty() && !state.wire.is_down() {
            let since = state.missing_since.take();
            if let Some(since) = since.filter(|_| state.was_interrupted) {
                let took_us = since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
                state.was_interrupted = false;
                self.log(&mut state, EventKind::Resumed { took_us });
            }
            return unsent;
        }
        let broke = state.wire.is_down() || down.iter().any(|session| session.connections() > 0);
        if broke && !state.was_interrupted && !state.searching {
            state.was_interrupted = true;
            self.log(&mut state, EventKind::Interrupted);
        }
        if self.role == Role::Follower {
            self.search(state, patience(&abroad, &down));
            return unsent;
        }
        for session in &down {
            if let (Some(connection), Some(epoch)) = (session.untold(), session.epoch()) {
                state.wire.send(&Message::Broken { epoch, connection }, Vec::new());
            }
        }
        let since = *state.missing_since.get_or_insert_with(Instant::now);
        drop(state);
        if since.elapsed() >= patience(&abroad, &down) {
            self.lost(None);
        }
        true
    }

    /// Connecting end: starts a search for the peer, unless one is in progress.
    pub(super) fn search(&self, mut state: MutexGuard<'_, State>, patience: Duration) {
        if !state.searching
            && let Some(me) = self.me.upgrade()
        {
            state.searching = true;
            drop(state);
            resume::start(&me, patience);
        }
    }

    /// Control thread: handles the loss of the control connection between hosts. If the peer has said goodbye, the
    /// channel ends.
    pub(crate) fn broken(&self) {
        if self.lock().peer_said_bye {
            self.lost(None);
        }
        self.call();
    }

    /// Leader: continues on a new control connection, which the connector made because it lost the old one. If this is
    /// not the channel that the connector means, or the channel is over or handed over, returns the writer as the
    /// error.
    pub(crate) fn resume_wire(
        &self,
        secret: [u64; 2],
        moves: u32,
        received: u64,
        mut writer: Writer,
        reader: Reader,
    ) -> Result<(), Writer> {
        let mut state = self.lock();
        let same = secret == self.marks.random() && moves == state.moves;
        if !same || state.over || state.leaving || !state.wire.is_net() {
            return Err(writer);
        }
        let answer = Message::Resumed { received: state.wire.disconnect() };
        write_now(&mut writer, &answer);
        let connected = state.wire.connect(writer, reader, received);
        drop(state);
        self.settle(connected);
        Ok(())
    }

    /// Leader: accepts a connection for the messages of an epoch, or answers that the epoch is over. If this is not the
    /// channel that the connector means, or the channel is over, returns the writer as the error.
    pub(crate) fn attach(
        &self,
        secret: [u64; 2],
        epoch: u32,
        received: u64,
        mut writer: Writer,
        reader: Reader,
    ) -> Result<(), Writer> {
        let state = self.lock();
        if secret != self.marks.random() || state.over {
            return Err(writer);
        }
        let session = state.session(epoch).map(Arc::clone);
        drop(state);
        let Some(session) = session else {
            write_now(&mut writer, &Message::Settled);
            return Ok(());
        };
        let answer = Message::Resumed { received: session.disconnect() };
        write_now(&mut writer, &answer);
        let connected = session.connect(writer, reader, received);
        self.settle(connected);
        Ok(())
    }

    fn settle(&self, connected: Result<(), String>) {
        if let Err(why) = connected {
            self.lost(Some(why));
        }
        self.call();
    }

    /// Says goodbye to the peer if the final marker was sent and, between hosts, everything was acknowledged; both
    /// halves must have been dropped. Returns false as long as something has to be sent or acknowledged. The program's
    /// thread does this too when it drops the second half, because the process may exit before the control thread does.
    pub(crate) fn say_bye(&self) -> bool {
        if self.tx.try_visit(|tx| tx.is_finished()) != Some(true) {
            return false;
        }
        let mut state = self.lock();
        if !state.sessions.iter().all(|session| session.is_all_acknowledged()) {
            return false;
        }
        if !state.over && !state.leaving && !std::mem::replace(&mut state.said_bye, true) {
            state.wire.send(&Message::Bye, Vec::new());
        }
        true
    }

    /// Closes the channel, after goodbye was said.
    fn close(&self) {
        let mut state = self.lock();
        if !state.over {
            state.over = true;
            state.switch.end();
        }
        state.wire.close();
        let sessions = std::mem::take(&mut state.sessions);
        drop(state);
        sessions.iter().for_each(|session| session.end());
        self.changed.notify_all();
        // Data that the peer has not read yet stays alive in its own mappings and sockets.
        let tx = self.tx.try_visit(|tx| std::mem::replace(&mut tx.half, TxHalf::Parked));
        let rx = self.rx.try_visit(|rx| std::mem::replace(&mut rx.half, RxHalf::Parked));
        drop((tx, rx));
        let mut state = self.lock();
        let old = (std::mem::take(&mut state.old), state.release.take());
        let next = (state.next_tx.take(), state.next_rx.take(), state.pending.take());
        drop(state);
        drop((old, next));
    }

    /// Whether both halves are dropped and nothing is left to do, or another process takes this end over.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.lock();
        state.leaving || (state.over && state.dropped == [true; 2])
    }

    /// Control thread: notes that it no longer watches this link.
    pub(crate) fn removed(&self) {
        let mut state = self.lock();
        if state.leaving {
            state.over = true;
            state.left = true;
            self.changed.notify_all();
        }
    }
}
