//! Why a `tipcd` refuses a program, or refuses to pass it a descriptor.
//!
//! A program that is refused receives one answer without having sent a request: an errno. Then the connection is
//! closed.

use crossway_sys::Errno;

/// The resource of the tipcd that is exhausted, or of which the program has used up its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Connections of all programs (`tipcd --clients`).
    Places,
    /// Connections of one user (`--clients-per-user`).
    PlacesOfUser,
    /// Connections of one process (`--clients-per-process`).
    PlacesOfProcess,
    /// File descriptors of the tipcd (RLIMIT_NOFILE).
    Descriptors,
    /// Descriptors that were passed and not received yet: the program's share, or all that the tipcd's user may have in
    /// flight.
    InFlight,
    /// Sockets of one user (`--sockets-per-user`).
    SocketsOfUser,
    /// Bindings of one user (`--bindings-per-user`), or of all users who are not operators.
    BindingsOfUser,
    /// Subscriptions of one user (`--subscriptions-per-user`), or connections of one user to the topology service.
    SubscriptionsOfUser,
}

impl Refusal {
    /// Those that can be recognised by their errno.
    const ALL: [Self; 5] = [
        Self::Places,
        Self::PlacesOfUser,
        Self::PlacesOfProcess,
        Self::Descriptors,
        Self::InFlight,
    ];

    /// Returns the errno that stands for this refusal in an answer.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Places => Errno::USERS,
            Self::PlacesOfUser => Errno::DQUOT,
            Self::PlacesOfProcess => Errno::MFILE,
            Self::Descriptors => Errno::NFILE,
            Self::InFlight => Errno::TOOMANYREFS,
            // As if the node had no room.
            Self::SocketsOfUser | Self::BindingsOfUser | Self::SubscriptionsOfUser => Errno::NOMEM,
        }
    }

    /// Returns the refusal that an errno stands for; `None` if it stands for none.
    pub fn from_errno(errno: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.errno().raw_os_error() == errno)
    }
}

impl std::fmt::Display for Refusal {
    /// Writes the cause and the remedy.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Places => {
                "the maximum number of programs is connected (tipcd --clients): end some programs, or start the tipcd with a higher limit"
            }
            Self::PlacesOfUser => {
                "this user has the maximum number of connections (tipcd --clients-per-user): end some of the user's programs, or start the tipcd with a higher limit"
            }
            Self::PlacesOfProcess => {
                "this process has the maximum number of connections (tipcd --clients-per-process), of which it needs only one: close some"
            }
            Self::Descriptors => {
                "the tipcd has no file descriptors left except those reserved for operators (RLIMIT_NOFILE, ulimit -n): close sockets, or start it with a higher limit"
            }
            Self::InFlight => {
                "too many descriptors are in flight to programs that do not receive them: accept pending connections, read pending answers, or end those programs"
            }
            Self::SocketsOfUser => {
                "this user has the maximum number of sockets (tipcd --sockets-per-user), or all users together have what is not reserved for operators: close some, or start the tipcd with a higher limit"
            }
            Self::SubscriptionsOfUser => {
                "this user has the maximum number of subscriptions to the topology service (tipcd --subscriptions-per-user) or of connections to it: end some, or start the tipcd with a higher limit"
            }
            Self::BindingsOfUser => {
                "this user has the maximum number of bindings (tipcd --bindings-per-user), or all users together have what is not reserved for operators: withdraw some, or start the tipcd with a higher limit"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_come_back_from_their_numbers_and_no_two_are_alike() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_errno(refusal.errno().raw_os_error()), Some(refusal));
        }
        assert_eq!(Refusal::from_errno(0), None);
    }
}
