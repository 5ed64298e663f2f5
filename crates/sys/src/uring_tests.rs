//! Tests of a ring's results and of what a request leaves behind: without waiting, with a deadline, without a limit,
//! and after a cancellation.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::pipe::PipeFlags;

use super::*;

fn ring() -> Option<Ring> {
    match Ring::new() {
        Ok(ring) => Some(ring),
        Err(error) => {
            let (why, remedy) = why_missing(&error);
            eprintln!("SKIP io_uring: {why}; {remedy}");
            None
        }
    }
}

fn nonblocking_pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap()
}

fn soon() -> Patience {
    Patience::Until(Instant::now() + Duration::from_millis(10))
}

const FOREVER: Waiting = Waiting::Asleep(Patience::Forever);
const NOW: Waiting = Waiting::Asleep(Patience::Now);

#[test]
fn an_empty_pipe_gives_nothing_now_or_until_the_deadline_then_what_was_written() {
    let Some(mut ring) = ring() else { return };
    let (r, w) = nonblocking_pipe();
    let mut buf = [0; 8];
    assert_eq!(ring.read(&r, &mut buf, NOW), Ok(None));
    for waiting in [
        Waiting::Asleep(soon()),
        Waiting::Awake(soon()),
        Waiting::AwakeFirst(Duration::from_micros(50), soon()),
    ] {
        assert_eq!(ring.read(&r, &mut buf, waiting), Ok(None));
        assert!(waiting.patience().is_over());
    }
    assert_eq!(ring.write(&w, b"hello", FOREVER), Ok(Some(5)));
    assert_eq!(ring.read(&r, &mut buf, FOREVER), Ok(Some(5)));
    assert_eq!(&buf[..5], b"hello");
    drop(w);
    assert_eq!(ring.read(&r, &mut buf, FOREVER), Ok(Some(0)));
}

#[test]
fn a_later_arrival_ends_both_a_sleeping_and_a_spinning_wait() {
    let Some(mut ring) = ring() else { return };
    let (mut a, b) = UnixStream::pair().unwrap();
    for waiting in [
        FOREVER,
        Waiting::Awake(Patience::Forever),
        Waiting::AwakeFirst(Duration::from_micros(50), Patience::Forever),
    ] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                std::io::Write::write_all(&mut a, b"abc").unwrap();
            });
            let mut buf = [0; 3];
            assert_eq!(ring.recv(&b, &mut buf, waiting), Ok(Some(3)));
            assert_eq!(&buf, b"abc");
        });
    }
}

#[test]
fn a_full_socket_takes_nothing_and_a_partial_send_is_reported() {
    let Some(mut ring) = ring() else { return };
    let (a, b) = UnixStream::pair().unwrap();
    let large = vec![7; 4 << 20];
    let sent = ring.send(&a, &large, Waiting::Asleep(soon())).unwrap().unwrap();
    assert!(sent < large.len());
    assert_eq!(ring.send(&a, b"x", NOW), Ok(None));
    assert_eq!(ring.send(&a, b"x", Waiting::Asleep(soon())), Ok(None));
    drop(b);
    assert_eq!(ring.send(&a, b"x", FOREVER), Err(Errno::PIPE));
}

#[test]
fn possible_requests_complete_without_waiting_with_and_without_nowait() {
    let Some(mut ring) = ring() else { return };
    for nowait in [true, false] {
        ring.nowait &= nowait;
        let (r, w) = nonblocking_pipe();
        let mut buf = [0; 8];
        for _ in 0..100 {
            assert_eq!(ring.read(&r, &mut buf, NOW), Ok(None));
            assert_eq!(ring.write(&w, b"hello", NOW), Ok(Some(5)));
            assert_eq!(ring.read(&r, &mut buf, NOW), Ok(Some(5)));
        }
        let page = [1; 4096];
        while ring.write(&w, &page, NOW) == Ok(Some(page.len())) {}
        assert_eq!(ring.write(&w, &page, NOW), Ok(None));
        let mut room = [0; 4096];
        while ring.read(&r, &mut room, NOW) == Ok(Some(room.len())) {}
        drop(w);
        assert_eq!(ring.read(&r, &mut buf, NOW), Ok(Some(0)));
        let (r, w) = nonblocking_pipe();
        drop(r);
        crate::pipe::ignore_sigpipe();
        assert_eq!(ring.write(&w, b"x", NOW), Err(Errno::PIPE));
    }
}

#[test]
fn a_cancelled_read_takes_nothing_that_comes_later() {
    let Some(mut ring) = ring() else { return };
    let (r, w) = nonblocking_pipe();
    let mut buf = [0; 8];
    for _ in 0..100 {
        let now = Patience::Until(Instant::now());
        assert_eq!(ring.read(&r, &mut buf, Waiting::Asleep(now)), Ok(None));
    }
    assert_eq!(rustix::io::write(&w, b"late"), Ok(4));
    assert_eq!(rustix::io::read(&r, &mut buf), Ok(4));
}
