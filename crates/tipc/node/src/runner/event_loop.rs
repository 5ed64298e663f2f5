//! The event loop: one thread for a node, its bearers, and a [`Companion`] that shares the loop.

use std::os::fd::AsFd;
use std::time::Duration;

use crossway_sys::epoll::{Ready, Trigger};
use crossway_tipc_proto::addr::BearerId;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::{Runner, RunnerError, now};
use crate::service::{Context, Token};

/// What shares a node's event loop. In a `tipcd`, that is the service for programs and operators.
pub(crate) trait Companion {
    /// Handles events of the node.
    fn handle_events(&mut self, cx: &mut Context<'_>);
    /// Whether there is something to do immediately.
    fn is_busy(&self, node: &Node) -> bool;
    /// The time at which [`Companion::handle_timeout`] must be called; `None` if there is nothing to wait for.
    fn poll_timeout(&self) -> Option<Nanos>;
    /// Prepares for the loop to sleep. Returns true if there is something to do, so that it must not sleep.
    fn rest(&mut self) -> bool;
    /// Handles a ready descriptor.
    fn handle_ready(&mut self, cx: &mut Context<'_>, token: Token, ready: &Ready);
    /// Processes what the ready descriptors of a turn have brought; called once, after all of them have been handled.
    fn read_ready(&mut self, cx: &mut Context<'_>);
    /// Begins a turn, before ready descriptors are fetched. Returns whether the turn must not sleep.
    fn begin_turn(&mut self) -> bool;
    /// Ends a turn. `all_seen` says that all descriptors that were ready have been handled.
    fn end_turn(&mut self, cx: &mut Context<'_>, all_seen: bool);
    /// Handles everything that is due.
    fn handle_timeout(&mut self, cx: &mut Context<'_>);
    /// Carries out the orders of operators.
    fn carry_out_orders(&mut self, runner: &mut Runner);
}

/// A companion that does nothing, for a node without programs. The caller handles the node's events.
struct Alone;

impl Companion for Alone {
    fn handle_events(&mut self, _: &mut Context<'_>) {}
    fn is_busy(&self, _: &Node) -> bool {
        false
    }
    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }
    fn rest(&mut self) -> bool {
        false
    }
    fn handle_ready(&mut self, _: &mut Context<'_>, _: Token, _: &Ready) {}
    fn read_ready(&mut self, _: &mut Context<'_>) {}
    fn begin_turn(&mut self) -> bool {
        false
    }
    fn end_turn(&mut self, _: &mut Context<'_>, _: bool) {}
    fn handle_timeout(&mut self, _: &mut Context<'_>) {}
    fn carry_out_orders(&mut self, _: &mut Runner) {}
}

impl Runner {
    /// Makes [`Runner::turn`] return true when this additional descriptor is readable.
    ///
    /// # Errors
    /// [`RunnerError::Os`] if epoll fails, for example because the descriptor is a file.
    pub fn watch(&self, other: impl AsFd) -> Result<(), RunnerError> {
        Ok(self.epoll.add(other, Token::Other.encode(), Trigger::WhileReadable)?)
    }

    /// Sends pending frames, waits for frames, timers or a watched descriptor, at most for `limit`, and handles what
    /// has happened. Returns whether a watched descriptor is readable. The node's events are left for the caller.
    ///
    /// # Errors
    /// [`RunnerError`] if waiting fails.
    pub fn turn(&mut self, limit: Duration) -> Result<bool, RunnerError> {
        self.turn_with(&mut Alone, limit)
    }

    /// Like [`Runner::turn`], with a companion that shares the loop.
    pub(crate) fn turn_with(
        &mut self,
        companion: &mut impl Companion,
        limit: Duration,
    ) -> Result<bool, RunnerError> {
        let at = now();
        companion.handle_events(&mut self.context(at));
        self.flush();
        // Frames that have been sent may have made room for a waiting program.
        let is_busy = companion.begin_turn() || companion.is_busy(&self.node);
        let limit = at + if is_busy { Duration::ZERO } else { limit };
        self.hold_bearers()?;
        let deadlines = [self.poll_timeout(), companion.poll_timeout(), self.next_fetch()];
        let mut left = deadlines.into_iter().flatten().fold(limit, Ord::min).since(at);
        if !left.is_zero() && companion.rest() {
            left = Duration::ZERO;
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(self.epoll.wait_for(Some(left))?);
        let at = now();
        let mut other = false;
        for ready in &ready {
            match Token::decode(ready.token) {
                Some(Token::Bearer(number)) => self.receive(BearerId(number as u8)),
                Some(Token::Device) => self.look_at_devices(),
                Some(Token::Other) => other = true,
                Some(token) => companion.handle_ready(&mut self.context(at), token, ready),
                None => {}
            }
        }
        let all_seen = ready.len() < super::READY_PER_TURN;
        self.ready = ready;
        self.fetch_held(at);
        companion.read_ready(&mut self.context(at));
        if self.node.poll_timeout().is_some_and(|due| due <= at) {
            self.node.handle_timeout(at);
        }
        if self.keyring.poll_timeout().is_some_and(|due| due <= at) {
            self.keyring.handle_timeout(at);
        }
        companion.handle_timeout(&mut self.context(at));
        companion.carry_out_orders(self);
        companion.handle_events(&mut self.context(at));
        companion.end_turn(&mut self.context(at), all_seen);
        self.flush();
        Ok(other)
    }

    fn context(&mut self, now: Nanos) -> Context<'_> {
        Context { now, node: &mut self.node, epoll: &self.epoll }
    }
}
