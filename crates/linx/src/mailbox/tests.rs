//! Order, filters, pending requests and bounds of a mailbox.

use super::*;
use crate::signal::{ATTACH, TIMEOUT};

fn spid(n: u32) -> Spid {
    Spid::new(n).unwrap()
}

fn sent(number: u32, from: u32) -> Signal {
    Signal::received(number.to_ne_bytes().to_vec(), spid(from), false)
}

fn numbers(mailbox: &mut Mailbox, filter: &Filter<'_>) -> Vec<u32> {
    std::iter::from_fn(|| mailbox.take(filter)).map(|s| s.number()).collect()
}

#[test]
fn the_first_match_in_order_of_arrival_is_taken_and_the_others_stay() {
    let mut mailbox = Mailbox::new(Queue::default());
    for (number, from) in [(1, 9), (2, 8), (3, 9), (2, 9), (1, 8)] {
        mailbox.arrive(sent(number, from));
    }
    assert_eq!(mailbox.take(&Filter::only(&[3, 2])).unwrap().number(), 2);
    let from_nine = Filter::ANY.from(spid(9));
    assert_eq!(mailbox.take(&Filter::except(&[1]).from(spid(9))).unwrap().number(), 3);
    assert_eq!(numbers(&mut mailbox, &from_nine), [1, 2]);
    assert!(numbers(&mut mailbox, &Filter::except(&[1])).is_empty());
    assert_eq!(numbers(&mut mailbox, &Filter::ANY), [1]);
    assert_eq!((mailbox.len(), mailbox.bytes()), (0, 0));
}

#[test]
fn out_of_band_signals_pass_the_others_but_not_each_other() {
    let mut mailbox = Mailbox::new(Queue::default());
    for (number, out_of_band) in [(1, false), (2, true), (3, false), (4, true)] {
        let bytes = u32::to_ne_bytes(number).to_vec();
        mailbox.arrive(Signal::received(bytes, spid(1), out_of_band));
    }
    assert_eq!(numbers(&mut mailbox, &Filter::ANY), [2, 4, 1, 3]);
}

#[test]
fn an_attach_is_answered_once_and_never_after_the_detach() {
    let mut mailbox = Mailbox::new(Queue::default());
    let attach = |m: &mut Mailbox| m.attach(Signal::bare(ATTACH));
    let told = attach(&mut mailbox);
    mailbox.gone(told, spid(5));
    mailbox.gone(told, spid(5));
    let signal = mailbox.take(&Filter::ANY).unwrap();
    assert_eq!((signal.number(), signal.sender()), (ATTACH, Some(spid(5))));
    assert!(mailbox.take(&Filter::ANY).is_none());
    assert!(matches!(mailbox.cancel(told, RequestKind::Attach), Err(Error::NotPending)));

    let queued = attach(&mut mailbox);
    mailbox.gone(queued, spid(6));
    assert!(!mailbox.cancel(queued, RequestKind::Attach).unwrap());
    assert!(mailbox.take(&Filter::ANY).is_none(), "though it was queued");

    let pending = attach(&mut mailbox);
    assert!(mailbox.cancel(pending, RequestKind::Attach).unwrap());
    mailbox.gone(pending, spid(7));
    assert!(mailbox.take(&Filter::ANY).is_none());
    assert!(matches!(mailbox.cancel(pending, RequestKind::Hunt), Err(Error::NotPending)));
}

#[test]
fn timeouts_come_in_order_and_can_be_changed_and_cancelled() {
    let mut mailbox = Mailbox::new(Queue::default());
    let own = spid(1);
    let mut at = |ns| mailbox.timeout(ns, Signal::bare(TIMEOUT));
    let (a, b, c) = (at(10), at(20), at(30));
    assert_eq!(mailbox.next_timeout_ns(), Some(10));
    mailbox.change_timeout(a, 40).unwrap();
    assert!(mailbox.cancel(b, RequestKind::Timeout).unwrap());
    mailbox.expire(35, own);
    assert_eq!(mailbox.take(&Filter::ANY).unwrap().sender(), Some(own));
    assert!(mailbox.take(&Filter::ANY).is_none());
    assert!(mailbox.change_timeout(c, 50).is_err(), "it is over");
    mailbox.expire(40, own);
    assert!(!mailbox.cancel(a, RequestKind::Timeout).unwrap(), "it was queued");
    assert_eq!((mailbox.len(), mailbox.pending(RequestKind::Timeout)), (0, 0));
}

#[test]
fn a_full_queue_does_what_its_policy_says() {
    for (when_full, kept, dropped) in [
        (WhenFull::Block, vec![1, 2, 3], 0),
        (WhenFull::DropNewest, vec![1, 2], 1),
        (WhenFull::DropOldest, vec![2, 3], 1),
    ] {
        let mut mailbox = Mailbox::new(Queue { signals: 2, bytes: 1000, when_full });
        for number in 1..=3 {
            assert_eq!(mailbox.is_full(), when_full == WhenFull::Block && number == 3);
            mailbox.arrive(sent(number, 4));
        }
        assert_eq!(mailbox.dropped, dropped);
        assert_eq!(numbers(&mut mailbox, &Filter::ANY), kept);
    }
}
