//! What has happened to a medium, or to programs, that an operator may want to know.

use crossway_sys::Errno;
use crossway_sys::socket::Credentials;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_proto::addr::BearerId;

/// Something about a medium or programs, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The system does not tell this process of its network devices; a device that is pulled out is noticed by its silence.
    DeviceNotWatched {
        /// The bearer.
        bearer: BearerId,
        /// What it said.
        errno: Errno,
    },
    /// The system does not cut runs of frames on a bearer's way; from now on each frame goes by itself. Nothing was lost.
    RunsRefused {
        /// The bearer.
        bearer: BearerId,
        /// What it said.
        errno: Errno,
    },
    /// Programs were turned away, or got no descriptor.
    TurnedAway {
        /// The last of them.
        who: Option<Credentials>,
        /// Why.
        why: Refusal,
        /// How many since that was last told.
        count: u64,
        /// The process that has most places, and how many.
        largest_process: Option<(u32, usize)>,
        /// The user who has most places, and how many.
        largest_user: Option<(u32, usize)>,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DeviceNotWatched { bearer, errno } => write!(
                f,
                "bearer {}: the system does not tell of its device's carrier ({errno}), so a lost one is noticed after the links' \
                 tolerance; allow this process sockets of AF_NETLINK",
                bearer.0
            ),
            Self::RunsRefused { bearer, errno } => write!(
                f,
                "bearer {}: the system refuses UDP segmentation ({errno}), so each frame goes by itself from now on; \
                 a path that takes smaller packets than the device (set mtu= below it), IPsec, or an old kernel does that",
                bearer.0
            ),
            Self::TurnedAway { who, why, count, largest_process, largest_user } => {
                write!(f, "programs turned away: {count}, the last of ")?;
                match who {
                    Some(who) => write!(f, "process {} of user {}", who.pid, who.uid)?,
                    None => f.write_str("a process that the system does not name")?,
                }
                write!(f, ": {why}")?;
                if let Some((pid, places)) = largest_process {
                    write!(f, "; of all processes {pid} has most places: {places}")?;
                }
                if let Some((uid, places)) = largest_user {
                    write!(f, "; of all users {uid}: {places}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_turned_away_is_told_with_cause_and_who_has_the_places() {
        let notice = Notice::TurnedAway {
            who: Some(Credentials { pid: 7, uid: 1_001, gid: 1_001 }),
            why: Refusal::Places,
            count: 3,
            largest_process: Some((8, 16)),
            largest_user: Some((1_002, 700)),
        };
        assert_eq!(
            notice.to_string(),
            "programs turned away: 3, the last of process 7 of user 1001: the maximum number of programs is connected (tipcd --clients): end some programs, \
             or start the tipcd with a higher limit; of all processes 8 has most places: 16; of all users 1002: 700"
        );
    }
}
