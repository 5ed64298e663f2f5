//! Page-aligned memory of a sender, from which the kernel or another process reads messages.
//!
//! It is a sealed memfd, mapped shared: a fork does not replace pages that others hold references to, and its content
//! can be read through the descriptor after its owner has ended.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::OsError;
use crate::shm::{Mapping, create_sealed, is_sealed, page_len};

/// Pages that this process writes and other processes read.
///
/// After a range has been handed out (to a pipe, to a process), it must not be written to until it has been consumed.
/// The type cannot know when that is; the channel's protocol has to determine it. A violation corrupts a message and
/// nothing else: the readers are the kernel and other processes, which copy bytes.
#[derive(Debug)]
pub struct Pages {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Pages {
    /// Allocates at least `bytes`, rounded up to whole pages, zeroed and faulted in.
    pub fn new(label: &str, bytes: usize) -> Result<Self, OsError> {
        let fd = create_sealed(label, bytes.max(1).next_multiple_of(page_len()))?;
        Self::of_memfd(fd)
    }

    /// Maps memory that [`create_sealed`] made. Errors: `EINVAL` when it is not sealed.
    pub fn of_memfd(fd: OwnedFd) -> Result<Self, OsError> {
        let len = rustix::fs::fstat(&fd).map_err(|e| OsError::new("fstat", "memfd", e))?.st_size;
        let len = usize::try_from(len).unwrap_or(0);
        if !is_sealed(fd.as_fd(), len)? {
            let why = rustix::io::Errno::INVAL;
            return Err(OsError::new("mmap", "memory whose size is not sealed", why));
        }
        let mapping = Mapping::new(&fd, len)?;
        Ok(Pages { fd, mapping })
    }

    /// The length in bytes, a multiple of the page size.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The start address in this process's memory.
    pub fn address(&self) -> u64 {
        self.mapping.start().as_ptr() as u64
    }

    /// Borrows a range of bytes. Panics if it is not within the memory.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let start = self.check(&range);
        // SAFETY: the range lies within the mapping, which lives as long as `self` and whose bytes are initialised.
        // Only this process writes to it, and only through `bytes_mut`, which borrows exclusively.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }

    /// Borrows a range of bytes for writing. Panics if it is not within the memory.
    #[inline]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let start = self.check(&range);
        // SAFETY: as above, and `self` is borrowed exclusively. Others only read, through mappings or references of
        // their own, and must not trust what they see during a write.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
    }

    #[inline]
    fn check(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(range.start <= range.end && range.end <= self.mapping.len(), "{range:?}");
        // SAFETY: the start was just checked to lie within the mapping.
        unsafe { self.mapping.start().add(range.start) }
    }
}

impl AsFd for Pages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Another process's pages, mapped for reading; unmapped on drop.
#[derive(Debug)]
pub struct View {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is only read, and not bound to a thread.
unsafe impl Send for View {}

impl View {
    /// Maps the first `len` bytes of `fd`, a memfd of `size` bytes.
    ///
    /// Errors: `EINVAL` when `fd` does not have that size or is not sealed, or `len` exceeds `size`. The owner of
    /// unsealed memory could shrink it, and our access would then raise `SIGBUS`.
    pub fn new(fd: BorrowedFd<'_>, size: usize, len: usize) -> Result<View, OsError> {
        let error = |e| OsError::new("mmap", format!("a memfd of {size} bytes, sealed"), e);
        if len > size || !is_sealed(fd, size)? {
            return Err(error(rustix::io::Errno::INVAL));
        }
        let mapped = len.max(1);
        // SAFETY: the address is left to the kernel, so that no existing mapping is replaced.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                0,
            )
        }
        .map_err(error)?;
        Ok(View {
            start: NonNull::new(start.cast()).expect("the kernel maps nothing at address 0"),
            len,
        })
    }

    /// The mapped bytes. The owner must not write to them while they are borrowed; if it does, the content read is
    /// corrupted.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping holds `len` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, and the only owner of it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len.max(1)) };
    }
}

/// Reads from a memfd at an offset; returns the number of bytes.
pub fn read_at(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<usize, OsError> {
    rustix::io::pread(fd, buf, offset).map_err(|e| OsError::new("pread", "memfd", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_visible_in_a_view_and_through_the_descriptor() {
        let mut pages = Pages::new("crossway-test", 5000).unwrap();
        assert_eq!(pages.len() % page_len(), 0);
        pages.bytes_mut(4998..5003).copy_from_slice(b"hello");
        assert_eq!(pages.bytes(4998..5003), b"hello");
        assert!(View::new(pages.as_fd(), 5003, 5003).is_err());
        let view = View::new(pages.as_fd(), pages.len(), 5003).unwrap();
        assert_eq!(&view.bytes()[4998..], b"hello");
        let mut buf = [0; 5];
        assert_eq!(read_at(pages.as_fd(), &mut buf, 4998).unwrap(), 5);
        assert_eq!(&buf, b"hello");
    }

    #[test]
    fn memory_that_can_be_resized_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        assert_eq!(Pages::of_memfd(file.into()).unwrap_err().call, "mmap");
    }

    #[test]
    #[should_panic(expected = "4000..5000")]
    fn a_range_beyond_the_memory_is_a_panic() {
        Pages::new("crossway-test", 4096).unwrap().bytes(4000..5000);
    }
}
