//! Tests a group member that does not read. With `tipcd --group-patience`, it does not block other members for ever;
//! without this option, it blocks all of them.

use crossway_tipc_client::{Errno, Event, Group, Patience, Socket, SocketKind};

use crate::site::{Site, soon, until};

const GROUP: u32 = 4500;
const BROADCASTS: u32 = 300;
const BYTES: usize = 20_000;

fn joined(site: &Site, instance: u32) -> Socket {
    let socket = site.socket(SocketKind::Rdm);
    socket.join(Group { member_events: true, ..Group::new(GROUP, instance) }).unwrap();
    socket
}

/// Waits for membership events until this many other members are known.
fn meet(member: &Socket, others: u32) {
    for _ in 0..others {
        let news = member.recv_message(&mut [0; 8], soon()).unwrap();
        assert_eq!(news.event, Event::MemberUp);
    }
}

fn broadcast(n: u32) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[3; BYTES - 4]].concat()
}

#[test]
fn a_member_that_does_not_read_is_left_behind_and_the_others_miss_nothing() {
    let site = Site::with(&["--group-patience", "200"]);
    let (sender, reader, slow) = (joined(&site, 1), joined(&site, 2), joined(&site, 3));
    [&sender, &reader].iter().for_each(|member| meet(member, 2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..BROADCASTS {
                assert_eq!(sender.send(&broadcast(n), None, soon()), Ok(BYTES), "broadcast {n}");
            }
        });
        let mut buf = vec![0; BYTES];
        let mut next = 0;
        while next < BROADCASTS {
            let message = reader.recv_message(&mut buf, soon()).unwrap();
            if message.event == Event::Data {
                assert_eq!((message.len, message.member), (BYTES, Some(1)));
                assert_eq!(buf[..4], next.to_be_bytes());
                next += 1;
            }
        }
    });
    let news = sender.recv_message(&mut [0; 8], soon()).unwrap();
    assert_eq!((news.event, news.member), (Event::MemberDown, Some(3)));
    // It reads at last: it receives the first broadcasts in order and without a gap, then the event that the sender has
    // left.
    meet(&slow, 2);
    let mut buf = vec![0; BYTES];
    let mut next: u32 = 0;
    loop {
        let message = slow.recv_message(&mut buf, soon()).unwrap();
        if message.event == Event::MemberDown {
            assert_eq!(message.member, Some(1));
            break;
        }
        assert_eq!(buf[..4], next.to_be_bytes());
        next += 1;
    }
    assert!(next > 0 && next < BROADCASTS, "{next}");
}

#[test]
fn without_that_it_holds_its_senders_up_until_it_reads_and_nothing_is_lost() {
    let site = Site::lone();
    let (sender, slow) = (joined(&site, 1), joined(&site, 3));
    [&sender, &slow].iter().for_each(|member| meet(member, 1));
    let (mut sent, mut refused) = (0, 0);
    until("the end of its window", || {
        match sender.send(&broadcast(sent), None, Patience::Now) {
            Ok(_) => (sent, refused) = (sent + 1, 0),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                // Messages in the descriptors are sent on in the meantime.
                sender.local_address().unwrap();
                refused += 1;
            }
        }
        assert!(sent < 10_000, "nothing holds it up");
        refused == 3
    });
    let mut buf = vec![0; BYTES];
    let mut next: u32 = 0;
    while next < sent {
        assert_eq!(slow.recv(&mut buf, soon()), Ok(BYTES));
        assert_eq!(buf[..4], next.to_be_bytes());
        next += 1;
    }
    assert_eq!(sender.send(&broadcast(sent), None, soon()), Ok(BYTES));
    assert_eq!(slow.recv(&mut buf, soon()), Ok(BYTES));
}
