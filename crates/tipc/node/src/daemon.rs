//! The event loop of `tipcd`: one thread, one node, its bearers and its programs.

use std::os::fd::AsFd;
use std::time::Duration;

use crossway_sys::OsError;
use crossway_sys::epoll::{Epoll, Ready, Report};
use crossway_tipc_proto::addr::{BearerId, NodeAddr};
use crossway_tipc_proto::node::{Event, Node};
use crossway_tipc_proto::time::Nanos;

use crate::admin::{self, BearerJobs, carry_out};
use crate::notice::Notice;
use crate::outbox::Attached;
use crate::runner::{Runner, RunnerError, now};
use crate::service::{Context, Service, Token};

/// Maximum number of ready descriptors fetched at a time.
const BATCH: usize = 256;

/// Registers a bearer's descriptor and the notifications about its device.
pub(crate) fn watch_bearer(epoll: &Epoll, attached: &Attached) -> Result<(), OsError> {
    if let Some(watch) = attached.bearer.watch() {
        epoll.add(watch, Token::Device.encode(), Report::WhileReadable)?;
    }
    let token = Token::Bearer(attached.id.0.into()).encode();
    epoll.add(attached.bearer.fd(), token, Report::WhileReadable)
}

/// Unregisters them, for a bearer that is closed later.
pub(crate) fn forget_bearer(epoll: &Epoll, attached: &Attached) {
    // Errors for descriptors that were not registered are ignored.
    for fd in attached.bearer.watch().into_iter().chain([attached.bearer.fd()]) {
        let _ = epoll.remove(fd);
    }
}

/// A node with bearers and programs.
#[derive(Debug)]
pub struct Daemon {
    runner: Runner,
    service: Service,
    jobs: BearerJobs,
    epoll: Epoll,
    ready: Vec<Ready>,
}

impl Daemon {
    /// Creates a daemon from a node with its bearers enabled and a service.
    ///
    /// # Errors
    /// [`RunnerError::Os`] if epoll fails.
    pub fn new(runner: Runner, service: Service) -> Result<Self, RunnerError> {
        let epoll = Epoll::new(BATCH)?;
        for attached in runner.bearers() {
            watch_bearer(&epoll, attached)?;
        }
        service.watch(&epoll)?;
        let jobs = BearerJobs::new()?;
        epoll.add(jobs.bell(), Token::Jobs.encode(), Report::WhileReadable)?;
        Ok(Self { runner, service, jobs, epoll, ready: Vec::with_capacity(BATCH) })
    }

    /// Makes [`Daemon::turn`] return true when a further descriptor is readable.
    ///
    /// # Errors
    /// [`RunnerError::Os`] if epoll fails.
    pub fn watch(&self, other: impl AsFd) -> Result<(), RunnerError> {
        Ok(self.epoll.add(other, Token::Other.encode(), Report::WhileReadable)?)
    }

    /// The node, for queries and commands.
    pub const fn node(&mut self) -> &mut Node {
        self.runner.node()
    }

    /// The service for programs.
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// A link's name as shown to an operator.
    pub(crate) fn link_name(&mut self, peer: NodeAddr, bearer: BearerId) -> Option<String> {
        admin::link_name(&mut self.runner, peer, bearer)
    }

    /// The state at the start, one line each: the bearers, and the socket for programs.
    pub(crate) fn introduction(&mut self) -> Vec<String> {
        let mut lines = admin::bearer_lines(&mut self.runner);
        lines.push(format!("serving programs at {}", self.service.path().display()));
        lines
    }

    /// Number of frames since the start that a medium did not accept.
    pub fn unsent(&self) -> u64 {
        self.runner.unsent()
    }

    /// Sends pending frames, waits for any event or at most `limit`, and handles it. Returns whether a watched descriptor is
    /// readable.
    ///
    /// # Errors
    /// [`RunnerError::Poll`] if waiting fails.
    pub fn turn(&mut self, limit: Duration) -> Result<bool, RunnerError> {
        let at = now();
        self.serve_node(at);
        self.runner.flush();
        // Frames that have been sent may have made room for a waiting program.
        let busy = self.service.is_busy() || self.runner.node().has_event();
        let limit = at + if busy { Duration::ZERO } else { limit };
        let node = self.runner.poll_timeout();
        let until = [node, self.service.poll_timeout()].into_iter().flatten().fold(limit, Ord::min);
        self.ready.clear();
        let mut left = until.since(at);
        if !left.is_zero() && self.service.rest() {
            left = Duration::ZERO;
        }
        self.ready.extend(self.epoll.wait_for(Some(left))?);
        let at = now();
        let mut other = false;
        for ready in &self.ready {
            match Token::decode(ready.token) {
                Some(Token::Bearer(number)) => self.runner.receive(BearerId(number as u8)),
                Some(Token::Device) => self.runner.look_at_devices(),
                Some(Token::Jobs) => self.jobs.hear(),
                Some(Token::Other) => other = true,
                Some(token) => {
                    let node = self.runner.node();
                    let cx = &mut Context { now: at, node, epoll: &self.epoll };
                    self.service.handle_ready(cx, token, ready);
                }
                None => {}
            }
        }
        let cx = &mut Context { now: at, node: self.runner.node(), epoll: &self.epoll };
        self.service.read_ready(cx);
        if cx.node.poll_timeout().is_some_and(|due| due <= at) {
            cx.node.handle_timeout(at);
        }
        self.service.handle_timeout(cx);
        while let Some((place, order)) = self.service.poll_order() {
            let (runner, service) = (&mut self.runner, &self.service);
            if let Some(outcome) = carry_out(runner, service, &mut self.jobs, place, &order) {
                self.service.reply(&self.epoll, place, outcome);
            }
        }
        while let Some((place, outcome)) = self.jobs.advance(&mut self.runner, &self.epoll) {
            self.service.reply(&self.epoll, place, outcome);
        }
        self.serve_node(at);
        self.runner.flush();
        Ok(other)
    }

    #[cfg(test)]
    pub(crate) const fn jobs(&mut self) -> &mut BearerJobs {
        &mut self.jobs
    }

    /// Forwards the node's events.
    fn serve_node(&mut self, now: Nanos) {
        let cx = &mut Context { now, node: self.runner.node(), epoll: &self.epoll };
        self.service.handle_events(cx);
    }

    /// The next condition of a medium or of programs that an operator may want to know.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.runner.poll_notice().or_else(|| self.service.poll_turned_away(now()))
    }

    /// The next event that is not only for a program's socket.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.service.unreported.pop_front()
    }

    /// Ends all contacts in an orderly way and closes the bearers.
    pub fn stop(&mut self) {
        self.runner.stop();
    }
}
