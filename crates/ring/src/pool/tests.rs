//! Tests of pools: both ends are in this process.

use super::*;

const HALF: usize = 64 * UNIT;

fn ends() -> (Pool, Pool) {
    let memory = create("crossway-test", HALF).unwrap();
    (Pool::map(&memory, HALF, true).unwrap(), Pool::map(&memory, HALF, false).unwrap())
}

/// Passes a block from one end to the other.
fn pass(block: Block, to: &Pool) -> Block {
    let place = Reference::decode(block.reference().encode());
    let taken = to.accept(place).unwrap();
    block.lend();
    taken
}

#[test]
fn a_block_is_read_where_it_was_written_and_comes_back_by_either_way() {
    let (a, b) = ends();
    let mut block = a.alloc(1000).unwrap();
    assert_eq!(block.len(), 2 * UNIT);
    block[..5].copy_from_slice(b"hello");
    let mut there = pass(block, &b);
    assert_eq!((&there[..5], a.free_bytes()), (&b"hello"[..], HALF - 2 * UNIT));
    there[..5].copy_from_slice(b"reply");
    let back = pass(there, &a);
    assert_eq!((&back[..5], a.free_bytes()), (&b"reply"[..], HALF - 2 * UNIT));
    drop(back);
    assert_eq!(a.free_bytes(), HALF);
    drop(pass(a.alloc(1).unwrap(), &b));
    assert_eq!((a.free_bytes(), b.free_bytes()), (HALF, HALF));
}

#[test]
fn an_exhausted_half_is_whole_again_after_all_blocks_were_dropped_in_any_order() {
    let (a, b) = ends();
    for round in 0..7 {
        let lens = (0..).map(|n| (n * 7 + round) % 5 * UNIT + 1);
        let mut held: Vec<Block> = lens.map_while(|len| a.alloc(len)).collect();
        assert!(held.len() > 10);
        held = held.into_iter().map(|block| pass(block, &b)).collect();
        assert!(a.free_bytes() < 5 * UNIT && b.free_bytes() == HALF);
        while !held.is_empty() {
            let at = (3 * held.len() + 5 * round) / 4 % held.len();
            drop(held.swap_remove(at));
        }
        assert_eq!(a.alloc(HALF).unwrap().len(), HALF);
    }
    assert!(a.alloc(HALF + 1).is_none() && a.alloc(usize::MAX).is_none());
}

#[test]
fn blocks_survive_the_other_end() {
    let (a, b) = ends();
    let mut block = a.alloc(3).unwrap();
    block[..3].copy_from_slice(b"abc");
    let there = pass(block, &b);
    drop((a, b));
    assert_eq!(&there[..3], b"abc");
}

#[test]
fn references_that_no_correct_peer_passes_are_refused() {
    let (a, b) = ends();
    let half = (HALF / UNIT) as u32;
    let refused = |at, units| a.accept(Reference { at, units }).is_none();
    assert!(refused(half, 0) && refused(2 * half, 1) && refused(2 * half - 1, 2));
    assert!(refused(u32::MAX, u32::MAX) && refused(half - 1, 2), "across the halves");
    let mine = a.alloc(2 * UNIT).unwrap();
    assert!(refused(mine.reference().at, 2), "its own block, which it did not pass");
    let lent = pass(mine, &b);
    let at = lent.reference().at;
    assert!(refused(at, 1) && refused(at + 1, 1), "a part of a block");
    let held = pass(b.alloc(3 * UNIT).unwrap(), &a);
    let at = held.reference().at;
    assert!(refused(at, 3) && refused(at + 2, 1) && refused(at + 1, 1), "overlaps");
    assert!(a.accept(Reference { at: at + 3, units: 1 }).is_some());
    let memory = create("crossway-test", 2 * HALF).unwrap();
    assert!(Pool::map(&memory, HALF, true).is_err(), "another size than agreed");
}
