//! Orders of an operator: taken here, carried out by the event loop, which has the bearers too.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::{Errno, fdpass, proc};
use crossway_tipc_client::protocol::control::Writer;

use super::Service;
use super::token::Place;

impl Service {
    /// Keeps an order for the event loop, if its sender may give any.
    pub(super) fn take_order(&mut self, place: Place, order: &[u8]) {
        let Some(client) = self.clients.get(place).filter(|client| client.is_greeted()) else {
            return self.leave(place);
        };
        let obeyed = |uid| uid == 0 || uid == proc::effective_user();
        if client.credentials.is_some_and(|who| obeyed(who.uid)) {
            self.orders.push_back((place, order.to_vec()));
        } else {
            self.reply(place, Err(Errno::PERM));
        }
    }

    /// The oldest order that was not carried out yet.
    pub(crate) fn poll_order(&mut self) -> Option<(Place, Vec<u8>)> {
        self.orders.pop_front()
    }

    /// Tells what came of an order.
    pub(crate) fn reply(&mut self, place: Place, outcome: Result<Vec<OwnedFd>, Errno>) {
        let Some(control) = self.clients.get(place).and_then(|c| c.control.as_ref()) else {
            return;
        };
        let (errno, fds) = match outcome {
            Ok(fds) => (0, fds),
            Err(errno) => (errno.raw_os_error(), Vec::new()),
        };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if fdpass::try_send(control, &Writer::answer(errno).finish(), &fds).is_err() {
            self.leave(place);
        }
    }
}
