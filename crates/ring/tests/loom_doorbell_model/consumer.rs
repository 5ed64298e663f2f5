//! Consumers in the models of the bell.

use crossway_ring::RingMemory;
use crossway_ring::doorbell::{self, Bells, Presence};
use crossway_ring::shared_rx::{ReceiverWords, SharedRx, Turn};
use loom::sync::atomic::Ordering;
use loom::thread;

use super::Shared;
use crate::loom_memory::MAX;

/// The consumer was killed.
#[derive(Debug)]
pub(crate) struct Dead;

/// A consumer's end of the socket. The consumer is killed before its step number `fuse`.
struct Socket<'a> {
    shared: &'a Shared,
    steps_left: std::cell::Cell<u32>,
}

impl Socket<'_> {
    fn step(&self) -> Result<(), Dead> {
        let left = self.steps_left.get();
        if left == 0 {
            return Err(Dead);
        }
        self.steps_left.set(left - 1);
        Ok(())
    }
}

impl Bells for Socket<'_> {
    type Error = Dead;

    fn presence(&self) -> Result<Presence, Dead> {
        self.step()?;
        Ok(self.shared.look(|queue| match (queue.bells, queue.ended) {
            (0, true) => Presence::End,
            (0, false) => Presence::Nothing,
            _ => Presence::Bell,
        }))
    }

    fn eat(&self) -> Result<(), Dead> {
        assert!(self.eat_if_there()?, "a bell is there when it is eaten");
        Ok(())
    }

    fn eat_if_there(&self) -> Result<bool, Dead> {
        self.step()?;
        let was_there = self.shared.take_bell();
        if was_there {
            self.shared.bells_consumed().fetch_add(1, Ordering::Relaxed);
        }
        // The consumer may also be killed after removing the bell.
        self.step()?;
        Ok(was_there)
    }

    fn ring_is_empty(&self) -> Result<bool, Dead> {
        self.step()?;
        let head = self.shared.head().load(Ordering::Acquire) as usize;
        Ok(self.shared.header(head % self.shared.capacity()).load(Ordering::Acquire) == 0)
    }
}

/// Wakes a producer that waits for room, unless the consumer is killed first.
fn make_room_known(shared: &Shared, socket: &Socket<'_>) {
    shared.queue(|queue| match socket.step() {
        Ok(()) => queue.room = true,
        Err(Dead) => queue.orphaned = true,
    });
}

/// How a consumer waits.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Waits {
    /// The consumer does not wait.
    Never,
    /// By polling.
    Polls,
    /// By receiving the bell; it announces that it takes this number of bytes.
    Receives(usize),
    /// By receiving the bell, for a message of any length, after it has spun.
    Spins,
    /// By receiving the bell, but the first time it stops waiting before a bell has come, and from then on it polls.
    GivesUp,
}

/// How a consumer was woken.
#[derive(Clone, Copy, PartialEq)]
enum Woken {
    Not,
    /// The consumer has received a bell for which it had waited.
    ByBell,
    /// The consumer has stopped waiting without having received a bell.
    WithoutBell,
}

/// A program's receiving call: returns one message, or `None` at the end.
pub(crate) fn receive(shared: &Shared, waits: Waits, fuse: u32) -> Result<Option<u64>, Dead> {
    let rx = SharedRx::new(shared.clone(), shared.clone());
    let socket = Socket { shared, steps_left: std::cell::Cell::new(fuse) };
    let (mut waited, mut polled, mut woken, mut waits) = (false, None, Woken::Not, waits);
    loop {
        let awaits;
        {
            let guard = shared.extra().turn.lock().unwrap();
            let mut turn = rx.turn(guard);
            if shared.look(|queue| std::mem::take(&mut queue.orphaned)) {
                turn.settle(&socket, || make_room_known(shared, &socket))?;
            }
            let outcome = attempt(shared, &mut turn, &socket, (waited, polled), woken, waits);
            if outcome.is_err() {
                shared.look(|queue| queue.orphaned = true);
            }
            awaits = match outcome? {
                Attempt::Took(value) => return Ok(Some(value)),
                Attempt::Ended => return Ok(None),
                Attempt::Nothing => false,
                Attempt::Awaits => true,
            };
            if waited {
                // A consumer that finds nothing tries again only after others have continued.
                thread::yield_now();
            }
            waited = true;
            polled = (!awaits).then(|| turn.bells_consumed());
        }
        if waits == Waits::Never {
            return Ok(None);
        }
        if !awaits {
            woken = Woken::Not;
            shared.poll(|queue| queue.bells > 0 || queue.ended);
            continue;
        }
        socket.step()?;
        if waits == Waits::Spins {
            thread::yield_now();
            if !doorbell::stop_spinning(shared.bell()) {
                woken = Woken::ByBell;
                continue;
            }
        }
        if waits == Waits::GivesUp {
            (woken, waits) = (Woken::WithoutBell, Waits::Polls);
        } else if shared.await_bell() {
            shared.bells_consumed().fetch_add(1, Ordering::Relaxed);
            woken = Woken::ByBell;
        } else {
            woken = Woken::WithoutBell;
        }
        socket.step()?;
        if woken == Woken::WithoutBell && doorbell::withdraw(shared.bell()) {
            woken = Woken::Not;
        }
    }
}

enum Attempt {
    Took(u64),
    Nothing,
    /// There is nothing, and the consumer will wait by receiving a bell.
    Awaits,
    Ended,
}

fn attempt<G>(
    shared: &Shared,
    turn: &mut Turn<'_, Shared, Shared, G>,
    socket: &Socket<'_>,
    (waited, polled): (bool, Option<u32>),
    woken: Woken,
    waits: Waits,
) -> Result<Attempt, Dead> {
    let ate = match woken {
        Woken::Not => false,
        Woken::ByBell => !doorbell::withdraw(shared.bell()),
        Woken::WithoutBell => turn.give_up(socket)?,
    };
    if let Some(front) = turn.front().unwrap() {
        let seen = polled == Some(turn.bells_consumed());
        if !ate && !turn.is_heard(seen, socket)? {
            return Ok(Attempt::Nothing);
        }
        let value = turn.with(&front, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
        turn.take(&front);
        let mut finish = || -> Result<(), Dead> {
            if ate {
                turn.end_wait(socket)?;
            }
            if turn.is_empty() {
                turn.emptied(socket, || make_room_known(shared, socket))?;
            } else {
                turn.wake_producer(|| make_room_known(shared, socket));
            }
            Ok(())
        };
        // The message was taken and is delivered, whether or not its receiver survives.
        finish().unwrap_or_else(|Dead| shared.look(|queue| queue.orphaned = true));
        return Ok(Attempt::Took(value));
    }
    if ate {
        turn.end_wait(socket)?;
    }
    turn.emptied(socket, || make_room_known(shared, socket))?;
    if waited {
        match socket.presence()? {
            Presence::Bell if turn.is_empty() => {
                turn.eat_stray(socket)?;
            }
            Presence::End if turn.is_empty() => return Ok(Attempt::Ended),
            _ => {}
        }
    }
    let takes = match waits {
        Waits::Never | Waits::Polls => return Ok(Attempt::Nothing),
        Waits::Receives(takes) => takes,
        Waits::Spins | Waits::GivesUp => MAX,
    };
    Ok(if turn.await_bell(takes, waits == Waits::Spins) {
        Attempt::Awaits
    } else {
        Attempt::Nothing
    })
}
