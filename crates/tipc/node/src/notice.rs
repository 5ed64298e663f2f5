//! Conditions of a medium or of programs that an operator may want to know about.

use crossway_sys::Errno;
use crossway_sys::socket::Credentials;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_proto::addr::BearerId;

/// A condition of a medium or of programs that is not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The system does not notify this process of changes to network devices. The loss of a device or of its carrier is
    /// therefore noticed only when its links fail.
    DeviceNotWatched {
        /// The bearer that uses the device.
        bearer: BearerId,
        /// The error from the system.
        errno: Errno,
    },
    /// The system refuses to split runs of frames on the bearer's path. From now on each frame is sent separately;
    /// nothing was lost.
    RunsRefused {
        /// The bearer on whose path this happens.
        bearer: BearerId,
        /// The error from the system.
        errno: Errno,
    },
    /// Programs or their requests were refused, because of a limit or a share.
    TurnedAway {
        /// The last program concerned.
        program: Option<Credentials>,
        /// The reason of the last refusal.
        why: Refusal,
        /// Number of refusals since the last notice.
        count: u64,
        /// The process with the most connections, and their number.
        largest_process: Option<(u32, usize)>,
        /// The user with the most connections, and their number.
        largest_user: Option<(u32, usize)>,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DeviceNotWatched { bearer, errno } => write!(
                f,
                "bearer {}: the system does not report the carrier of its device ({errno}), so a lost carrier is noticed only \
                 after the tolerance of the links; allow this process to use AF_NETLINK sockets",
                bearer.0
            ),
            Self::RunsRefused { bearer, errno } => write!(
                f,
                "bearer {}: the system refuses UDP segmentation ({errno}), so each frame is sent separately from now on; possible \
                 causes are a path with a smaller MTU than the device (set mtu= accordingly), IPsec, or an old kernel",
                bearer.0
            ),
            Self::TurnedAway { program, why, count, largest_process, largest_user } => {
                write!(f, "refused programs and requests: {count}; the last one came from ")?;
                match program {
                    Some(program) => write!(f, "process {} of user {}", program.pid, program.uid)?,
                    None => f.write_str("an unknown process")?,
                }
                write!(f, ": {why}")?;
                if let Some((pid, places)) = largest_process {
                    write!(f, "; process {pid} has the most connections: {places}")?;
                }
                if let Some((uid, places)) = largest_user {
                    write!(f, "; user {uid} has the most connections: {places}")?;
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
    fn notices_of_refused_programs_name_the_cause_and_the_users_with_most_connections() {
        let notice = Notice::TurnedAway {
            program: Some(Credentials { pid: 7, uid: 1_001, gid: 1_001 }),
            why: Refusal::Places,
            count: 3,
            largest_process: Some((8, 16)),
            largest_user: Some((1_002, 700)),
        };
        assert_eq!(
            notice.to_string(),
            "refused programs and requests: 3; the last one came from process 7 of user 1001: the maximum \
             number of programs is connected (tipcd --clients): end some programs, or start the tipcd with a \
             higher limit; process 8 has the most connections: 16; user 1002 has the most connections: 700"
        );
    }
}
