//! A `tipcd`: a node that shares its event loop with a service for programs and operators.

use std::os::fd::AsFd;
use std::time::Duration;

use crossway_sys::epoll::{Ready, Trigger};
use crossway_tipc_proto::addr::{BearerId, NodeAddr};
use crossway_tipc_proto::node::{Event, Node};
use crossway_tipc_proto::time::Nanos;

use crate::admin::{self, BearerJobs, carry_out};
use crate::notice::Notice;
use crate::runner::{Companion, Runner, RunnerError, now};
use crate::service::{Context, Service, Token};

/// A node with bearers, programs and operators.
#[derive(Debug)]
pub struct Daemon {
    runner: Runner,
    programs: Programs,
}

/// The part that serves the programs and operators.
#[derive(Debug)]
struct Programs {
    service: Service,
    jobs: BearerJobs,
}

impl Companion for Programs {
    fn handle_events(&mut self, cx: &mut Context<'_>) {
        self.service.handle_events(cx);
    }

    fn is_busy(&self, node: &Node) -> bool {
        self.service.is_busy() || node.has_event()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.service.poll_timeout()
    }

    fn rest(&mut self) -> bool {
        self.service.rest()
    }

    fn handle_ready(&mut self, cx: &mut Context<'_>, token: Token, ready: &Ready) {
        match token {
            Token::Jobs => self.jobs.hear(),
            token => self.service.handle_ready(cx, token, ready),
        }
    }

    fn read_ready(&mut self, cx: &mut Context<'_>) {
        self.service.read_ready(cx);
    }

    fn begin_turn(&mut self) -> bool {
        self.service.begin_turn()
    }

    fn end_turn(&mut self, cx: &mut Context<'_>, all_seen: bool) {
        let delivered = all_seen && !cx.node.has_event();
        self.service.end_turn(cx, delivered);
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.service.handle_timeout(cx);
    }

    fn carry_out_orders(&mut self, runner: &mut Runner) {
        while let Some((place, order)) = self.service.poll_order() {
            if let Some(outcome) = carry_out(runner, &self.service, &mut self.jobs, place, &order) {
                self.service.reply(runner.epoll(), place, outcome);
            }
        }
        while let Some((place, outcome)) = self.jobs.advance(runner) {
            self.service.reply(runner.epoll(), place, outcome);
        }
    }
}

impl Daemon {
    /// Creates a daemon from a node with its bearers enabled and a service.
    ///
    /// # Errors
    /// [`RunnerError::Os`] if epoll or eventfd fails.
    pub fn new(runner: Runner, service: Service) -> Result<Self, RunnerError> {
        service.watch(runner.epoll())?;
        let jobs = BearerJobs::new()?;
        runner.epoll().add(jobs.bell(), Token::Jobs.encode(), Trigger::WhileReadable)?;
        Ok(Self { runner, programs: Programs { service, jobs } })
    }

    /// Makes [`Daemon::turn`] return true when this additional descriptor is readable.
    ///
    /// # Errors
    /// [`RunnerError::Os`] if epoll fails.
    pub fn watch(&self, other: impl AsFd) -> Result<(), RunnerError> {
        self.runner.watch(other)
    }

    /// The node, for queries and commands.
    pub const fn node(&mut self) -> &mut Node {
        self.runner.node()
    }

    /// The service for programs.
    pub const fn service(&self) -> &Service {
        &self.programs.service
    }

    /// Returns a link's name as shown to an operator; `None` if there is no such link.
    pub(crate) fn link_name(&mut self, peer: NodeAddr, bearer: BearerId) -> Option<String> {
        admin::link_name(&mut self.runner, peer, bearer)
    }

    /// Returns a bearer's name as shown to an operator, or its number if it no longer exists.
    pub(crate) fn bearer_name(&mut self, id: BearerId) -> String {
        let names = admin::bearer_names(&mut self.runner);
        let name = names.into_iter().find(|(bearer, _)| *bearer == id).map(|(_, name)| name);
        name.unwrap_or_else(|| id.0.to_string())
    }

    /// Describes the state at the start, one line each: the bearers, and the socket for programs.
    pub(crate) fn introduction(&mut self) -> Vec<String> {
        let mut lines = admin::bearer_lines(&mut self.runner);
        lines.extend(admin::encryption_lines(&mut self.runner));
        lines.push(format!("serving programs at {}", self.programs.service.path().display()));
        lines
    }

    /// Number of frames that the media of the enabled bearers did not accept. Those of disabled bearers no longer
    /// count.
    pub fn unsent(&self) -> u64 {
        self.runner.unsent()
    }

    /// Sends pending frames, waits for an event, at most for `limit`, and handles it. Returns whether a watched
    /// descriptor is readable.
    ///
    /// # Errors
    /// [`RunnerError`] if waiting fails.
    pub fn turn(&mut self, limit: Duration) -> Result<bool, RunnerError> {
        self.runner.turn_with(&mut self.programs, limit)
    }

    #[cfg(test)]
    pub(crate) const fn jobs(&mut self) -> &mut BearerJobs {
        &mut self.programs.jobs
    }

    /// Returns the next condition of a medium or of programs that an operator may want to know about.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.runner.poll_notice().or_else(|| self.programs.service.poll_turned_away(now()))
    }

    /// Returns the next event that concerns more than a single program's socket.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.programs.service.unreported.pop_front()
    }

    /// Ends all contacts in an orderly way and closes the bearers.
    pub fn stop(&mut self) {
        self.runner.stop();
    }
}
