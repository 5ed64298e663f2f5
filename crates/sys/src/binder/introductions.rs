//! The context manager of a device: a small process that makes the four ports of a channel known to
//! each other.
//!
//! It must be a process of its own, because the driver refuses messages to a manager from its own
//! process, and a channel may have both ends in one.

use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Event, Port};
use crate::OsError;
use crate::poll::{Interest, wait_ready};

/// How long a manager waits for the first port.
const FIRST: Duration = Duration::from_secs(10);
/// Memory in bytes for the introductions.
const BYTES: usize = 64 << 10;

/// The role of a port in a channel with one direction each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The listening end's receiver, whose partner is the connecting end's sender.
    ListenerReceives = 0,
    /// The listening end's sender, whose partner is the connecting end's receiver.
    ListenerSends = 1,
    /// The connecting end's sender.
    ConnectorSends = 2,
    /// The connecting end's receiver. The numbers of partners differ by 2.
    ConnectorReceives = 3,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 4] = [
        Role::ListenerReceives,
        Role::ListenerSends,
        Role::ConnectorSends,
        Role::ConnectorReceives,
    ];

    /// The code of this role's introduction in a channel, whose number is a multiple of 4.
    pub fn code(self, channel: u32) -> u32 {
        channel | self as u32
    }
}

/// Starts a process that is the context manager of `device`, and returns when it is. When all four
/// ports of the channel have introduced themselves by their [`Role::code`], each has been sent a
/// message with the channel's number as its code that contains its partner ([`Port::introduced`]),
/// receivers before senders. Then the process ends, or when one of the ports ends before.
///
/// # Errors
/// The device has a manager (`EBUSY`), or had one of another user (`EPERM`); it cannot be opened;
/// there can be no more processes.
pub fn start_manager(device: &Path, channel: u32) -> Result<(), OsError> {
    let (mut told, tells) =
        crate::pipe::pipe().map(|(read, write)| (std::fs::File::from(read), write))?;
    // SAFETY: the child makes only calls that a child of a process with threads may make with the
    // GNU C library, whose fork leaves the allocator usable, and ends by _exit.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(OsError::last("fork", "")),
        0 => serve_in_grandchild(device, channel, tells.as_raw_fd()),
        _ => {}
    }
    drop(tells);
    let mut status = 0;
    // SAFETY: waits for the child, which ends at once; somebody else may have done so.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
        && crate::error::last_errno() == Errno::INTR
    {}
    let mut errno = [0; 4];
    told.read_exact(&mut errno).map_err(|e| OsError::new("fork", device.display(), e))?;
    match i32::from_ne_bytes(errno) {
        0 => Ok(()),
        errno => {
            let why = std::io::Error::from_raw_os_error(errno);
            Err(OsError::new("ioctl(BINDER_SET_CONTEXT_MGR)", device.display(), why))
        }
    }
}

/// Serves in a child of this process, of which nobody has to hear when it ends.
fn serve_in_grandchild(device: &Path, channel: u32, tells: RawFd) -> ! {
    // SAFETY: plain system calls on numbers. The descriptors of the process must not stay open
    // here: others wait for their end.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::dup2(tells, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
    }
    let tell = |errno: i32| {
        let bytes = errno.to_ne_bytes();
        // SAFETY: writes four bytes to a pipe, and closes it.
        unsafe {
            libc::write(0, bytes.as_ptr().cast(), bytes.len());
            libc::close(0);
        }
    };
    let opened = Port::open(device, BYTES).and_then(|port| port.become_manager().map(|()| port));
    match opened {
        Ok(port) => {
            tell(0);
            let _ = introduce_all(port, channel);
        }
        Err(error) => tell(error.errno().max(1)),
    }
    // SAFETY: ends this process without running what the other one has registered for its end.
    unsafe { libc::_exit(0) }
}

fn introduce_all(mut port: Port, channel: u32) -> Result<(), Errno> {
    let mut handles = [None; 4];
    let until = Instant::now() + FIRST;
    while handles.contains(&None) {
        let event = match port.receive(true) {
            Err(Errno::AGAIN) => {
                let is_first = handles == [None; 4];
                if !wait_ready(&port, Interest::Readable, is_first.then_some(until))? {
                    return Ok(());
                }
                continue;
            }
            event => event?,
        };
        let role = match event {
            Event::Message(code) if code & !3 == channel => (code & 3) as usize,
            Event::Message(_) => continue,
            Event::Ended(_) => return Ok(()),
        };
        handles[role] = port.introduced()?;
        // At once, and not when all are known: a connecting end waits for it.
        let partner = role ^ 2;
        if let (Some(own), Some(other)) = (handles[role], handles[partner]) {
            let receives = [Role::ListenerReceives, Role::ConnectorReceives];
            let is_receiver = receives.iter().any(|receiver| *receiver as usize == role);
            let (reads, sends) = if is_receiver { (own, other) } else { (other, own) };
            port.pass_on(sends, reads, channel)?;
            port.pass_on(reads, sends, channel)?;
        }
    }
    Ok(())
}
