//! Atomics, cells and locks: the real ones, or loom's when the ring is model-checked (`--cfg
//! loom`).

#[cfg(not(loom))]
pub use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
};

/// The standard cell with the interface of loom's cell.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Creates a cell with a value.
    pub const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Passes a pointer to the value. A caller that writes through it must have exclusive access.
    #[inline]
    pub fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}

/// Hints to the processor that this is a spin loop.
#[inline]
pub fn relax() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
