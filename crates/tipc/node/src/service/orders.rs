//! Operators' orders: received here, and carried out by the event loop, which also owns the bearers.

use std::os::fd::OwnedFd;

use crossway_sys::Errno;
use crossway_sys::epoll::Epoll;
use crossway_tipc_client::protocol::control::Writer;

use super::Service;
use super::request::Answer;
use super::shares::is_operator;
use super::token::Place;

impl Service {
    /// Queues an order for the event loop if its sender is authorised.
    pub(super) fn take_order(&mut self, epoll: &Epoll, place: Place, order: &[u8]) {
        let Some(client) = self.clients.get(place).filter(|client| client.is_greeted()) else {
            return self.leave(epoll, place);
        };
        if is_operator(client.credentials) {
            self.orders.push_back((place, order.to_vec()));
        } else {
            self.reply(epoll, place, Err(Errno::PERM));
        }
    }

    /// Removes and returns the oldest pending order, with the program that gave it.
    pub(crate) fn poll_order(&mut self) -> Option<(Place, Vec<u8>)> {
        self.orders.pop_front()
    }

    /// Sends the outcome of an order to the operator.
    pub(crate) fn reply(
        &mut self,
        epoll: &Epoll,
        place: Place,
        outcome: Result<Vec<OwnedFd>, Errno>,
    ) {
        let answer = match outcome {
            Ok(fds) => Answer { bytes: Writer::answer(0).finish(), fds },
            Err(errno) => Answer::error(errno),
        };
        self.hand_over(epoll, place, &answer);
    }
}
