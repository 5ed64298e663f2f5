//! Extended CPU state (AVX and beyond) of programs that run under another program's `ptrace`: whether the tracer can
//! save and restore it, and whether it actually does.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::{OsError, shm};

/// The relay library. Preloaded into a tracer, it completes the extended state that the tracer sets, see
/// `xstate_relay.c`. Empty if the build had no C compiler.
const RELAY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xstate_relay.so"));
/// The variant of [`RELAY`] for tests, which behaves as on a CPU with [`EMULATED_BYTES`] of state.
const RELAY_EMULATED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xstate_relay_emulated.so"));

/// The CPU for which the relay library is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// The CPU on which the library runs.
    Real,
    /// A CPU with tile registers, emulated for tests.
    Emulated,
}

/// Whether this build contains the relay library.
pub fn has_relay() -> bool {
    !RELAY.is_empty() && !RELAY_EMULATED.is_empty()
}

/// Copies the relay library to anonymous memory, for `LD_PRELOAD` through its descriptor, because folders may be
/// mounted noexec.
///
/// # Errors
/// [`OsError`] of memfd_create or write.
pub fn relay(kind: RelayKind) -> Result<OwnedFd, OsError> {
    let failed = |e: std::io::Error| OsError::new("memfd_create", "xstate relay", e);
    let fd = rustix::fs::memfd_create("crossway-xstate", MemfdFlags::CLOEXEC)
        .map_err(|e| failed(e.into()))?;
    let mut file = File::from(fd);
    file.write_all(if kind == RelayKind::Real { RELAY } else { RELAY_EMULATED }).map_err(failed)?;
    Ok(file.into())
}

/// Size in bytes of the extended state that is enabled on this CPU and that `ptrace` therefore transfers in one call:
/// CPUID leaf 0xD, sub-leaf 0, EBX (Intel's manual, volume 1, chapter 13). 0 on a machine without XSAVE or of another
/// architecture.
pub fn extended_state_bytes() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const OSXSAVE: u32 = 1 << 27;
        // SAFETY: every x86-64 processor has the instruction. Newer compilers declare both functions safe.
        #[allow(unused_unsafe)]
        let (features, area) = unsafe { (__cpuid(1), __cpuid_count(0xD, 0)) };
        if features.ecx & OSXSAVE != 0 {
            return area.ebx as usize;
        }
    }
    0
}

/// Number of pages of the string that [`check_string_functions`] searches.
const PAGES: usize = 6;
/// The byte that [`check_string_functions`] searches for; the other bytes differ from it.
const NEEDLE: u8 = b'q';
const HAY: u8 = b'-';

/// Checks that the C library's string functions return correct results in this process. They use the widest registers
/// that the CPU has. Each function runs over untouched pages, because a page fault in the middle of a function exposes
/// a kernel that does not preserve these registers.
///
/// # Errors
/// The first wrong result, or a failed memory allocation.
pub fn check_string_functions() -> Result<(), String> {
    let page = shm::page_len();
    let len = PAGES * page;
    // One offset in each half and quarter of a wide register, in the second and in the last page.
    let lanes = [0, 7, 15, 16, 24, 31, 32, 40, 48, 63];
    let places = lanes.iter().flat_map(|lane| [page + lane, (PAGES - 1) * page + lane]);
    for at in places {
        let text = Text::new(len, at)?;
        let fresh = || text.map().map(|map| (map.start, map));
        let found = |what: &str, result: *mut libc::c_void, start: *mut u8| {
            let offset = (result as usize).wrapping_sub(start as usize);
            let said = if result.is_null() {
                "no byte".to_owned()
            } else {
                format!("a byte at offset {offset}")
            };
            if offset == at && !result.is_null() {
                Ok(())
            } else {
                Err(format!("{what} found {said} instead of the byte at offset {at}"))
            }
        };
        let (start, map) = fresh()?;
        // SAFETY: the mapping has `len` bytes, the last of which is zero.
        found("memchr", unsafe { libc::memchr(start.cast(), NEEDLE.into(), len) }, start)?;
        drop(map);
        let (start, map) = fresh()?;
        // SAFETY: as above.
        found("strchr", unsafe { libc::strchr(start.cast(), NEEDLE.into()) }.cast(), start)?;
        drop(map);
        let (start, map) = fresh()?;
        // SAFETY: as above.
        let length = unsafe { libc::strlen(start.cast()) };
        if length != len - 1 {
            return Err(format!("strlen counts {length} of {} bytes", len - 1));
        }
        drop(map);
        let ((one, _first), (other, _second)) = (fresh()?, fresh()?);
        // SAFETY: both mappings have `len` bytes.
        if unsafe { libc::memcmp(one.cast(), other.cast(), len) } != 0 {
            return Err("memcmp finds a difference between equal bytes".to_owned());
        }
        let ((from, _from), target) = (fresh()?, Text::zeroed(len)?);
        let to = target.start;
        // SAFETY: the target has `len` bytes, is writable and apart from the source.
        unsafe { libc::memcpy(to.cast(), from.cast(), len) };
        for n in 0..len {
            // SAFETY: `n` is less than both lengths. Volatile, so that the compiler does not turn the loop into one of
            // the functions under test.
            let (is, should) = unsafe { (to.add(n).read_volatile(), from.add(n).read_volatile()) };
            if is != should {
                return Err(format!("memcpy copies byte {n} wrongly"));
            }
        }
    }
    Ok(())
}

/// The string to be searched and copied. It is in a memfd, so that each new mapping of it starts without resident
/// pages.
struct Text {
    file: OwnedFd,
    len: usize,
}

struct Map {
    start: *mut u8,
    len: usize,
}

impl Text {
    fn new(len: usize, needle_at: usize) -> Result<Text, String> {
        let mut bytes = vec![HAY; len];
        bytes[needle_at] = NEEDLE;
        bytes[len - 1] = 0;
        let file = rustix::fs::memfd_create("crossway-text", MemfdFlags::CLOEXEC)
            .map_err(|e| format!("memfd_create: {e}"))?;
        let mut file = File::from(file);
        file.write_all(&bytes).map_err(|e| format!("write: {e}"))?;
        Ok(Text { file: file.into(), len })
    }

    fn map(&self) -> Result<Map, String> {
        // SAFETY: a new mapping at an address that the kernel chooses; the file keeps its length.
        let start = unsafe {
            let flags = MapFlags::PRIVATE;
            rustix::mm::mmap(std::ptr::null_mut(), self.len, ProtFlags::READ, flags, &self.file, 0)
        };
        let start = start.map_err(|e| format!("mmap: {e}"))?.cast();
        Ok(Map { start, len: self.len })
    }

    fn zeroed(len: usize) -> Result<Map, String> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new anonymous memory at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)
        };
        Ok(Map { start: start.map_err(|e| format!("mmap: {e}"))?.cast(), len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made for this value; no reference into it outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_preserves_the_registers_of_string_functions() {
        assert_eq!(check_string_functions(), Ok(()));
    }

    #[test]
    fn the_extended_state_holds_at_least_the_legacy_one() {
        // 512 bytes of FXSAVE and the 64 bytes of the XSAVE header.
        let bytes = extended_state_bytes();
        assert!(bytes == 0 || bytes >= 576, "{bytes}");
    }

    #[test]
    fn the_relay_is_a_library_that_programs_start_with() {
        use std::os::fd::AsRawFd;
        if !has_relay() {
            eprintln!("SKIP the relay of CPU state: the build had no C compiler; install gcc");
            return;
        }
        for kind in [RelayKind::Real, RelayKind::Emulated] {
            let library = relay(kind).unwrap();
            let mut command = std::process::Command::new("cat");
            crate::proc::inherit(&mut command, &library);
            let path = format!("/proc/self/fd/{}", library.as_raw_fd());
            let output = command.arg("/proc/self/maps").env("LD_PRELOAD", path).output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("crossway-xstate"));
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
    }
}
