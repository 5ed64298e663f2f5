//! Tests that a checker accepts the messages of its source and rejects all others.

use super::*;

const SIZES: [usize; 14] = [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100, 4096, 4099];

fn message(source: &mut Source, access: Access) -> Vec<u8> {
    match access {
        Access::Copy => source.next_message().to_vec(),
        Access::InPlace => {
            let mut message = vec![0xee; source.size()];
            write_in_place(&mut message, source.next_sequence());
            message
        }
    }
}

#[test]
fn what_a_source_makes_its_checker_accepts_over_several_rounds() {
    for access in [Access::Copy, Access::InPlace] {
        for size in SIZES {
            let mut source = Source::new(size, 3, 77, 1000);
            let mut checker = Checker::new(size, access, 3, 77);
            for _ in 0..300 {
                assert_eq!(checker.check(&message(&mut source, access)), Seen::Message);
            }
            let bad = checker.corrupt + checker.out_of_order + checker.missing;
            assert_eq!((checker.messages, bad), (300, 0), "{access:?} {size}");
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for access in [Access::Copy, Access::InPlace] {
        for size in [1, 9, 16, 65, 200] {
            let mut source = Source::new(size, 0, 5, 1000);
            let mut good = Checker::new(size, access, 0, 5);
            let clean = message(&mut source, access);
            for bit in 0..size * 8 {
                let mut bad = clean.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let mut checker = good;
                checker.check(&bad);
                let noticed = checker.corrupt + checker.out_of_order + checker.missing;
                assert!(noticed > 0, "{access:?} size {size} bit {bit}");
            }
            good.check(&clean);
            assert_eq!(good.corrupt, 0);
        }
    }
}

#[test]
fn cut_lost_repeated_and_swapped_messages_are_distinguished() {
    let mut source = Source::new(64, 0, 5, 1000);
    let messages: Vec<_> = (0..6).map(|_| source.next_message().to_vec()).collect();
    let account = |order: &[usize]| {
        let mut checker = Checker::new(64, Access::Copy, 0, 5);
        order.iter().for_each(|&i| {
            checker.check(&messages[i]);
        });
        (checker.messages, checker.missing, checker.out_of_order, checker.corrupt)
    };
    assert_eq!(account(&[0, 1, 2]), (3, 0, 0, 0));
    assert_eq!(account(&[0, 2, 3]), (3, 1, 0, 0));
    assert_eq!(account(&[0, 1, 1]), (3, 0, 1, 0));
    assert_eq!(account(&[0, 2, 1]), (3, 1, 1, 0));
    let mut checker = Checker::new(64, Access::Copy, 0, 5);
    checker.check(&messages[0][..56]);
    assert_eq!((checker.messages, checker.corrupt), (1, 1));
}

#[test]
fn an_end_mark_is_no_message() {
    let mut source = Source::new(16, 0, 5, 1000);
    assert_eq!(source.end_message().len(), 16);
    let mut checker = Checker::new(16, Access::Copy, 0, 5);
    checker.check(source.next_message());
    assert_eq!(checker.check(source.end_message()), Seen::End);
    assert_eq!(checker.messages, 1);
    assert_eq!(sender_of(source.end_message()), None);
}

#[test]
fn one_source_feeds_several_streams_in_order() {
    let mut source = Source::new(64, 0, 5, 1000).without_lead();
    let mut streams = [(0, Checker::new(64, Access::Copy, 0, 5)); 3];
    for _ in 0..100 {
        for (sequence, checker) in &mut streams {
            source.swap_sequence(sequence);
            checker.check(source.next_message());
            source.swap_sequence(sequence);
        }
    }
    for (_, checker) in streams {
        let bad = checker.corrupt + checker.out_of_order + checker.missing;
        assert_eq!((checker.messages, bad), (100, 0));
    }
}

#[test]
fn messages_rotate_over_the_working_set() {
    let mut source = Source::new(64, 0, 5, 4096);
    let first = source.next_message().as_ptr() as usize;
    let others: Vec<_> = (1..64).map(|_| source.next_message().as_ptr() as usize).collect();
    assert!(others.iter().all(|&p| p != first));
    assert_eq!(source.next_message().as_ptr() as usize, first);
}
