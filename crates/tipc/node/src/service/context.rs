//! What the handlers of ready descriptors, events and timers have in common.

use crossway_sys::epoll::Epoll;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

/// What the service works with during one step of the event loop.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The time at which the step began.
    pub(crate) now: Nanos,
    /// The node whose sockets are provided.
    pub(crate) node: &'a mut Node,
    /// The epoll instance of the event loop.
    pub(crate) epoll: &'a Epoll,
}
