//! Hints to the processor about cache lines.

/// Size of a cache line in bytes, as the hints count.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks the processor to move the cache lines of `len` bytes from this core's own caches to the one that the cores
/// share, from where another core reads them sooner: CLDEMOTE, which Intel's server processors have since Sapphire
/// Rapids. Does nothing on other processors. Reads and changes nothing, and faults on no address.
#[inline(always)]
pub fn push_out(start: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // The last line first, since the reader waits for the first one.
    for line in (0..(start.addr() % LINE + len).div_ceil(LINE)).rev() {
        let line = start.wrapping_add(line * LINE);
        // SAFETY: a hint, which processors without it execute as a no-operation; it raises no fault for an address.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, len);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hint_changes_nothing_and_faults_nowhere() {
        let bytes = [7u8; 300];
        super::push_out(bytes.as_ptr(), bytes.len());
        super::push_out(std::ptr::null(), 0);
        assert_eq!(bytes, [7; 300]);
    }
}
