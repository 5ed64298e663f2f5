//! Whether descriptors of two processes are the same open file (kcmp(2)), for objects that have no number of their own.

use std::cmp::Ordering;

use crate::{Errno, OsError};

/// Compares two open files by the kernel's own order, which is stable as long as both are open. Equal means that the
/// descriptors share one open file, as after a fork or a passed descriptor.
///
/// # Errors
/// A process has ended, a descriptor is closed, this process may not trace both (`EPERM`), or the kernel has no kcmp
/// (`ENOSYS`).
pub fn compare_files(one: (u32, i32), other: (u32, i32)) -> Result<Ordering, OsError> {
    /// KCMP_FILE of linux/kcmp.h.
    const FILE: libc::c_long = 0;
    let object = || format!("descriptors {} of {} and {} of {}", one.1, one.0, other.1, other.0);
    // SAFETY: kcmp takes five integers and writes to no memory.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            libc::c_long::from(one.0.cast_signed()),
            libc::c_long::from(other.0.cast_signed()),
            FILE,
            libc::c_long::from(one.1),
            libc::c_long::from(other.1),
        )
    };
    match answer {
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        2 => Ok(Ordering::Greater),
        -1 => Err(OsError::last("kcmp", object())),
        _ => Err(OsError::new("kcmp", object(), Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_duplicate_is_the_same_file_and_another_one_is_not() {
        let own = std::process::id();
        let (one, other) = crate::pipe::pipe().unwrap();
        let again = one.try_clone().unwrap();
        match compare_files((own, one.as_raw_fd()), (own, again.as_raw_fd())) {
            Ok(order) => assert_eq!(order, Ordering::Equal),
            Err(e) if [libc::ENOSYS, libc::EPERM].contains(&e.errno()) => {
                return eprintln!("SKIP kcmp: {e}; allow it in the container, or use Linux 3.5");
            }
            Err(e) => panic!("{e}"),
        }
        let order = compare_files((own, one.as_raw_fd()), (own, other.as_raw_fd())).unwrap();
        assert_ne!(order, Ordering::Equal);
        assert!(compare_files((own, 1 << 20), (own, 0)).is_err());
    }
}
