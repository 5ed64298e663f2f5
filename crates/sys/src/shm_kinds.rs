//! Shared memory of other kinds: huge pages (MFD_HUGETLB), and secret memory, which the kernel has
//! taken out of its own mappings (memfd_secret(2)).

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{FsWord, MemfdFlags, fstat, fstatfs, ftruncate, memfd_create};

use crate::OsError;
use crate::shm::{SEALS, seal};

fn huge_memfd(label: &str) -> Result<OwnedFd, OsError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    memfd_create(label, flags).map_err(|e| OsError::new("memfd_create(MFD_HUGETLB)", label, e))
}

/// The size in bytes of the huge pages that the system uses if none is named.
///
/// # Errors
/// The kernel has no huge pages.
pub fn huge_page_len() -> Result<usize, OsError> {
    let stat =
        fstat(huge_memfd("page size")?).map_err(|e| OsError::new("fstat", "huge pages", e))?;
    Ok(usize::try_from(stat.st_blksize).unwrap_or_default().max(1))
}

/// Creates zeroed anonymous shared memory of `len` bytes, whole huge pages, whose size is sealed.
/// They are reserved when it is mapped, which fails with `ENOMEM` if too few are free.
///
/// # Errors
/// The kernel has no huge pages, or `len` is none of their multiples.
pub fn create_huge(label: &str, len: usize) -> Result<OwnedFd, OsError> {
    let fd = huge_memfd(label)?;
    ftruncate(&fd, len as u64)
        .map_err(|e| OsError::new("ftruncate", format!("{label} to {len} bytes"), e))?;
    seal(&fd, SEALS)?;
    Ok(fd)
}

/// Numbers of huge pages of the usual size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// All that the system has set aside (vm.nr_hugepages).
    pub total: usize,
    /// Those that a mapping can still get.
    pub free: usize,
}

/// Reads how many huge pages there are, from `/proc/meminfo`; `None` if it does not say.
pub fn huge_pages() -> Option<HugePages> {
    huge_pages_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn huge_pages_of(meminfo: &str) -> Option<HugePages> {
    let number = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line?.trim().parse::<usize>().ok()
    };
    let free = number("HugePages_Free")?.saturating_sub(number("HugePages_Rsvd")?);
    Some(HugePages { total: number("HugePages_Total")?, free })
}

/// The type of the file system of secret memory (linux/magic.h).
const SECRETMEM_MAGIC: FsWord = 0x5345_434d;

/// Creates zeroed secret memory of `len` bytes, whose size can never change. It counts towards
/// `ulimit -l` when it is mapped, and calls that look up its pages, such as futex(2), refuse it.
///
/// # Errors
/// `ENOSYS`: the kernel is older than 5.14, was built without it, or was started with
/// `secretmem.enable=0`.
pub fn create_secret(len: usize) -> Result<OwnedFd, OsError> {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(OsError::last("memfd_secret", ""));
    }
    // SAFETY: a new descriptor that nothing else owns; descriptors fit into an i32.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    ftruncate(&fd, len as u64)
        .map_err(|e| OsError::new("ftruncate", format!("secret memory to {len} bytes"), e))?;
    Ok(fd)
}

/// Whether `fd` is secret memory of exactly `len` bytes.
pub fn is_secret(fd: BorrowedFd<'_>, len: usize) -> Result<bool, OsError> {
    let system = fstatfs(fd).map_err(|e| OsError::new("fstatfs", "secret memory", e))?;
    let stat = fstat(fd).map_err(|e| OsError::new("fstat", "secret memory", e))?;
    Ok(system.f_type == SECRETMEM_MAGIC && stat.st_size == len as i64)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::shm::{Mapping, create_sealed, is_sealed, page_len};

    #[test]
    fn secret_memory_is_shared_and_keeps_its_size() {
        let len = 4 * page_len();
        let fd = match create_secret(len) {
            Ok(fd) => fd,
            Err(e) => return eprintln!("SKIP secret memory: {e}; boot with secretmem.enable=1"),
        };
        assert!(is_secret(fd.as_fd(), len).unwrap());
        assert!(!is_secret(fd.as_fd(), 2 * len).unwrap());
        assert!(ftruncate(&fd, 0).is_err());
        let control = create_sealed("crossway-test", page_len()).unwrap();
        assert!(!is_secret(control.as_fd(), page_len()).unwrap());
        let twice = [(0, len), (0, len)];
        let m = Mapping::of_two(&control, page_len(), &fd, &twice, page_len(), true).unwrap();
        // SAFETY: in range, and nothing else has the descriptors.
        unsafe {
            let rings = m.start().as_ptr().add(page_len());
            rings.write(7);
            assert_eq!(rings.add(len).read(), 7);
        }
    }

    #[test]
    fn huge_pages_are_counted_and_mapped_where_some_are_free() {
        let Ok(page) = huge_page_len() else { return eprintln!("SKIP huge pages: none here") };
        assert!(page > page_len());
        let fd = create_huge("crossway-test", page).unwrap();
        assert!(is_sealed(fd.as_fd(), page).unwrap());
        let control = create_sealed("crossway-test", page_len()).unwrap();
        let before = huge_pages().unwrap();
        match Mapping::of_two(&control, page_len(), &fd, &[(0, page), (0, page)], page, true) {
            Ok(m) => assert_eq!(m.len(), page_len() + 2 * page),
            Err(e) if before.free == 0 => {
                eprintln!("SKIP huge pages: {e}; run as root: sysctl -w vm.nr_hugepages=16");
            }
            // Others may have taken them meanwhile.
            Err(e) => assert_eq!(e.errno(), libc::ENOMEM),
        }
    }

    #[test]
    fn pages_that_are_promised_are_not_free() {
        let text = "MemTotal: 1 kB\nHugePages_Total:      32\nHugePages_Free:       30\n\
                    HugePages_Rsvd:        4\n";
        assert_eq!(huge_pages_of(text), Some(HugePages { total: 32, free: 26 }));
        assert_eq!(huge_pages_of("MemTotal: 1 kB\n"), None);
    }
}
