//! Tests of an outbox and an inbox at the two ends of a socket.

use std::os::fd::OwnedFd;

use super::*;
use crate::patience::Patience;
use crate::socket::{self, SocketType};

const FOREVER: Waiting = Waiting::Asleep(Patience::Forever);
const NOW: Waiting = Waiting::Asleep(Patience::Now);

/// The ends of a socket, with buffers for `buffers` messages of 100 bytes; `None` where the kernel lacks what is tested.
fn ends(buffers: usize) -> Option<((Outbox, OwnedFd), (Inbox, OwnedFd))> {
    crate::pipe::ignore_sigpipe();
    let (a, b) = socket::unix_pair(SocketType::Seqpacket).unwrap();
    let made = Outbox::new(100).and_then(|outbox| Ok((outbox, Inbox::new(buffers, 100)?)));
    let (mut outbox, mut inbox) = match made {
        Ok(ends) => ends,
        Err(error) => {
            let (why, remedy) = uring::why_missing(&error);
            eprintln!("SKIP io_uring with buffers: {why}; {remedy}");
            return None;
        }
    };
    outbox.message(1)[0] = 255;
    outbox.send(&a, 1, FOREVER).unwrap();
    inbox.arm(b.as_fd()).unwrap();
    match inbox.take() {
        Ok(Arrived::Message { buffer, len: 1 }) => {
            assert_eq!(inbox.bytes(buffer, 1), [255]);
            inbox.give_back(buffer);
            Some(((outbox, a), (inbox, b)))
        }
        Err(Errno::INVAL) => {
            eprintln!("SKIP multishot receives: use Linux 6.0 or later");
            None
        }
        other => panic!("{other:?}"),
    }
}

fn send(outbox: &mut Outbox, socket: &OwnedFd, number: u8, waiting: Waiting) -> Option<usize> {
    let len = 1 + usize::from(number) % 100;
    outbox.message(len).fill(number);
    outbox.send(socket, len, waiting).unwrap()
}

/// The next message, which must have this number.
fn expect(inbox: &mut Inbox, socket: &OwnedFd, number: u8) {
    let arrived = loop {
        match inbox.take() {
            Err(Errno::AGAIN) => inbox.sleep(socket.as_fd(), None).unwrap(),
            done => break done,
        }
    };
    let Ok(Arrived::Message { buffer, len }) = arrived else { panic!("{arrived:?}") };
    assert_eq!(len, 1 + usize::from(number) % 100);
    assert!(inbox.bytes(buffer, len).iter().all(|byte| *byte == number));
    inbox.give_back(buffer);
}

#[test]
fn more_messages_than_buffers_arrive_in_order_and_then_the_end() {
    for buffers in [1, 3, 4, MOST_BUFFERS] {
        let Some(((mut outbox, a), (mut inbox, b))) = ends(buffers) else { return };
        let mut sent = 0;
        let mut taken = 0;
        while taken < 200 {
            while sent < 200 && send(&mut outbox, &a, sent, NOW).is_some() {
                sent += 1;
            }
            expect(&mut inbox, &b, taken);
            taken += 1;
        }
        drop(a);
        while inbox.take() == Err(Errno::AGAIN) {
            inbox.sleep(b.as_fd(), None).unwrap();
        }
        assert!(inbox.arm(b.as_fd()).unwrap());
        assert_eq!(inbox.take(), Ok(Arrived::Nothing), "the end remains");
    }
}

#[test]
fn one_request_receives_everything() {
    let Some(((mut outbox, a), (mut inbox, b))) = ends(8) else { return };
    for number in 0..200 {
        send(&mut outbox, &a, number, FOREVER).unwrap();
        expect(&mut inbox, &b, number);
        assert!(!inbox.arm(b.as_fd()).unwrap(), "the request has ended");
    }
    assert_eq!(inbox.take(), Err(Errno::AGAIN));
}

#[test]
fn a_dropped_inbox_leaves_what_comes_later_in_the_socket() {
    let Some(((mut outbox, a), (inbox, b))) = ends(8) else { return };
    drop(inbox);
    send(&mut outbox, &a, 7, FOREVER).unwrap();
    let mut message = [0; 100];
    assert_eq!(socket::recv(&b, &mut message, true), Ok(8));
    assert_eq!(message[..8], [7; 8]);
    drop(b);
    assert_eq!(outbox.send(&a, 1, FOREVER), Err(Errno::PIPE));
}

/// The kernel ends the request when the thread that made it ends.
#[test]
fn a_message_is_received_in_another_thread_than_before() {
    let Some(((mut outbox, a), (inbox, b))) = ends(8) else { return };
    let (mut inbox, b) = std::thread::spawn(move || {
        let (mut inbox, b) = (inbox, b);
        inbox.arm(b.as_fd()).unwrap();
        (inbox, b)
    })
    .join()
    .unwrap();
    send(&mut outbox, &a, 9, FOREVER).unwrap();
    expect(&mut inbox, &b, 9);
}

#[test]
fn a_full_socket_takes_nothing() {
    let Some(((mut outbox, a), (_inbox, b))) = ends(1) else { return };
    let over = Waiting::Asleep(Patience::Until(Instant::now()));
    // What the socket and the only buffer hold.
    while send(&mut outbox, &a, 99, NOW).is_some() {}
    assert_eq!(outbox.send(&a, 100, over), Ok(None));
    drop(b);
}
