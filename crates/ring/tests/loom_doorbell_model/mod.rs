//! The socket that the models of the bell share, beside the memory of the ring.
#![cfg(loom)]

use crossway_ring::doorbell::QUIET;
use crossway_ring::shared_rx::ReceiverWords;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Condvar, Mutex};

use crate::loom_memory::Memory;

/// The socket's queue towards the program, and the counter with which the program asks for room.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) bells: u32,
    pub(crate) ended: bool,
    pub(crate) room: bool,
    /// A consumer was killed in its turn.
    pub(crate) orphaned: bool,
}

/// The words of the receiving end, the socket, and the lock by which consumers take turns.
pub(crate) struct Socket {
    bell: AtomicU32,
    eaten: AtomicU32,
    part: AtomicU64,
    queue: (Mutex<Queue>, Condvar),
    pub(crate) turn: Mutex<()>,
}

pub(crate) type Shared = Memory<Socket>;

impl Shared {
    pub(crate) fn with_socket(capacity: usize) -> Self {
        Memory::new(
            capacity,
            Socket {
                bell: AtomicU32::new(QUIET),
                eaten: AtomicU32::new(0),
                part: AtomicU64::new(0),
                queue: (Mutex::new(Queue::default()), Condvar::new()),
                turn: Mutex::new(()),
            },
        )
    }

    /// Accesses the queue without waking anything.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Queue) -> R) -> R {
        look(&mut self.extra().queue.0.lock().unwrap())
    }

    pub(crate) fn queue<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        let result = change(&mut self.extra().queue.0.lock().unwrap());
        self.extra().queue.1.notify_all();
        result
    }

    /// Sleeps until `until` is true of the queue.
    pub(crate) fn poll(&self, until: impl Fn(&Queue) -> bool) {
        let (lock, condvar) = &self.extra().queue;
        let mut queue = lock.lock().unwrap();
        while !until(&queue) {
            queue = condvar.wait(queue).unwrap();
        }
    }
}

impl ReceiverWords for Shared {
    fn bell(&self) -> &AtomicU32 {
        &self.extra().bell
    }

    fn bells_eaten(&self) -> &AtomicU32 {
        &self.extra().eaten
    }

    fn part(&self) -> &AtomicU64 {
        &self.extra().part
    }
}
