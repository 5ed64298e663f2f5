//! The memory that a program passes to a call.

use std::ffi::c_void;
use std::io::IoSlice;
use std::marker::PhantomData;

use libc::iovec;

/// Parts (iovec) of the program's memory, for the duration of a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'a> {
    parts: &'a [iovec],
    /// The memory belongs to the program and is only borrowed.
    lent: PhantomData<&'a mut [u8]>,
}

/// Makes an iovec for a single part of memory.
pub(super) fn piece(bytes: *const c_void, len: usize) -> iovec {
    iovec { iov_base: bytes.cast_mut(), iov_len: len }
}

impl<'a> Parts<'a> {
    /// Wraps parts of the program's memory.
    ///
    /// # Safety
    /// Each part with a non-zero length is readable until `'a` ends and, if data is received into it, writable.
    pub(super) const unsafe fn new(parts: &'a [iovec]) -> Self {
        Self { parts, lent: PhantomData }
    }

    /// Wraps an array of parts as passed from C.
    ///
    /// # Safety
    /// `parts` is NULL and `count` is 0, or `parts` points to this number of parts, each as [`Parts::new`] requires.
    pub(super) unsafe fn from_c(parts: *const iovec, count: usize) -> Self {
        if parts.is_null() || count == 0 {
            return Self::default();
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(std::slice::from_raw_parts(parts, count)) }
    }

    pub(super) const fn raw(&self) -> &'a [iovec] {
        self.parts
    }

    /// Total length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().fold(0, |len: usize, part| len.saturating_add(part.iov_len))
    }

    /// Copies the first bytes of the parts to `out`.
    pub(crate) fn copy_front(&self, out: &mut [u8]) {
        let mut left = out;
        for part in self.parts.iter().filter(|part| part.iov_len > 0) {
            let len = part.iov_len.min(left.len());
            // SAFETY: the part is readable, as its creator guaranteed, and `left` has room for this many bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(part.iov_base.cast::<u8>(), left.as_mut_ptr(), len);
            }
            left = &mut left[len..];
        }
    }

    /// Calls `use_them` with the bytes to be sent, as at most `N` slices; more parts than that are copied into one.
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
            // SAFETY: the part is readable, as its creator guaranteed; a program that sends it does not change it during the call, and if it
            // does, only the kernel reads it.
            let bytes =
                unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        use_them(&slices[..count])
    }
}
