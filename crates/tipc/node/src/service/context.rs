//! What the handlers of a ready descriptor, an event or a timer share.

use crossway_sys::epoll::Epoll;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

/// The surroundings in which the service jobs, for one step of the event loop.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The time at which the step began.
    pub(crate) now: Nanos,
    /// The node whose sockets are provided.
    pub(crate) node: &'a mut Node,
    /// What the event loop waits for.
    pub(crate) epoll: &'a Epoll,
}
