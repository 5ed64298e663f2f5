//! Creates channels between two endpoints; the node keeps no part of them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossway_sys::eventfd::EventFd;
use crossway_sys::pipe::{self, PipeEnd};
use crossway_sys::socket::{self, SocketType};
use crossway_sys::{OsError, shm};

use crate::Transport;
use crate::channel::dimensions;

/// How long a call on a socket waits for room, or for the rest of a signal, before its endpoint checks for other
/// arrivals.
const PATIENCE: Duration = Duration::from_millis(10);

/// Creates the descriptors of both ends. The descriptors of the endpoint that requested the channel come first. Shared
/// memory has a pool with `pool` bytes for each end, or no pool if `pool` is 0.
pub(super) fn make(
    transport: Transport,
    bytes: usize,
    pool: usize,
) -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), OsError> {
    match transport {
        Transport::Uds => {
            let (a, b) = stream_pair(Some(bytes))?;
            Ok((vec![a], vec![b]))
        }
        Transport::Fifo => {
            let ((read_a, write_b), (read_b, write_a)) = (pipe::pipe()?, pipe::pipe()?);
            for write in [&write_a, &write_b] {
                let copy = write
                    .try_clone()
                    .map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "pipe", e))?;
                let mut end = PipeEnd::new(copy)?;
                end.set_nonblocking()?;
                // Users have a limit for the sum of the capacities (pipe-user-pages-soft); the default capacity is
                // sufficient, too.
                let _ = end.set_capacity_bytes(bytes);
            }
            for read in [&read_a, &read_b] {
                socket::set_nonblocking(read)?;
            }
            Ok((vec![read_a, write_a], vec![read_b, write_b]))
        }
        Transport::Shm => {
            let memory = shm::create_sealed("crossway-linx", dimensions(bytes).memory_len())?;
            let copy = memory.try_clone().map_err(duplicating)?;
            let (a, b) = (EventFd::new()?, EventFd::new()?);
            let (to_a, to_b) = (a.duplicate()?, b.duplicate()?);
            let (own_a, own_b) = (a.duplicate()?, b.duplicate()?);
            let mut ends = (vec![memory, own_a, to_b], vec![copy, own_b, to_a]);
            if pool > 0 {
                let memory = crossway_ring::pool::create("crossway-linx-pool", pool)?;
                ends.1.push(memory.try_clone().map_err(duplicating)?);
                ends.0.push(memory);
            }
            Ok(ends)
        }
    }
}

fn duplicating(error: std::io::Error) -> OsError {
    OsError::new("fcntl(F_DUPFD_CLOEXEC)", "memfd", error)
}

/// Creates the two ends of a byte stream with a capacity of `bytes` bytes; `None` for the system's default.
pub(super) fn stream_pair(bytes: Option<usize>) -> Result<(OwnedFd, OwnedFd), OsError> {
    let (a, b) = socket::unix_pair(SocketType::Stream)?;
    for end in [&a, &b] {
        if let Some(bytes) = bytes {
            // The kernel doubles the size, and clamps it to its limit.
            socket::set_buffers(end.as_fd(), bytes / 2)?;
        }
        let limit = Some(PATIENCE);
        socket::set_send_timeout(end, limit)
            .and_then(|()| socket::set_receive_timeout(end, limit))
            .map_err(|e| OsError::new("setsockopt(SO_SNDTIMEO)", "channel", e))?;
    }
    Ok((a, b))
}
