//! Tests TIPC's groups: how members meet, send to each other, and leave.

use std::time::{Duration, Instant};

use crossway_tipc_client::{
    Address, Errno, Event, Group, Message, Patience, Socket, SocketKind, SocketOption,
};

use crate::site::{Site, soon};

const GROUP: u32 = 4000;
const LOOPBACK: u32 = 1;
const EVENTS: u32 = 2;

fn member(site: &Site, instance: u32, flags: u32) -> Socket {
    let socket = site.socket(SocketKind::Rdm);
    socket.join_by_request([GROUP, instance, 2, flags]).unwrap();
    socket
}

fn next(socket: &Socket, buf: &mut [u8]) -> Message {
    socket.recv_message(buf, soon()).unwrap()
}

#[test]
fn members_meet_send_in_four_ways_and_part() {
    let site = Site::lone();
    let mut buf = [0; 16];
    let one = member(&site, 1, EVENTS);
    // There is no other member yet.
    let own = one.local_address().unwrap();
    for to in [None, Some(Address::service(GROUP, 1)), Some(own.into())] {
        assert_eq!(one.send(b"x", to, Patience::Forever), Err(Errno::HOSTUNREACH));
    }
    let two = member(&site, 2, EVENTS);
    for (socket, other, instance) in [(&one, &two, 2), (&two, &one, 1)] {
        let news = next(socket, &mut buf);
        assert_eq!((news.event, news.len, news.member), (Event::MemberUp, 0, Some(instance)));
        assert_eq!(news.from, other.local_address().unwrap());
        assert_eq!(socket.option(SocketOption::GroupJoin), Ok(GROUP));
    }
    // To all members, to an instance, to one member.
    let second = two.local_address().unwrap();
    for to in [None, Some(Address::service(GROUP, 2)), Some(second.into())] {
        one.send(b"hello", to, Patience::Forever).unwrap();
        let got = next(&two, &mut buf);
        assert_eq!((got.event, &buf[..got.len], got.member), (Event::Data, &b"hello"[..], Some(1)));
    }
    let three = member(&site, 3, LOOPBACK);
    for socket in [&one, &two] {
        assert_eq!(next(socket, &mut buf).event, Event::MemberUp);
    }
    three.send(b"echo", None, Patience::Forever).unwrap();
    for socket in [&one, &two, &three] {
        let got = next(socket, &mut buf);
        assert_eq!((&buf[..got.len], got.member), (&b"echo"[..], Some(3)));
    }
    assert_eq!(one.join(Group::new(GROUP, 1)), Err(Errno::ACCESS), "a member already");
    two.leave().unwrap();
    assert_eq!(two.leave(), Err(Errno::INVAL));
    let news = next(&one, &mut buf);
    assert_eq!((news.event, news.member, news.from), (Event::MemberDown, Some(2), second));
    let to_two = [Some(Address::service(GROUP, 2)), Some(second.into())];
    for to in to_two {
        assert_eq!(one.send(b"x", to, Patience::Forever), Err(Errno::HOSTUNREACH));
    }
    assert_eq!(one.send(b"three", None, Patience::Forever), Ok(5), "the third is still there");
    let got = next(&three, &mut buf);
    assert_eq!((&buf[..got.len], got.member), (&b"three"[..], Some(1)));
    drop(three);
    assert_eq!(next(&one, &mut buf).event, Event::MemberDown);
    assert_eq!(one.send(b"x", None, Patience::Forever), Err(Errno::HOSTUNREACH));
    let fresh = site.socket(SocketKind::Rdm);
    assert_eq!(fresh.join(Group::new(63, 1)), Err(Errno::ACCESS), "a reserved type");
    assert_eq!(fresh.join_by_request([GROUP, 1, 4, 0]), Err(Errno::INVAL), "no such scope");
    assert_eq!(fresh.option(SocketOption::GroupJoin), Ok(0));
}

#[test]
fn a_member_that_does_not_read_blocks_its_sender_and_loses_nothing() {
    let site = Site::lone();
    let (slow, sender) = (member(&site, 1, 0), member(&site, 2, EVENTS));
    let mut buf = vec![0; 10_000];
    assert_eq!(next(&sender, &mut buf).event, Event::MemberUp);
    let message = |n: u32| {
        let mut bytes = n.to_ne_bytes().to_vec();
        bytes.resize(8_000, 7);
        bytes
    };
    let (mut sent, mut refusals) = (0, 0);
    let brief = || Patience::Until(Instant::now() + Duration::from_millis(20));
    // The window is full only if an answer of the tipcd, which follows everything sent before, makes no
    // difference.
    while refusals < 3 {
        match sender.send(&message(sent), None, brief()) {
            Ok(_) => (sent, refusals) = (sent + 1, 0),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                sender.local_address().unwrap();
                refusals += 1;
            }
        }
        assert!(sent < 5_000, "the window does not fill up");
    }
    assert!(sent > 5, "{sent}");
    for n in 0..sent {
        assert_eq!(slow.recv(&mut buf, soon()), Ok(8_000));
        assert_eq!(buf[..4], n.to_ne_bytes());
    }
    sender.send(&message(sent), None, soon()).unwrap();
    assert_eq!(slow.recv(&mut buf, soon()), Ok(8_000));
}

#[test]
fn calls_that_fail_for_a_member() {
    let site = Site::lone();
    let one = site.socket(SocketKind::Rdm);
    let server = site.socket(SocketKind::Rdm);
    let outside = crossway_tipc_client::ServiceRange::single(1201, 2);
    server.bind(outside, crossway_tipc_client::Scope::Cluster).unwrap();
    let to = Some(Address::service(1201, 2));
    one.send(b"x", to, Patience::Forever).unwrap();
    one.join(Group { member_events: true, ..Group::new(GROUP, 1) }).unwrap();
    // To the member, its destinations are the instances of its group.
    assert_eq!(one.send(b"x", to, Patience::Forever), Err(Errno::HOSTUNREACH));
    let two = member(&site, 2, 0);
    assert_eq!(next(&one, &mut [0; 4]).event, Event::MemberUp);
    let by_instance = Some(Address::service(1202, 2));
    one.send(b"two", by_instance, Patience::Forever).unwrap();
    assert_eq!(two.recv(&mut [0; 4], soon()), Ok(3));
    one.leave().unwrap();
    assert_eq!(one.send(b"x", by_instance, Patience::Forever), Err(Errno::HOSTUNREACH));
    one.join(Group::new(GROUP, 1)).unwrap();
    assert_eq!(one.send(&[0; 66_001], None, Patience::Now), Err(Errno::MSGSIZE));
    let range = crossway_tipc_client::ServiceRange::single(1200, 1);
    assert_eq!(one.bind(range, crossway_tipc_client::Scope::Node), Err(Errno::ACCESS));
    assert_eq!(one.connect(Some(range.into()), Patience::Now), Err(Errno::INVAL));
}
