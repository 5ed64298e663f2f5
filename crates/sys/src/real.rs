//! The functions of the C library that a preloaded library replaces: finding the originals (RTLD_NEXT), and calling them.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicPtr, Ordering};

pub mod c_library;

/// Name and address of a function. The address is looked up at the first use.
#[derive(Debug)]
pub struct Place {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Place {
    /// The place of a function whose address is not known yet.
    ///
    /// # Panics
    /// If the name does not end with a NUL, or has another one.
    pub const fn new(name: &'static str) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("a name without a terminating NUL")
        };
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The address of the function; NULL if no library loaded after this one has it.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with 0.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// The value to return instead of calling a function that the C library does not have.
pub trait Missing {
    /// The value by which the function reports an error.
    const VALUE: Self;
}

impl Missing for i32 {
    const VALUE: Self = -1;
}

impl Missing for isize {
    const VALUE: Self = -1;
}

impl Missing for i64 {
    const VALUE: Self = -1;
}

impl Missing for () {
    const VALUE: Self = ();
}

impl<T> Missing for *mut T {
    const VALUE: Self = std::ptr::null_mut();
}

/// The calling thread's errno.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: points to the thread's errno for the life of the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
#[inline]
pub fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}

/// Borrows a descriptor whose number a program has passed, for a call; `None` if it is negative.
#[inline]
pub fn borrow(fd: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: not -1. By the time of the call, the number may be closed or reused, like any number that a program passes;
    // nothing here relies on more than the result of the call.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Closes a descriptor past the preloaded library. Leaves errno as it was.
pub fn close_really(fd: c_int) {
    let before = errno();
    // SAFETY: closing a number does not affect memory.
    unsafe { c_library::close(fd) };
    set_errno(before);
}

/// Declares functions of the C library by their types. Each becomes an `unsafe fn` of that name that calls the next library's
/// function, or fails with ENOSYS if there is none, and `find_all` looks all of them up.
#[macro_export]
macro_rules! real_functions {
    ($vis:vis $(fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $ret:ty;)*) => {
        $(
            /// Calls the function of that name in the C library; fails with ENOSYS if there is none.
            ///
            /// # Safety
            /// The same as for the function of that name in the C library.
            #[inline]
            $vis unsafe fn $name($($arg: $kind),*) -> $ret {
                let address = places::$name.get();
                if address.is_null() {
                    $crate::real::set_errno(libc::ENOSYS);
                    return <$ret as $crate::real::Missing>::VALUE;
                }
                // SAFETY: the C library's function of that name has this type, and the caller meets its requirements.
                unsafe {
                    let function: unsafe extern "C-unwind" fn($($kind),*) -> $ret =
                        std::mem::transmute(address);
                    function($($arg),*)
                }
            }
        )*

        #[allow(non_upper_case_globals)]
        mod places {
            use $crate::real::Place;
            $(pub(super) static $name: Place = Place::new(concat!(stringify!($name), "\0"));)*
        }

        /// Looks up all functions in advance, so that no lookup happens in a signal handler.
        $vis fn find_all() {
            $(places::$name.get();)*
        }
    };
}
