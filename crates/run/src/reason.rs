//! Why a connection stays with TCP, in the words of `--explain`. Those that the library and the supervisor have in common.

/// A clause of which the connection is the subject's matter: `the other end is on another host`.
pub type Reason = &'static str;

/// Nobody could move the other end.
pub const NOBODY_LISTENS: Reason = "no program that runs with crossway run listens there";
/// Connections to a listener stay with TCP for a while ([`Table::is_paused`](crate::rendezvous::Table::is_paused)).
pub const PAUSED: Reason = "the listener was slow to accept, or its connections live shortly";
/// [`Table::announce`](crate::rendezvous::Table::announce) takes no announcement otherwise.
pub const NO_PLACE: Reason = "the listener is in another network, or too many programs connect";
/// A program with another user must not take part in its former user's table.
pub const CHANGED_USER: Reason = "the program has changed its user";
/// The address is not one of this host.
pub const ANOTHER_HOST: Reason = "the other end is on another host";
/// No other porter answers ([`via`](crate::via)).
pub const NOBODY_EXPECTS: Reason =
    "no program that runs with crossway run --via tipc listens there";
/// The socket has an owner to whom the kernel sends signals.
pub const RAISES_SIGNALS: Reason = "the socket raises signals";
/// An option, set before the connection, to which a UNIX stream has no counterpart.
pub const ONLY_TCP: Reason = "the socket has an option that only TCP provides";
/// Another descriptor of the socket would not be moved.
pub const COPIED: Reason = "there are copies of the descriptor";
/// A non-blocking connect goes on.
pub const NOT_AT_ONCE: Reason = "the connection was not established at once";
/// The socket has no peer any more.
pub const HAS_ENDED: Reason = "the connection has ended";
/// The other end no longer waits.
pub const WITHDRAWN: Reason = "the other program has withdrawn";
/// The stream cannot get what the TCP socket had.
pub const NO_OPTION: Reason = "an option could not be set";
