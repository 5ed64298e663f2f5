//! Memory whose pages another process fills (userfaultfd(2)): a thread that touches a page that is
//! not there sleeps until the page comes.
//!
//! The descriptor that makes this possible gives power over the whole memory of the process that
//! created it. Only processes that trust each other should pass it on.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::ioctl::opcode;
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags};

use crate::OsError;
use crate::error::last_errno;
use crate::shm::page_len;

/// The version of the interface, and the group of its requests (UFFD_API, UFFDIO).
const API: u64 = 0xaa;
/// Faults on pages that are not there (UFFDIO_REGISTER_MODE_MISSING).
const MISSING: u64 = 1;
/// Only faults of programs, not of the kernel, so that no privilege is needed (UFFD_USER_MODE_ONLY,
/// Linux 5.11).
const USER_MODE_ONLY: u32 = 1;
/// As MADV_DONTNEED, also if the process has locked its memory (Linux 5.18).
const DONTNEED_LOCKED: libc::c_int = 24;

/// struct uffdio_api.
#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// struct uffdio_register.
#[repr(C)]
struct Registration {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// struct uffdio_copy.
#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    /// Number of bytes copied, or a negative errno.
    copied: i64,
}

/// Makes a request on a descriptor of userfaultfd(2).
///
/// # Safety
/// `argument` is of the type that the request `number` takes, and what it points to may be read.
unsafe fn request<T>(fd: impl AsFd, number: u8, argument: &mut T) -> Result<(), Errno> {
    let code = opcode::read_write::<T>(API as u8, number);
    // SAFETY: as the caller guarantees; the argument outlives the call.
    let outcome = unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), code as libc::Ioctl, std::ptr::from_mut(argument))
    };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Memory of this process whose pages another process fills.
#[derive(Debug)]
pub struct Window {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that belongs to the process, not to a thread.
unsafe impl Send for Window {}

impl Window {
    /// Creates memory of `len` bytes, in whole pages, none of which is there, and the descriptor by
    /// which a [`Filler`] fills them. Once all its copies are closed, pages that are missing are
    /// zeros.
    ///
    /// # Errors
    /// ENOSYS without CONFIG_USERFAULTFD; EPERM before Linux 5.11 without CAP_SYS_PTRACE.
    pub fn new(len: usize) -> Result<(Window, OwnedFd), OsError> {
        let failed = |e| OsError::new("userfaultfd", "", e);
        let flags = UserfaultfdFlags::CLOEXEC;
        let for_users = flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: the descriptor is used for memory of our own only, which is made for it.
        let fd = match unsafe { rustix::mm::userfaultfd(for_users) } {
            // SAFETY: as above.
            Err(Errno::INVAL) => unsafe { rustix::mm::userfaultfd(flags) },
            done => done,
        }
        .map_err(failed)?;
        let mut handshake = Handshake { api: API, features: 0, ioctls: 0 };
        // SAFETY: UFFDIO_API takes a Handshake, without pointers.
        unsafe { request(&fd, 0x3f, &mut handshake) }
            .map_err(|e| OsError::new("ioctl", "UFFDIO_API", e))?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the address is left to the kernel, so no existing mapping is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| OsError::new("mmap", format!("{len} bytes"), e))?;
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        let window = Window { start, len };
        // SAFETY: the window's own range; the advice does not change its content.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        let mut registration =
            Registration { start: window.address(), len: len as u64, mode: MISSING, ioctls: 0 };
        // SAFETY: UFFDIO_REGISTER takes a Registration, and the range is the window's.
        unsafe { request(&fd, 0, &mut registration) }
            .map_err(|e| OsError::new("ioctl", "UFFDIO_REGISTER", e))?;
        Ok((window, fd))
    }

    /// The address of the first byte in this process.
    pub fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "{offset}, {len}");
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Whether the page at an offset is there. A page that was swapped out is not, until it is
    /// touched.
    ///
    /// # Errors
    /// [`Errno`] of mincore(2).
    pub fn has(&self, offset: usize) -> Result<bool, Errno> {
        let mut state = 0;
        let page = self.at(offset, page_len());
        // SAFETY: a page of the window; the result is one byte.
        let outcome = unsafe { libc::mincore(page.cast(), page_len(), &raw mut state) };
        if outcome == 0 { Ok(state & 1 != 0) } else { Err(last_errno()) }
    }

    /// The word at an offset, a multiple of 8. Sleeps until its page comes.
    #[inline]
    pub fn word(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8));
        let word = self.at(offset, 8).cast::<u64>();
        // SAFETY: within the window and aligned. The page may come during the access, which the
        // kernel then repeats.
        unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire)
    }

    /// A range of bytes. Whoever reads them sleeps until their pages come; the kernel itself cannot
    /// read them before (EFAULT).
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let len = range.end - range.start;
        // SAFETY: within the window. A page, once it is there, changes only by `empty`, which
        // borrows exclusively.
        unsafe { std::slice::from_raw_parts(self.at(range.start, len), len) }
    }

    /// Removes whole pages, so that they can be filled again.
    ///
    /// # Errors
    /// [`Errno`] of madvise(2).
    #[inline]
    pub fn empty(&mut self, offset: usize, len: usize) -> Result<(), Errno> {
        let start = self.at(offset, len).cast();
        // SAFETY: the window's own range, which nobody borrows; it reads as missing from then on.
        unsafe {
            if libc::madvise(start, len, DONTNEED_LOCKED) == 0
                || libc::madvise(start, len, libc::MADV_DONTNEED) == 0
            {
                return Ok(());
            }
        }
        Err(last_errno())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, and the only owner of it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Fills the window of another process.
#[derive(Debug)]
pub struct Filler {
    fd: OwnedFd,
    /// The address of the window in that process.
    address: u64,
}

impl Filler {
    /// Takes the descriptor of a [`Window`] and its address.
    pub fn new(fd: OwnedFd, address: u64) -> Filler {
        Filler { fd, address }
    }

    /// Fills the pages at an offset, which must be missing, with `bytes`, which are whole pages,
    /// and wakes whoever waits for them. The pages come one by one, in order.
    ///
    /// # Errors
    /// EEXIST: a page is there. ENOENT or ESRCH: the window or its process is gone.
    #[inline]
    pub fn fill(&self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let mut copy = Copy {
                to: self.address + (offset + done) as u64,
                from: bytes[done..].as_ptr().addr() as u64,
                len: (bytes.len() - done) as u64,
                mode: 0,
                copied: 0,
            };
            // SAFETY: UFFDIO_COPY takes a Copy, and reads only the bytes, which are borrowed.
            match unsafe { request(&self.fd, 3, &mut copy) } {
                Ok(()) => return Ok(()),
                // The kernel stops when the other process changes its mappings, and has copied a
                // part.
                Err(Errno::AGAIN) => done += usize::try_from(copy.copied).unwrap_or(0),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// What helps where [`Window::new`] or [`Filler::fill`] fails.
pub const REMEDY: &str = "use Linux 5.11 or later with CONFIG_USERFAULTFD, or before that run as root \
     or set vm.unprivileged_userfaultfd=1, and allow userfaultfd in this process's seccomp profile \
     (start a container with --security-opt seccomp=unconfined)";

#[cfg(test)]
mod tests {
    use super::*;

    fn window(pages: usize) -> Option<(Window, Filler)> {
        match Window::new(pages * page_len()) {
            Ok((window, fd)) => {
                let address = window.address();
                Some((window, Filler::new(fd, address)))
            }
            Err(error) => {
                eprintln!("SKIP userfaultfd: {error}; {REMEDY}");
                None
            }
        }
    }

    #[test]
    fn a_page_is_waited_for_read_and_removed() {
        let Some((mut window, filler)) = window(4) else { return };
        let page = page_len();
        for round in 1..50_u64 {
            assert_eq!(window.has(page), Ok(false));
            let mut bytes = vec![round as u8; 2 * page];
            bytes[..8].copy_from_slice(&round.to_ne_bytes());
            std::thread::scope(|scope| {
                scope.spawn(|| filler.fill(page, &bytes).unwrap());
                assert_eq!(window.word(page), round);
            });
            assert_eq!(window.has(2 * page), Ok(true));
            assert_eq!(filler.fill(page, &bytes[..page]), Err(Errno::EXIST));
            assert!(window.bytes(page..3 * page) == bytes);
            window.empty(page, 2 * page).unwrap();
        }
    }

    #[test]
    fn the_end_of_the_filler_wakes_who_waits() {
        let Some((window, filler)) = window(1) else { return };
        let waits = std::thread::spawn(move || window.word(0));
        drop(filler);
        assert_eq!(waits.join().unwrap(), 0);
    }

    #[test]
    fn the_end_of_the_window_is_an_error() {
        let Some((window, filler)) = window(1) else { return };
        drop(window);
        let outcome = filler.fill(0, &vec![1; page_len()]);
        assert_eq!(outcome, Err(Errno::NOENT));
    }
}
