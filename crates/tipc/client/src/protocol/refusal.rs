//! Why a `tipcd` does not let a program in, or gives it no descriptor.
//!
//! Who is not let in gets one answer without having asked, an errno, and the connection ends.

use crossway_sys::Errno;

/// What the tipcd, or the program's share of it, is out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Places of all programs (`tipcd --clients`).
    Places,
    /// Places of one user (`--clients-per-user`).
    PlacesOfUser,
    /// Places of one process (`--clients-per-process`).
    PlacesOfProcess,
    /// Descriptors of the tipcd (RLIMIT_NOFILE).
    Descriptors,
    /// Descriptors that were handed out and that nobody has received: the program's share, or all that the tipcd's user may have on their way.
    InFlight,
}

impl Refusal {
    const ALL: [Self; 5] = [
        Self::Places,
        Self::PlacesOfUser,
        Self::PlacesOfProcess,
        Self::Descriptors,
        Self::InFlight,
    ];

    /// As it is answered.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Places => Errno::USERS,
            Self::PlacesOfUser => Errno::DQUOT,
            Self::PlacesOfProcess => Errno::MFILE,
            Self::Descriptors => Errno::NFILE,
            Self::InFlight => Errno::TOOMANYREFS,
        }
    }

    /// From an answer to who wanted to be let in.
    pub fn from_errno(errno: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.errno().raw_os_error() == errno)
    }
}

impl std::fmt::Display for Refusal {
    /// The cause, and what to do.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Places => {
                "all places of programs are taken (tipcd --clients): end some programs, or start the tipcd with a higher number"
            }
            Self::PlacesOfUser => {
                "this user has the full share of one user (tipcd --clients-per-user): end some of the user's programs, or start the tipcd with a higher number"
            }
            Self::PlacesOfProcess => {
                "this process has the full number of connections of one process (tipcd --clients-per-process), and needs one: close some"
            }
            Self::Descriptors => {
                "the tipcd has no descriptors left but those kept for operators (RLIMIT_NOFILE, ulimit -n): close sockets, or start it with a higher limit"
            }
            Self::InFlight => {
                "too many descriptors are on their way to programs that do not receive them: accept what connects, read what was asked for, or end those programs"
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
