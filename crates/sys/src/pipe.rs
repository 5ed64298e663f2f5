//! Pipes, FIFOs, and their capacity.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Once;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::PipeFlags;

use crate::OsError;
use crate::blocking::Switched;

/// One end of a pipe or FIFO.
///
/// Whether a call blocks is a property of the open file, not of the call. This type changes it only when a call
/// needs the other mode, so an end that always blocks makes no system calls other than read and write.
#[derive(Debug)]
pub struct PipeEnd {
    file: Switched,
}

impl PipeEnd {
    /// Takes ownership of an open end. The file description must belong to this process alone (the two ends of a
    /// pipe are separate descriptions), because its blocking mode is changed.
    pub fn new(fd: OwnedFd) -> Result<Self, OsError> {
        let file = Switched::new(fd).map_err(|e| OsError::new("fcntl", "pipe", e))?;
        Ok(PipeEnd { file })
    }

    /// Makes the end non-blocking until a call asks for blocking, as io_uring requires for pipes
    /// ([`crate::uring::Ring::read`]).
    pub fn set_nonblocking(&mut self) -> Result<(), OsError> {
        self.file.set(true).map_err(|e| OsError::new("fcntl(F_SETFL)", "pipe", e))
    }

    /// Writes part or all of `bytes`; EAGAIN only if `nonblocking`, EPIPE when there are no readers.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        self.file.set(nonblocking)?;
        retry_on_intr(|| rustix::io::write(&self.file, bytes))
    }

    /// Reads available bytes, at most as many as `buf` holds; returns 0 when there are no writers. EAGAIN only if
    /// `nonblocking`.
    #[inline]
    pub fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        self.file.set(nonblocking)?;
        retry_on_intr(|| rustix::io::read(&self.file, &mut *buf))
    }

    /// As [`PipeEnd::write`], from several buffers.
    #[inline]
    pub fn write_parts(
        &mut self,
        parts: &[std::io::IoSlice<'_>],
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        self.file.set(nonblocking)?;
        retry_on_intr(|| rustix::io::writev(&self.file, parts))
    }

    /// As [`PipeEnd::read`], into several buffers.
    #[inline]
    pub fn read_parts(
        &mut self,
        parts: &mut [std::io::IoSliceMut<'_>],
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        self.file.set(nonblocking)?;
        retry_on_intr(|| rustix::io::readv(&self.file, parts))
    }

    /// As [`PipeEnd::read`], but appends at most `most` bytes to a vector, within its capacity.
    #[inline]
    pub fn read_behind(
        &mut self,
        buf: &mut Vec<u8>,
        most: usize,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        self.file.set(nonblocking)?;
        crate::heap::append(buf, most, |room| {
            retry_on_intr(|| rustix::io::read(&self.file, &mut *room).map(|(got, _)| got.len()))
        })
    }

    /// The capacity in bytes (F_GETPIPE_SZ).
    pub fn capacity_bytes(&self) -> Result<usize, OsError> {
        rustix::pipe::fcntl_getpipe_size(&self.file)
            .map_err(|e| OsError::new("fcntl(F_GETPIPE_SZ)", "pipe", e))
    }

    /// Requests a capacity, which the kernel rounds up to a power of two of pages; returns the resulting capacity.
    /// EPERM: larger than /proc/sys/fs/pipe-max-size, without privilege.
    pub fn set_capacity_bytes(&self, bytes: usize) -> Result<usize, OsError> {
        rustix::pipe::fcntl_setpipe_size(&self.file, bytes)
            .map_err(|e| OsError::new("fcntl(F_SETPIPE_SZ)", format!("pipe to {bytes} bytes"), e))
    }
}

impl AsFd for PipeEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Creates a pipe and returns its read end and its write end, both closed on exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), OsError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| OsError::new("pipe2", "", e))
}

/// Creates a FIFO that only this user can open.
pub fn make_fifo(path: &Path) -> Result<(), OsError> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .map_err(|e| OsError::new("mkfifo", path.display(), e))
}

/// Which end of a FIFO to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FifoSide {
    /// The read end; opens even without a writer.
    Read,
    /// The write end; ENXIO while there is no reader.
    Write,
}

/// Opens one end without waiting for the other; the end is non-blocking until changed.
pub fn open_fifo(path: &Path, side: FifoSide) -> Result<OwnedFd, OsError> {
    let access = match side {
        FifoSide::Read => OFlags::RDONLY,
        FifoSide::Write => OFlags::WRONLY,
    };
    rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| OsError::new("open", path.display(), e))
}

/// Makes a write to a pipe without readers fail with EPIPE instead of killing the process, unless the program has
/// a handler of its own. Sockets have MSG_NOSIGNAL for this; for pipes the process-wide disposition is the only
/// way.
pub fn ignore_sigpipe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both calls get valid pointers or none; a zeroed sigaction is a valid value of plain data, and
        // SIG_IGN runs no code in signal context.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old) == 0
                && old.sa_sigaction == libc::SIG_DFL
            {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_is_rounded_up_and_read_back() {
        let (r, w) = pipe().unwrap();
        let (r, w) = (PipeEnd::new(r).unwrap(), PipeEnd::new(w).unwrap());
        assert_eq!(w.set_capacity_bytes(100_000).unwrap(), 131_072);
        assert_eq!(r.capacity_bytes().unwrap(), 131_072);
    }

    #[test]
    fn a_write_without_readers_is_an_error_and_not_a_death() {
        ignore_sigpipe();
        let (r, w) = pipe().unwrap();
        drop(r);
        assert_eq!(PipeEnd::new(w).unwrap().write(b"x", false), Err(Errno::PIPE));
    }

    #[test]
    fn the_blocking_mode_follows_the_call() {
        let (r, w) = pipe().unwrap();
        let (mut r, mut w) = (PipeEnd::new(r).unwrap(), PipeEnd::new(w).unwrap());
        let mut buf = [0; 4];
        assert_eq!(r.read(&mut buf, true), Err(Errno::AGAIN));
        assert_eq!(w.write(b"ab", false), Ok(2));
        assert_eq!(r.read(&mut buf, false), Ok(2));
    }

    #[test]
    fn a_fifo_without_a_reader_cannot_be_opened_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        make_fifo(&path).unwrap();
        let error = open_fifo(&path, FifoSide::Write).unwrap_err();
        assert_eq!(error.errno(), libc::ENXIO);
        let _reader = open_fifo(&path, FifoSide::Read).unwrap();
        open_fifo(&path, FifoSide::Write).unwrap();
    }
}
