//! Tests of the ring mechanisms within one process: all lengths, wrap-around, full and empty rings, in-place
//! access, corruption.

use std::time::{Duration, Instant};

use crossway_mech::mechanisms::posix_shm::PosixShm;
use crossway_mech::mechanisms::shm_eventfd::ShmEventfd;
use crossway_mech::mechanisms::shm_futex::{ShmFutex, ShmHuge, ShmSecret};
use crossway_mech::mechanisms::shm_pipe::ShmPipe;
use crossway_mech::mechanisms::shm_spin::ShmSpin;
use crossway_mech::mechanisms::shm_waitv::ShmWaitv;
use crossway_mech::mechanisms::sysv_shm::SysvShm;
use crossway_mech::{
    Listener, Mechanism, OpenError, Probe, RecvError, Rx, SendError, Spec, Tx, Wait,
};

type End<M> = (<M as Mechanism>::Tx, <M as Mechanism>::Rx);

const WATCHDOG: Duration = Duration::from_secs(120);

fn watchdog() -> Option<Instant> {
    Some(Instant::now() + WATCHDOG)
}

fn pair<M: Mechanism>(spec: &Spec) -> (End<M>, End<M>) {
    let (mut listener, mut offer) = M::listen(spec).unwrap();
    let ours = listener.accept(watchdog()).unwrap();
    (ours, M::connect(spec, &mut offer).unwrap())
}

fn spec(wait: Wait, max_message: usize) -> Spec {
    Spec { max_message, wait, capacity_bytes: Some(0), ..Spec::default() }
}

/// Returns content that differs from message to message and from byte to byte.
fn content(nth: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (nth * 31 + i * 7 + (i >> 8)) as u8).collect()
}

fn each_length_arrives_whole<M: Mechanism>(wait: Wait) {
    let lengths = [0, 1, 7, 8, 9, 55, 56, 57, 63, 64, 65, 500, 511, 512, 513, 1000, 4095, 4096];
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<M>(&spec(wait, 4096));
    let receiver = std::thread::spawn(move || {
        let mut buf = vec![0; 4096];
        for nth in 0..20_000 {
            let len = rx.recv(&mut buf, watchdog()).unwrap();
            assert_eq!(
                &buf[..len],
                content(nth, lengths[nth * 13 % lengths.len()]),
                "message {nth}"
            );
        }
        assert!(matches!(rx.recv(&mut buf, watchdog()), Err(RecvError::PeerClosed)));
    });
    for nth in 0..20_000 {
        tx.send(&content(nth, lengths[nth * 13 % lengths.len()]), watchdog()).unwrap();
    }
    drop(tx);
    receiver.join().unwrap();
}

fn fill_and_drain<M: Mechanism>(wait: Wait) {
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<M>(&spec(wait, 300));
    let mut buf = vec![0; 300];
    // Rounds of different lengths, so that the end of the ring is reached at every offset. A pipe frees space
    // by whole pages of tickets, and empty messages take nothing but tickets.
    let first = usize::from(M::ID == ShmPipe::ID);
    // A ring of a huge page takes thousands of messages a round.
    let step = if tx.facts()["ring_bytes"] > 1 << 20 { 37 } else { 1 };
    for round in (first..300).step_by(step) {
        let mut sent = 0;
        loop {
            match tx.try_send(&content(sent, round)) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(e) => panic!("{e}"),
            }
        }
        assert!(sent > 0);
        // Taking one message makes room for one of the same length.
        for nth in 0..2 * sent {
            let len = rx.try_recv(&mut buf).unwrap();
            assert_eq!(&buf[..len], content(nth, round));
            if nth < sent {
                tx.try_send(&content(sent + nth, round)).unwrap();
            }
        }
        assert!(matches!(rx.try_recv(&mut buf), Err(RecvError::Empty)));
    }
}

fn largest_always_fits_an_empty_ring<M: Mechanism>(wait: Wait) {
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<M>(&spec(wait, 1000));
    let mut buf = vec![0; 1000];
    for shift in 0..400 {
        tx.try_send(&content(shift, shift % 97)).unwrap();
        rx.try_recv(&mut buf).unwrap();
        tx.try_send(&content(shift, 1000)).unwrap();
        assert_eq!(rx.try_recv(&mut buf).unwrap(), 1000);
        assert_eq!(buf, content(shift, 1000));
    }
    assert!(matches!(tx.try_send(&[0; 1001]), Err(SendError::TooLarge { len: 1001, max: 1000 })));
}

fn in_place_both_ways<M: Mechanism>(wait: Wait) {
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<M>(&spec(wait, 256));
    for nth in 0..1000 {
        let len = nth % 257;
        tx.send_in_place(len, &mut [], watchdog(), |to| to.copy_from_slice(&content(nth, len)))
            .unwrap();
        rx.recv_in_place(&mut [], watchdog(), |from| assert_eq!(from, content(nth, len))).unwrap();
    }
}

fn a_small_buffer_leaves_the_message<M: Mechanism>(wait: Wait) {
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<M>(&spec(wait, 64));
    tx.send(b"twelve bytes", watchdog()).unwrap();
    let refused = rx.recv(&mut [0; 11], watchdog());
    assert!(matches!(refused, Err(RecvError::TooSmall { need: 12, have: 11 })));
    let mut buf = [0; 12];
    assert_eq!(rx.recv(&mut buf, watchdog()).unwrap(), 12);
    assert_eq!(&buf, b"twelve bytes");
}

fn deadlines_are_kept<M: Mechanism>(wait: Wait) {
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<M>(&spec(wait, 64));
    let until = Instant::now() + Duration::from_millis(20);
    assert!(matches!(rx.recv(&mut [0; 64], Some(until)), Err(RecvError::TimedOut)));
    assert!(Instant::now() >= until);
    while tx.try_send(&[1; 64]).is_ok() {}
    let until = Instant::now() + Duration::from_millis(20);
    assert!(matches!(tx.send(&[1; 64], Some(until)), Err(SendError::TimedOut)));
    assert!(Instant::now() >= until);
    // A refused message leaves no trace.
    rx.recv(&mut [0; 64], watchdog()).unwrap();
    tx.send(&[2; 64], watchdog()).unwrap();
}

fn a_closed_end_is_reported_after_the_last_message<M: Mechanism>(wait: Wait) {
    let ((mut tx, rx), (mut other_tx, mut other_rx)) = pair::<M>(&spec(wait, 64));
    tx.send(b"last words", watchdog()).unwrap();
    drop((tx, rx));
    let mut buf = [0; 64];
    assert_eq!(other_rx.recv(&mut buf, watchdog()).unwrap(), 10);
    assert!(matches!(other_rx.recv(&mut buf, watchdog()), Err(RecvError::PeerClosed)));
    assert!(matches!(other_rx.try_recv(&mut buf), Err(RecvError::PeerClosed)));
    assert!(matches!(other_tx.send(b"anyone?", watchdog()), Err(SendError::PeerClosed)));
}

fn one_half_may_close_alone<M: Mechanism>(wait: Wait) {
    let ((mut tx, rx), (other_tx, mut other_rx)) = pair::<M>(&spec(wait, 64));
    drop(rx);
    drop(other_tx);
    tx.send(b"still here", watchdog()).unwrap();
    assert_eq!(other_rx.recv(&mut [0; 64], watchdog()).unwrap(), 10);
    drop(tx);
    assert!(matches!(other_rx.recv(&mut [0; 64], watchdog()), Err(RecvError::PeerClosed)));
}

fn waiting_ends_notice_the_close<M: Mechanism>(wait: Wait) {
    let ((mut tx, rx), (other_tx, mut other_rx)) = pair::<M>(&spec(wait, 64));
    let receiver = std::thread::spawn(move || other_rx.recv(&mut [0; 64], watchdog()));
    while tx.try_send(&[0; 64]).is_ok() {}
    drop(receiver.join().unwrap());
    let sender = std::thread::spawn(move || {
        loop {
            if let Err(e) = tx.send(&[0; 64], watchdog()) {
                return e;
            }
        }
    });
    drop((rx, other_tx));
    assert!(matches!(sender.join().unwrap(), SendError::PeerClosed));
}

/// Whether the mechanism works here; says why not. Plain rings always do.
fn is_here<M: Mechanism>() -> bool {
    let special = [ShmHuge::ID, ShmSecret::ID, ShmWaitv::ID].contains(&M::ID);
    match special.then(M::probe) {
        Some(Probe::Missing(missing)) => {
            eprintln!("SKIP {}: {missing}", M::ID);
            false
        }
        _ => true,
    }
}

/// Runs a test of a mechanism that works here.
fn run<M: Mechanism>(test: fn(Wait), wait: Wait) {
    if is_here::<M>() {
        test(wait);
    }
}

/// Instantiates the tests for a mechanism and a way of waiting.
macro_rules! rings {
    ($($name:ident: $mechanism:ty, $wait:expr;)*) => {$(
        mod $name {
            use super::*;
            #[test] fn each_length_arrives_whole() { run::<$mechanism>(super::each_length_arrives_whole::<$mechanism>, $wait) }
            #[test] fn fill_and_drain() { run::<$mechanism>(super::fill_and_drain::<$mechanism>, $wait) }
            #[test] fn largest_always_fits() { run::<$mechanism>(super::largest_always_fits_an_empty_ring::<$mechanism>, $wait) }
            #[test] fn in_place_both_ways() { run::<$mechanism>(super::in_place_both_ways::<$mechanism>, $wait) }
            #[test] fn small_buffer() { run::<$mechanism>(super::a_small_buffer_leaves_the_message::<$mechanism>, $wait) }
            #[test] fn deadlines_are_kept() { run::<$mechanism>(super::deadlines_are_kept::<$mechanism>, $wait) }
            #[test] fn closed_end() { run::<$mechanism>(super::a_closed_end_is_reported_after_the_last_message::<$mechanism>, $wait) }
            #[test] fn one_half_closes() { run::<$mechanism>(super::one_half_may_close_alone::<$mechanism>, $wait) }
            #[test] fn waiting_ends() { run::<$mechanism>(super::waiting_ends_notice_the_close::<$mechanism>, $wait) }
        }
    )*};
}

rings! {
    futex_block: ShmFutex, Wait::Block;
    futex_hybrid: ShmFutex, Wait::Hybrid { spin_us: 20 };
    spin: ShmSpin, Wait::Spin;
    pipe_block: ShmPipe, Wait::Block;
    pipe_spin: ShmPipe, Wait::Spin;
    sysv_block: SysvShm, Wait::Block;
    posix_block: PosixShm, Wait::Block;
    eventfd_block: ShmEventfd, Wait::Block;
    huge_block: ShmHuge, Wait::Block;
    secret_block: ShmSecret, Wait::Block;
    secret_hybrid: ShmSecret, Wait::Hybrid { spin_us: 20 };
    waitv_block: ShmWaitv, Wait::Block;
    waitv_hybrid: ShmWaitv, Wait::Hybrid { spin_us: 20 };
    eventfd_hybrid: ShmEventfd, Wait::Hybrid { spin_us: 20 };
}

#[test]
fn a_wait_that_the_mechanism_lacks_is_refused() {
    assert!(matches!(ShmSpin::listen(&Spec::default()), Err(OpenError::Unsupported { .. })));
}

#[test]
fn ends_with_different_specs_do_not_meet() {
    let (_listener, mut offer) = ShmFutex::listen(&Spec::default()).unwrap();
    let other = Spec { max_message: 1 << 20, ..Spec::default() };
    assert!(matches!(ShmFutex::connect(&other, &mut offer), Err(OpenError::BadOffer { .. })));
}

#[test]
fn huge_pages_that_are_missing_are_counted() {
    let Some(pages) = crossway_sys::shm_kinds::huge_pages() else {
        return eprintln!("SKIP huge pages: the kernel has none");
    };
    // Two rings of 256 MiB.
    let spec = Spec { capacity_bytes: Some(256 << 20), fault_in: false, ..Spec::default() };
    match ShmHuge::listen(&spec) {
        Err(OpenError::Unsupported { why, .. }) => {
            assert!(why.contains("run as root: sysctl -w vm.nr_hugepages="), "{why}");
        }
        Err(OpenError::Os(error)) => assert!(error.call.contains("HUGETLB"), "{error}"),
        Err(error) => panic!("{error}"),
        Ok(_) => assert!(pages.free > 0, "mapped although none is free"),
    }
}

#[test]
fn one_wake_up_serves_a_batch() {
    let ((mut tx, _rx), (_tx, mut rx)) = pair::<ShmFutex>(&spec(Wait::Block, 64));
    let receiver = std::thread::spawn(move || {
        let mut buf = [0; 64];
        for _ in 0..50_000 {
            rx.recv(&mut buf, watchdog()).unwrap();
        }
        rx
    });
    for _ in 0..50_000 {
        tx.send(&[0; 64], watchdog()).unwrap();
    }
    let rx = receiver.join().unwrap();
    let (sent, received) = (tx.facts(), rx.facts());
    assert!(sent["ring_wakes"] <= received["ring_sleeps"], "{sent:?} {received:?}");
    assert!(received["ring_wakes"] <= sent["ring_sleeps"], "{sent:?} {received:?}");
}
