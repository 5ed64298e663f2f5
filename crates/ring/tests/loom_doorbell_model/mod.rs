//! The simulated socket that the threads of a model of the bell share, in addition to the memory of the ring.
#![cfg(loom)]

mod consumer;

use std::convert::Infallible;

use crossway_ring::bell::Silent;
use crossway_ring::doorbell::{self, QUIET};
use crossway_ring::shared_rx::ReceiverWords;
use crossway_ring::{RingTx, SendError, Wait};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Condvar, Mutex};

pub(crate) use consumer::{Waits, receive};

use crate::loom_memory::{MAX, Memory};

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

    /// Removes a bell. Returns whether there was one.
    pub(crate) fn take_bell(&self) -> bool {
        self.queue(|queue| {
            let was_there = queue.bells > 0;
            queue.bells -= u32::from(was_there);
            was_there
        })
    }

    /// Sleeps until a bell is there and removes it. Returns false at the end.
    pub(crate) fn await_bell(&self) -> bool {
        let (lock, condvar) = &self.extra().queue;
        let mut queue = lock.lock().unwrap();
        while queue.bells == 0 {
            if queue.ended {
                return false;
            }
            queue = condvar.wait(queue).unwrap();
        }
        queue.bells -= 1;
        condvar.notify_all();
        true
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

    fn bells_consumed(&self) -> &AtomicU32 {
        &self.extra().eaten
    }

    fn part(&self) -> &AtomicU64 {
        &self.extra().part
    }
}

/// Rings for `count` messages, the first of which starts at `start`; `None` if that is not known.
fn ring(shared: &Shared, tx: &RingTx<Shared, Silent>, start: Option<u64>, count: u64) {
    let Ok(_) = doorbell::announce(
        shared.bell(),
        |takes| count == 1 && takes >= MAX && start.is_some_and(|at| tx.is_freed_up_to(at)),
        || tx.is_freed_up_to(tx.position()),
        || {
            shared.queue(|queue| queue.bells += 1);
            Ok::<_, Infallible>(())
        },
    );
}

/// Plays the part of tipcd: publishes batches of messages and announces each batch once; then ends.
pub(crate) fn produce(shared: &Shared, batches: &[u64]) {
    let mut tx = RingTx::new(shared.clone(), Silent, Wait::Block);
    let mut value = 0;
    for batch in batches {
        let mut start = Some(tx.position());
        for _ in 0..*batch {
            loop {
                match tx.try_send_with(8, |to| to.copy_from_slice(&u64::to_ne_bytes(value))) {
                    Ok(()) => break,
                    Err(SendError::Full) => {
                        ring(shared, &tx, start, *batch);
                        start = None;
                        if !tx.ask_for_room(8).unwrap() {
                            shared.poll(|queue| queue.room);
                        }
                        shared.look(|queue| queue.room = false);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            value += 1;
        }
        ring(shared, &tx, start, *batch);
    }
}
