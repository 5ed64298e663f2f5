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

#[cfg(not(loom))]
pub use crossway_sys::spin::{between_quick_looks, hint, hints_in, idle_for, measure_costs};

/// Lets the model's other threads run.
#[cfg(loom)]
pub fn hint() {
    loom::thread::yield_now();
}

#[cfg(loom)]
pub use hint as between_quick_looks;

/// Lets the model's other threads run: the model has no time.
#[cfg(loom)]
pub fn idle_for(_time: std::time::Duration) {
    hint();
}

/// The model has no time.
#[cfg(loom)]
pub fn measure_costs() {}

/// The model has no time, so any number will do.
#[cfg(loom)]
pub fn hints_in(_time: std::time::Duration) -> u32 {
    128
}
