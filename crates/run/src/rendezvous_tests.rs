//! Tests of the meeting of two ends.

use std::sync::atomic::AtomicBool;

use super::listeners::listener_word;
use super::*;

fn own() -> u32 {
    std::process::id()
}

const NOTE: Note = Note { network: 4, secret: 5, mailbox: *b"0012a", six: true };

const LIMIT: Duration = Duration::from_secs(60);

fn fresh() -> (tempfile::TempDir, Table) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let words = SharedWords::in_file(&path, WORDS).unwrap();
    (dir, Table { words, user: proc::effective_user(), path })
}

fn ends() -> (SocketAddr, SocketAddr) {
    ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:80".parse().unwrap())
}

fn listener(table: &Table) -> usize {
    table.note_listener(own(), 80, 4);
    let (at, only_own) = table.find_listener(own(), 80).unwrap();
    assert!(only_own);
    at
}

#[test]
fn an_offer_is_claimed_once_by_its_addresses() {
    let (_dir, table) = fresh();
    let at = listener(&table);
    let (connecting, accepting) = ends();
    assert!(!table.expects(80));
    let mut offer = table.announce(at, 80, &NOTE).unwrap();
    assert!(table.expects(80) && !table.expects(81));
    assert!(matches!(table.claim(4, connecting, accepting, LIMIT), Search::Announced));
    assert!(offer.wait(connecting, accepting));
    for (network, one, other) in [
        (3, connecting, accepting),
        (4, accepting, connecting),
        (4, "127.0.0.1:40001".parse().unwrap(), accepting),
        (4, connecting, "127.0.0.2:80".parse().unwrap()),
    ] {
        assert!(matches!(table.claim(network, one, other, LIMIT), Search::None));
    }
    let Search::Found(claim) = table.claim(4, connecting, accepting, LIMIT) else { panic!() };
    assert_eq!(claim.note, NOTE);
    assert!(matches!(table.claim(4, connecting, accepting, LIMIT), Search::None), "claimed");
    assert!(!offer.is_agreed() && claim.agree() && offer.is_agreed());
    assert!(!offer.withdraw());
    drop(offer);
    assert!(!table.expects(80));
}

#[test]
fn who_withdraws_first_decides() {
    let (_dir, table) = fresh();
    let at = listener(&table);
    let (connecting, accepting) = ends();
    let mut offer = table.announce(at, 80, &NOTE).unwrap();
    assert!(offer.wait(connecting, accepting));
    let Search::Found(claim) = table.claim(4, connecting, accepting, LIMIT) else { panic!() };
    assert!(offer.withdraw());
    assert!(!claim.agree());
    // The next use of the slot is another one for the late program.
    let mut next = table.announce(at, 80, &NOTE).unwrap();
    assert!(next.wait(connecting, accepting));
    let Search::Found(_) = table.claim(4, connecting, accepting, LIMIT) else { panic!() };
    assert!(!claim.agree());
}

#[test]
fn a_listener_that_is_slow_or_elsewhere_is_not_waited_for() {
    let (_dir, table) = fresh();
    let at = listener(&table);
    assert!(table.announce(at, 80, &Note { network: 9, ..NOTE }).is_none());
    let offer = table.announce(at, 80, &NOTE).unwrap();
    offer.judge(false);
    assert!(table.announce(at, 80, &NOTE).is_none());
    table.forget_listener(own(), 80);
    assert!(table.find_listener(own(), 80).is_none());
}

#[test]
fn connections_that_live_shortly_are_moved_only_now_and_then() {
    let (_dir, table) = fresh();
    let at = listener(&table);
    let is_open = || table.announce(at, 80, &NOTE).is_some();
    for life_ms in [0, 1, 2, SHORT_LIFE_MS, 0, 1, 2] {
        table.judge_life(at, life_ms);
        assert!(is_open());
    }
    table.judge_life(at, 3);
    assert!(!is_open());
    // After the pause, one is tried; only one that lives longer ends the suspicion.
    table.listener(at, NOT_BEFORE).store(0, Ordering::Relaxed);
    assert!(is_open());
    table.judge_life(at, 0);
    assert!(!is_open());
    table.listener(at, NOT_BEFORE).store(0, Ordering::Relaxed);
    table.judge_life(at, 60_000);
    table.judge_life(at, 0);
    assert!(is_open());
    table.judge_life(LISTENERS, 0);
}

#[test]
fn a_note_of_a_dead_process_and_a_stale_slot_are_replaced() {
    let (_dir, table) = fresh();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = child.id();
    child.wait().unwrap();
    table.words.word(LISTENER_STATES).store(listener_word(80, dead), Ordering::Release);
    table.words.word(LISTENERS_EVER).store(1, Ordering::Release);
    assert!(table.find_listener(own(), 80).is_none());
    let at = listener(&table);
    for slot in 0..SLOTS {
        let offer = table.announce(at, 80, &NOTE).unwrap();
        assert_eq!(offer.slot, slot);
        std::mem::forget(offer);
    }
    assert!(table.announce(at, 80, &NOTE).is_none(), "all slots are in use");
    // As if the program in the slot had announced long ago.
    let old = table.state(7).load(Ordering::Acquire).wrapping_sub((STALE_MS + 1000) << 24);
    table.state(7).store(old, Ordering::Release);
    assert_eq!(table.announce(at, 80, &NOTE).unwrap().slot, 7);
}

#[test]
fn a_claim_never_has_the_note_of_the_next_use_of_the_slot() {
    const CLAIMS: u32 = 100_000;
    let (_dir, table) = fresh();
    let at = listener(&table);
    let (connecting, accepting) = ends();
    let other = SocketAddr::new(connecting.ip(), connecting.port() + 1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Two connections use the slot in turn, and each offer is withdrawn as soon as it is claimed.
        scope.spawn(|| {
            for from in [connecting, other].into_iter().cycle() {
                let note = Note { secret: from.port().into(), ..NOTE };
                let mut offer = table.announce(at, 80, &note).unwrap();
                assert!(offer.wait(from, accepting));
                let is_waiting = || table.state(offer.slot).load(Ordering::Acquire) == offer.mark.0;
                while from == connecting && is_waiting() && !over.load(Ordering::Relaxed) {
                    crossway_sys::spin::hint();
                }
                assert!(offer.withdraw());
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut claims = 0;
        while claims < CLAIMS {
            if let Search::Found(claim) = table.claim(4, connecting, accepting, LIMIT) {
                claims += 1;
                if claim.note.secret != u64::from(connecting.port()) {
                    over.store(true, Ordering::Relaxed);
                    panic!("claim {claims} has the secret {}", claim.note.secret);
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
