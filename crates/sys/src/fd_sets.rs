//! The sets of descriptors that select(2) reads and replaces by its results.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::fd_set;

/// The sets of a call, kept so that the call can be repeated.
pub struct FdSets {
    places: [*mut fd_set; 3],
    saved: [MaybeUninit<fd_set>; 3],
    bytes: usize,
    are_whole: bool,
}

impl FdSets {
    /// Keeps the sets that a call with this number of descriptors reads.
    ///
    /// # Safety
    /// The pointers are NULL or point to sets with at least `count` bits.
    pub unsafe fn of(places: [*mut fd_set; 3], count: c_int) -> Self {
        let bits = usize::try_from(count).unwrap_or(0).min(libc::FD_SETSIZE);
        let mut sets = Self {
            are_whole: usize::try_from(count).is_ok_and(|count| count <= libc::FD_SETSIZE),
            places,
            saved: [const { MaybeUninit::uninit() }; 3],
            // The kernel reads and writes whole words.
            bytes: bits.div_ceil(usize::BITS as usize) * size_of::<usize>(),
        };
        // SAFETY: guaranteed by the caller; a set of the C library is as large as the saved one.
        unsafe { sets.copy(|place, saved, bytes| saved.copy_from_nonoverlapping(place, bytes)) };
        sets
    }

    /// Whether everything is kept, so that the call can be repeated: sets can be larger than those of the C library.
    pub fn are_whole(&self) -> bool {
        self.are_whole
    }

    /// The first descriptor of the first set that meets a condition.
    pub fn first(&self, is_wanted: impl Fn(c_int) -> bool) -> Option<c_int> {
        if self.places[0].is_null() {
            return None;
        }
        // SAFETY: so many bytes of the set were copied, and any value is a valid byte.
        let set =
            unsafe { std::slice::from_raw_parts(self.saved[0].as_ptr().cast::<u8>(), self.bytes) };
        // The kernel's sets are arrays of `unsigned long`.
        let words = set
            .chunks_exact(size_of::<usize>())
            .map(|word| usize::from_ne_bytes(word.try_into().unwrap_or_default()));
        let bits = words.enumerate().filter(|(_, word)| *word != 0).flat_map(|(n, word)| {
            let is_set = move |bit: &u32| word >> bit & 1 == 1;
            (0..usize::BITS)
                .filter(is_set)
                .map(move |bit| n as c_int * usize::BITS as c_int + bit as c_int)
        });
        bits.into_iter().find(|fd| is_wanted(*fd))
    }

    /// Writes the kept sets back.
    ///
    /// # Safety
    /// The pointers passed to [`FdSets::of`] are still valid.
    pub unsafe fn restore(&mut self) {
        // SAFETY: guaranteed by the caller; saved before.
        unsafe { self.copy(|place, saved, bytes| place.copy_from_nonoverlapping(saved, bytes)) };
    }

    /// # Safety
    /// As for [`FdSets::of`].
    unsafe fn copy(&mut self, copy: impl Fn(*mut u8, *mut u8, usize)) {
        for (place, saved) in self.places.iter().zip(&mut self.saved) {
            if !place.is_null() {
                copy(place.cast(), saved.as_mut_ptr().cast(), self.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_searched_and_restored() {
        // SAFETY: an empty set is all zeros.
        let mut set: fd_set = unsafe { std::mem::zeroed() };
        // SAFETY: within the set.
        unsafe {
            libc::FD_SET(3, &mut set);
            libc::FD_SET(64, &mut set);
            libc::FD_SET(1000, &mut set);
        }
        let nothing = std::ptr::null_mut();
        // SAFETY: a set of the C library has more bits.
        let mut sets = unsafe { FdSets::of([&raw mut set, nothing, nothing], 1001) };
        assert!(sets.are_whole());
        assert_eq!(sets.first(|_| true), Some(3));
        assert_eq!(sets.first(|fd| fd > 3), Some(64));
        assert_eq!(sets.first(|fd| fd > 64), Some(1000));
        assert_eq!(sets.first(|fd| fd > 1000), None);
        // SAFETY: within the set, and the set is still there.
        unsafe {
            libc::FD_CLR(64, &mut set);
            sets.restore();
            assert!(libc::FD_ISSET(64, &set));
        }
        // What follows the last word that the kernel reads is not the set's.
        let mut words = [1_usize, 2];
        // SAFETY: a word has as many bits.
        let mut short = unsafe { FdSets::of([words.as_mut_ptr().cast(), nothing, nothing], 1) };
        words = [3, 4];
        // SAFETY: as above, and the set is still there.
        unsafe { short.restore() };
        assert_eq!(words, [1, 4]);
        // SAFETY: the set is larger than what is kept of it.
        let few = unsafe { FdSets::of([nothing, &raw mut set, nothing], 2000) };
        assert!(!few.are_whole());
        assert_eq!(few.first(|_| true), None);
    }
}
