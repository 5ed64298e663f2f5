//! Whether memory that a program passes to a call can be read or written: if not, the call fails with EFAULT, as in the kernel,
//! and does not end the program.
//!
//! Only for what this library itself reads or writes. Bytes that are sent or received are copied by the kernel, which refuses bad
//! pointers anyway.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossway_sys::cma;
use crossway_sys::real::{errno, set_errno};

/// The smallest page of any processor; larger ones are asked for several times.
const PAGE: usize = 4096;

/// Pages that were found good: their numbers plus 1, and in the lowest bit whether they are writable. Programs use the same few
/// pages, mostly of their stacks, for all calls; asking the kernel each time would cost a system call per message.
static GOOD: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Whether `count` structures can be read.
#[inline]
pub(super) fn is_readable<T>(pointer: *const T, count: usize) -> bool {
    is_good(pointer.addr(), size_of::<T>().saturating_mul(count), false)
}

/// Whether `count` structures can be read and written.
#[inline]
pub(super) fn is_writable<T>(pointer: *mut T, count: usize) -> bool {
    is_good(pointer.addr(), size_of::<T>().saturating_mul(count), true)
}

#[inline]
fn is_good(address: usize, len: usize, written: bool) -> bool {
    if len == 0 {
        return true;
    }
    let Some(last) = address.checked_add(len - 1) else { return false };
    (address / PAGE..=last / PAGE).all(|page| {
        let known = GOOD[page % GOOD.len()].load(Ordering::Relaxed);
        let is_known = known >> 1 == page + 1 && (known & 1 == 1 || !written);
        is_known || ask(page, address.max(page * PAGE), written)
    })
}

/// Asks the kernel about a byte of the program's on a page.
#[cold]
fn ask(page: usize, address: usize, written: bool) -> bool {
    let before = errno();
    let outcome = cma::check_own(address as u64, 1, written);
    set_errno(before);
    if outcome.is_ok() {
        GOOD[page % GOOD.len()].store((page + 1) << 1 | usize::from(written), Ordering::Relaxed);
    }
    outcome.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_told_from_memory_that_is() {
        let mut words = [0_u64; 1024];
        for _ in 0..2 {
            assert!(is_writable(words.as_mut_ptr(), words.len()));
            assert!(is_readable(words.as_ptr(), words.len()));
            assert!(!is_readable(16 as *const u64, 1) && is_readable(16 as *const u64, 0));
            assert!(
                !is_readable(usize::MAX as *const u64, 1)
                    && !is_readable(words.as_ptr(), usize::MAX)
            );
            let constant = b"constant";
            assert!(is_readable(constant.as_ptr(), 8));
            assert!(!is_writable(constant.as_ptr().cast_mut(), 8));
        }
    }
}
