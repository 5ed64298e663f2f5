//! A program's memory, as it comes with a call.

use std::ffi::c_void;
use std::io::IoSlice;
use std::marker::PhantomData;

use libc::iovec;

/// Pieces of the program's memory, for as long as a call takes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'a> {
    parts: &'a [iovec],
    /// The memory is the program's, and only lent.
    lent: PhantomData<&'a mut [u8]>,
}

/// One piece.
pub(super) fn piece(octets: *const c_void, len: usize) -> iovec {
    iovec { iov_base: octets.cast_mut(), iov_len: len }
}

impl<'a> Parts<'a> {
    /// # Safety
    /// Each part that has a length can be read and, if it is to be received into, written until `'a` ends.
    pub(super) const unsafe fn new(parts: &'a [iovec]) -> Self {
        Self { parts, lent: PhantomData }
    }

    /// # Safety
    /// NULL with a count of 0, or so many parts as [`Parts::new`] asks for.
    pub(super) unsafe fn from_c(parts: *const iovec, count: usize) -> Self {
        if parts.is_null() || count == 0 {
            return Self::default();
        }
        // SAFETY: as the caller promises.
        unsafe { Self::new(std::slice::from_raw_parts(parts, count)) }
    }

    pub(super) const fn raw(&self) -> &'a [iovec] {
        self.parts
    }

    /// Octets of all parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().fold(0, |len: usize, part| len.saturating_add(part.iov_len))
    }

    /// Copies the first octets, which were received, to where they are wanted.
    pub(crate) fn copy_front(&self, out: &mut [u8]) {
        let mut left = out;
        for part in self.parts.iter().filter(|part| part.iov_len > 0) {
            let len = part.iov_len.min(left.len());
            // SAFETY: the part can be read, as who made it promised, and `left` has room for so many octets.
            unsafe {
                std::ptr::copy_nonoverlapping(part.iov_base.cast::<u8>(), left.as_mut_ptr(), len);
            }
            left = &mut left[len..];
        }
    }

    /// The octets to be sent, in at most `N` slices.
    pub(crate) fn with_slices<const N: usize, T>(
        &self,
        use_them: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> T {
        let filled = self.parts.iter().filter(|part| part.iov_len > 0);
        if filled.clone().count() > N {
            let mut together = vec![0; self.len()];
            self.copy_front(&mut together);
            return use_them(&[IoSlice::new(&together)]);
        }
        let mut slices = [IoSlice::new(&[]); N];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(filled) {
            // SAFETY: the part can be read, as who made it promised; a program that sends it does not change it meanwhile, and if it does, only
            // the kernel reads it.
            let octets =
                unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            *slice = IoSlice::new(octets);
            count += 1;
        }
        use_them(&slices[..count])
    }
}
