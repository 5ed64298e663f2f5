//! What has happened to a medium that an operator may want to know.

use crossway_sys::Errno;
use crossway_tipc_proto::addr::BearerId;

/// Something about a medium, not an error.
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
        }
    }
}
