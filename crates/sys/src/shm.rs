//! Mapped shared memory: anonymous and sealed, or POSIX shared memory with a name.
//!
//! A `memfd` has no name: nothing can remain in `/dev/shm`, whatever kills the processes. It is sealed against
//! shrinking and growing, so that a peer cannot make our accesses raise `SIGBUS`. POSIX shared memory (`shm_open(3)`)
//! has a name until it is removed and cannot be sealed: a peer can shrink it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::shm::OFlags as ShmOFlags;

use crate::OsError;

/// The seals that a mapping of another process's memory needs to be safe from `SIGBUS`.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The page size in bytes.
pub fn page_len() -> usize {
    rustix::param::page_size()
}

/// Creates zeroed anonymous shared memory of `len` bytes, whose size is sealed. `label` appears in `/proc/<pid>/maps`.
pub fn create_sealed(label: &str, len: usize) -> Result<OwnedFd, OsError> {
    let fd = create_sealable(label, len)?;
    seal(&fd, SEALS)?;
    Ok(fd)
}

/// As [`create_sealed`], but not sealed yet.
pub(crate) fn create_sealable(label: &str, len: usize) -> Result<OwnedFd, OsError> {
    let fd = rustix::fs::memfd_create(label, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| OsError::new("memfd_create", label, e))?;
    rustix::fs::ftruncate(&fd, len as u64)
        .map_err(|e| OsError::new("ftruncate", format!("{label} to {len} bytes"), e))?;
    Ok(fd)
}

pub(crate) fn seal(fd: &OwnedFd, seals: SealFlags) -> Result<(), OsError> {
    rustix::fs::fcntl_add_seals(fd, seals)
        .map_err(|e| OsError::new("fcntl(F_ADD_SEALS)", "shared memory", e))
}

/// Whether the size of the memory behind `fd` is sealed and is exactly `len` bytes.
pub fn is_sealed(fd: BorrowedFd<'_>, len: usize) -> Result<bool, OsError> {
    let size =
        rustix::fs::fstat(fd).map_err(|e| OsError::new("fstat", "shared memory", e))?.st_size;
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => seals,
        // It is not a memfd.
        Err(rustix::io::Errno::INVAL) => return Ok(false),
        Err(e) => return Err(OsError::new("fcntl(F_GET_SEALS)", "shared memory", e)),
    };
    Ok(size == len as i64 && seals.contains(SealFlags::SHRINK | SealFlags::GROW))
}

/// Creates zeroed POSIX shared memory of `len` bytes for this user only. The name begins with a slash; `EEXIST` if it
/// is taken.
pub fn create_named(name: &str, len: usize) -> Result<OwnedFd, OsError> {
    let flags = ShmOFlags::CREATE | ShmOFlags::EXCL | ShmOFlags::RDWR;
    let fd = rustix::shm::open(name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| OsError::new("shm_open", name, e))?;
    rustix::fs::ftruncate(&fd, len as u64)
        .map_err(|e| OsError::new("ftruncate", format!("{name} to {len} bytes"), e))?;
    Ok(fd)
}

/// Opens POSIX shared memory by its name. Fails if the memory is not `len` bytes long.
pub fn open_named(name: &str, len: usize) -> Result<OwnedFd, OsError> {
    let fd = rustix::shm::open(name, ShmOFlags::RDWR, Mode::empty())
        .map_err(|e| OsError::new("shm_open", name, e))?;
    let size = rustix::fs::fstat(&fd).map_err(|e| OsError::new("fstat", name, e))?.st_size;
    if size != len as i64 {
        let why = format!("it has {size} bytes instead of {len}");
        return Err(OsError::new("shm_open", name, std::io::Error::other(why)));
    }
    Ok(fd)
}

/// Shared memory in this process's address space, readable and writable; unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range that belongs to the process, not to a thread; accesses through the pointer are
// the responsibility of the code that makes them.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods only read two immutable fields.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd` and faults all of them in, so that no page fault occurs during a measurement.
    pub fn new(fd: impl AsFd, len: usize) -> Result<Mapping, OsError> {
        Self::of_pieces(fd, &[(0, len)])
    }

    /// Maps pieces of `fd`, each given as offset and length in whole pages, one after the other, and faults them in. A
    /// piece may appear twice in a row: what is written past the end of its first mapping then appears at the start of
    /// that mapping.
    pub fn of_pieces(fd: impl AsFd, pieces: &[(usize, usize)]) -> Result<Mapping, OsError> {
        let mapping = Self::in_order(fd, pieces, MapFlags::POPULATE)?;
        mapping.populate();
        Ok(mapping)
    }

    /// As [`Mapping::of_pieces`], without faulting them in.
    pub fn of_pieces_lazily(fd: impl AsFd, pieces: &[(usize, usize)]) -> Result<Mapping, OsError> {
        Self::in_order(fd, pieces, MapFlags::empty())
    }

    /// Maps all `control_len` bytes of `control` and behind them pieces of `fd`, as
    /// [`Mapping::of_pieces`] does. The first piece begins at a multiple of `alignment`, which is
    /// the size of a page of `fd`. With `fault_in`, all pages are touched, because memory of some
    /// kinds ignores the request to fault them in.
    pub fn of_two(
        control: impl AsFd,
        control_len: usize,
        fd: impl AsFd,
        pieces: &[(usize, usize)],
        alignment: usize,
        fault_in: bool,
    ) -> Result<Mapping, OsError> {
        let len = control_len + pieces.iter().map(|(_, len)| len).sum::<usize>();
        let mapping = Mapping::reserve_aligned(len, control_len, alignment)?;
        mapping.fill(0, &control, &[(0, control_len)], MapFlags::empty())?;
        mapping.fill(control_len, &fd, pieces, MapFlags::empty())?;
        if fault_in {
            mapping.touch();
        }
        Ok(mapping)
    }

    fn in_order(
        fd: impl AsFd,
        pieces: &[(usize, usize)],
        more: MapFlags,
    ) -> Result<Mapping, OsError> {
        let mapping = Mapping::reserve(pieces.iter().map(|(_, len)| len).sum())?;
        mapping.fill(0, fd, pieces, more)?;
        Ok(mapping)
    }

    /// Maps pieces of `fd` over the reserved range, from the offset `at` on.
    fn fill(
        &self,
        at: usize,
        fd: impl AsFd,
        pieces: &[(usize, usize)],
        more: MapFlags,
    ) -> Result<(), OsError> {
        let len: usize = pieces.iter().map(|(_, len)| len).sum();
        assert!(at + len <= self.len, "beyond the reserved range");
        let flags = MapFlags::SHARED | MapFlags::FIXED | more;
        let mut at = self.start.as_ptr().wrapping_add(at);
        for &(offset, len) in pieces {
            // On 32-bit processors, the C library passes the offset as a number of pages.
            if !offset.is_multiple_of(page_len()) {
                let what = format!("shared memory at {offset}, within a page");
                return Err(OsError::new("mmap", what, rustix::io::Errno::INVAL));
            }
            // SAFETY: the target lies within the reserved range, as just asserted, which nothing
            // else uses.
            unsafe {
                let prot = ProtFlags::READ | ProtFlags::WRITE;
                rustix::mm::mmap(at.cast(), len, prot, flags, &fd, offset as u64).map_err(|e| {
                    OsError::new("mmap", format!("{len} bytes of shared memory at {offset}"), e)
                })?;
                at = at.add(len);
            }
        }
        Ok(())
    }

    /// Maps the first `len` bytes of `fd` without faulting them in.
    pub(crate) fn lazily(fd: impl AsFd, len: usize, writable: bool) -> Result<Mapping, OsError> {
        Self::lazily_from(fd, 0, len, writable)
    }

    /// The same from an offset on, which may lie beyond every address.
    pub(crate) fn lazily_from(
        fd: impl AsFd,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Mapping, OsError> {
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the address is left to the kernel, so no existing mapping is replaced.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, offset)
        }
        .map_err(|e| OsError::new("mmap", format!("{len} bytes of shared memory"), e))?;
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        Ok(Mapping { start, len })
    }

    /// Puts private memory, all zeros, in the place of what is mapped.
    pub(crate) fn replace_by_zeros(&self) -> Result<(), OsError> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range belongs to this mapping and stays accessible; whoever accesses it at this moment finds the old
        // or the new memory.
        unsafe {
            rustix::mm::mmap_anonymous(self.start.as_ptr().cast(), self.len, prot, flags)
                .map(drop)
                .map_err(|e| OsError::new("mmap", format!("{} bytes", self.len), e))
        }
    }

    /// Reserves an address range without access; pieces are mapped into it later.
    fn reserve(len: usize) -> Result<Mapping, OsError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the address is left to the kernel, so no existing mapping is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)
        }
        .map_err(|e| OsError::new("mmap", format!("{len} bytes of address space"), e))?;
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        Ok(Mapping { start, len })
    }

    /// Reserves an address range in which the byte at `offset`, a multiple of the page size, has an
    /// address that is a multiple of `alignment`.
    pub(crate) fn reserve_aligned(
        len: usize,
        offset: usize,
        alignment: usize,
    ) -> Result<Mapping, OsError> {
        let wide = Mapping::reserve(len + alignment)?;
        let start = wide.start.as_ptr().addr();
        let before = (start + offset).next_multiple_of(alignment) - offset - start;
        Ok(wide.part(before, len))
    }

    /// Unmaps everything but a part, which begins and ends at a page.
    ///
    /// # Panics
    /// If the part lies outside the mapping.
    pub fn part(self, offset: usize, len: usize) -> Mapping {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "beyond the mapping");
        let start = self.start.as_ptr();
        let others = [(0, offset), (offset + len, self.len - offset - len)];
        std::mem::forget(self);
        for (at, len) in others.into_iter().filter(|(_, len)| *len > 0) {
            // SAFETY: within the range of the mapping, which is not used as such any more.
            let _ = unsafe { rustix::mm::munmap(start.wrapping_add(at).cast(), len) };
        }
        let start = NonNull::new(start.wrapping_add(offset)).expect("within the mapping");
        Mapping { start, len }
    }

    /// Writes to every page without changing its content, also while another process writes there.
    fn touch(&self) {
        for at in (0..self.len).step_by(page_len()) {
            // SAFETY: within the mapping, which is writable; atomic, as others may access it.
            let byte = unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(at)) };
            byte.fetch_or(0, Ordering::Relaxed);
        }
    }

    /// Faults all pages in for writing. This is only an optimisation: kernels before 5.14 refuse, which is ignored.
    pub(crate) fn populate(&self) {
        // SAFETY: the range is this mapping's; the advice does not change its content.
        let _ = unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxPopulateWrite)
        };
    }

    /// Returns the memory of a part, in whole pages, to the kernel. All mappings of it then show zeros, as if another
    /// process had written them. Returns false where the kernel cannot do so.
    ///
    /// # Panics
    /// If the part lies outside the mapping.
    pub fn give_back(&self, offset: usize, len: usize) -> bool {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "beyond the mapping");
        // SAFETY: the range is this mapping's, and stays mapped; that its content changes is what users of shared
        // memory must expect.
        unsafe {
            let start = self.start.as_ptr().add(offset);
            rustix::mm::madvise(start.cast(), len, Advice::LinuxRemove).is_ok()
        }
    }

    /// The address of the first byte. Another process may write to the memory at any time: access it through atomics,
    /// or under a protocol that defines who may touch what and when.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty)] // never empty: mmap refuses that
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, and this is its only owner.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_show_the_same_zeroed_bytes() {
        let fd = create_sealed("crossway-test", 8192).unwrap();
        assert!(is_sealed(fd.as_fd(), 8192).unwrap());
        assert!(!is_sealed(fd.as_fd(), 4096).unwrap());
        let a = Mapping::new(&fd, 8192).unwrap();
        let b = Mapping::new(&fd, 8192).unwrap();
        // SAFETY: in range, and nothing else has the descriptor.
        unsafe {
            assert_eq!(b.start().as_ptr().add(8191).read(), 0);
            a.start().as_ptr().add(8191).write(7);
            assert_eq!(b.start().as_ptr().add(8191).read(), 7);
        }
    }

    #[test]
    fn a_piece_mapped_twice_wraps_around() {
        let page = page_len();
        let fd = create_sealed("crossway-test", 3 * page).unwrap();
        let twice = (page, 2 * page);
        let m = Mapping::of_pieces(&fd, &[(0, page), twice, twice]).unwrap();
        assert_eq!(m.len(), 5 * page);
        // SAFETY: in range, and nothing else has the descriptor.
        unsafe {
            m.start().as_ptr().add(page + 2 * page + 5).write(9);
            assert_eq!(m.start().as_ptr().add(page + 5).read(), 9);
        }
        assert!(Mapping::of_pieces(&fd, &[(1, page)]).is_err());
    }

    #[test]
    fn two_memories_lie_behind_each_other_and_the_second_is_aligned() {
        let page = page_len();
        let [control, fd] =
            [1, 4].map(|pages| create_sealed("crossway-test", pages * page).unwrap());
        let (first, second) = ((0, 2 * page), (2 * page, 2 * page));
        let alignment = 16 * page;
        let m = Mapping::of_two(&control, page, &fd, &[first, first, second], alignment, true);
        let m = m.unwrap();
        assert_eq!(m.len(), 7 * page);
        assert_eq!((m.start().as_ptr().addr() + page) % alignment, 0);
        // SAFETY: in range, and nothing else has the descriptors.
        unsafe {
            let start = m.start().as_ptr();
            start.add(page).write(9);
            assert_eq!(start.add(3 * page).read(), 9, "the first piece, again");
            assert_eq!((start.read(), start.add(5 * page).read()), (0, 0));
        }
    }

    #[test]
    fn what_is_given_back_is_zero_in_every_mapping() {
        let page = page_len();
        let fd = create_sealed("crossway-test", 3 * page).unwrap();
        let (a, b) = (Mapping::new(&fd, 3 * page).unwrap(), Mapping::new(&fd, 3 * page).unwrap());
        // SAFETY: in range, and nothing else has the descriptor.
        let at = |m: &Mapping, n: usize| unsafe { m.start().as_ptr().add(n * page).read() };
        for n in 0..3 {
            // SAFETY: as above.
            unsafe { a.start().as_ptr().add(n * page).write(7) };
        }
        assert!(a.give_back(page, page));
        assert_eq!([0, 1, 2].map(|n| at(&b, n)), [7, 0, 7]);
        assert_eq!(at(&a, 1), 0);
    }

    #[test]
    fn a_sealed_memory_cannot_be_resized() {
        let fd = create_sealed("crossway-test", 4096).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(rustix::fs::ftruncate(&fd, 8192).is_err());
    }

    #[test]
    fn a_plain_file_is_not_taken_for_sealed_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(!is_sealed(file.as_fd(), 4096).unwrap());
    }
}
