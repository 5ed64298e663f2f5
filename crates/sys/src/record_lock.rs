//! Record locks of a process on a file (fcntl, F_SETLK), used as a proof of life that the kernel withdraws when the
//! process ends.
//!
//! Other processes check whether a byte of a file is claimed. Unlike a pid, a claim cannot pass to a later process,
//! means the same in all PID namespaces, and is not inherited by a forked child. A process loses its claims on a file
//! when it closes any of its descriptors of that file.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::error::last_errno;

fn record(kind: i32, at: u64) -> Result<libc::flock, Errno> {
    // SAFETY: plain data, and all zeros is a valid value; some systems have padding in it, so it cannot be written out.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = kind as _;
    record.l_whence = libc::SEEK_SET as _;
    record.l_start = at.try_into().map_err(|_| Errno::INVAL)?;
    record.l_len = 1;
    Ok(record)
}

/// Claims the byte at offset `at` of a file, possibly beyond the file's end, for the lifetime of this process. Errors:
/// EAGAIN or EACCES when another process has claimed it, EBADF when the file is not open for writing, ENOLCK when the
/// system has no more locks.
pub fn claim(fd: impl AsFd, at: u64) -> Result<(), Errno> {
    let record = record(libc::F_WRLCK, at)?;
    // SAFETY: F_SETLK reads the record, which outlives the call.
    if unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETLK, &raw const record) } == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Whether a process other than this one claims the byte at offset `at`.
pub fn is_claimed(fd: impl AsFd, at: u64) -> Result<bool, Errno> {
    let mut record = record(libc::F_WRLCK, at)?;
    // SAFETY: F_GETLK reads and writes the record, which outlives the call.
    if unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETLK, &raw mut record) } == 0 {
        Ok(i32::from(record.l_type) != libc::F_UNLCK)
    } else {
        Err(last_errno())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::shm::create_sealed;

    #[test]
    fn a_claim_lasts_as_long_as_its_process() {
        let fd = create_sealed("crossway-test", 4096).unwrap();
        claim(&fd, 3).unwrap();
        assert_eq!(is_claimed(&fd, 3), Ok(false), "its own claim does not count");
        let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        // SAFETY: the child only makes system calls and exits without running any of its parent's code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inherited = is_claimed(&fd, 3) != Ok(true);
            let failed = claim(&fd, 7).is_err() || claim(&fd, 3).is_ok();
            let _ = theirs.write_all(&[u8::from(inherited) + 2 * u8::from(failed)]);
            // Until the parent has closed its end.
            let _ = theirs.read(&mut [0]);
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        drop(theirs);
        let mut told = [9];
        ours.read_exact(&mut told).unwrap();
        assert_eq!(
            told,
            [0],
            "1: the child has its parent's claim; 2: it cannot claim, or can what is claimed"
        );
        assert_eq!(is_claimed(&fd, 7), Ok(true));
        // SAFETY: the child of above.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(is_claimed(&fd, 7), Ok(false));
    }
}
