//! Tests of endpoints of different users on one node.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crossway_linx::signal::USER_BASE;
use crossway_linx::{Endpoint, Error, Filter, Node, Settings, Transport};
use rustix::thread::{Uid, set_thread_res_uid};

/// The user id of `nobody`, which owns nothing that these tests use.
const OTHER: u32 = 65_534;
/// Size in bytes of a payload that endpoints of one user pass by reference.
const LARGE: usize = 200_000;

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Changes the user of the calling thread, but not of other threads.
fn become_other_user() -> Result<(), String> {
    set_thread_res_uid(None, Uid::from_raw(OTHER), None).map_err(|why| format!("setresuid: {why}"))
}

/// Runs `run` as another user and `meanwhile` as this one, if this process may change users and the other user may
/// enter the directory.
fn as_other_user(directory: &Path, run: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    let enter = || {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can be another user".to_owned());
        }
        become_other_user()?;
        std::fs::read_dir(directory)
            .map(drop)
            .map_err(|why| format!("{}: {why}", directory.display()))
    };
    if let Err(why) = std::thread::scope(|scope| scope.spawn(enter).join().unwrap()) {
        eprintln!(
            "SKIP endpoints of two users: {why}; run the tests as root, with a TMPDIR that all may enter"
        );
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_other_user().unwrap();
            run();
        });
        meanwhile();
    });
}

fn open(dir: &Path, name: &str) -> Result<Endpoint, Error> {
    Endpoint::open(dir, name)
}

#[test]
fn users_exchange_signals_but_share_no_pool_and_no_names() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::set_permissions(parent.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let dir = parent.path().join("n");
    let settings = Settings { transport: Transport::Shm, mode: 0o777, ..Settings::default() };
    let _node = Node::spawn(&dir, settings).unwrap();
    let mut ours = open(&dir, "ours").unwrap();
    let to = ours.spid();
    let mut friend = open(&dir, "friend").unwrap();
    let own = friend.alloc_for(USER_BASE, LARGE, to).unwrap();
    assert!(own.is_shared(), "endpoints of one user have a pool");
    let of_friend = friend.spid();
    let theirs = || {
        let mut theirs = open(&dir, "theirs").unwrap();
        let mut signal = theirs.alloc_for(USER_BASE + 1, LARGE, to).unwrap();
        assert!(!signal.is_shared(), "another user could change what this one reads");
        signal.payload_mut().fill(7);
        theirs.send(signal, to).unwrap();
        let forged = theirs.alloc(USER_BASE + 2, 0).unwrap();
        let refused = theirs.send_as(forged, of_friend, to);
        assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
        let last = theirs.alloc(USER_BASE + 3, 0).unwrap();
        theirs.send(last, to).unwrap();
        theirs.receive(&Filter::only(&[USER_BASE + 4]), soon()).unwrap().expect("the answer");
    };
    as_other_user(parent.path(), theirs, || {
        let signal = ours.receive(&Filter::ANY, soon()).unwrap().expect("the first signal");
        assert_eq!((signal.number(), signal.is_shared()), (USER_BASE + 1, false));
        assert!(signal.payload().len() == LARGE && signal.payload().iter().all(|byte| *byte == 7));
        let last = ours.receive(&Filter::ANY, soon()).unwrap().expect("the last signal");
        assert_eq!(last.number(), USER_BASE + 3);
        let answer = ours.alloc(USER_BASE + 4, 0).unwrap();
        ours.send(answer, last.sender().expect("it was received")).unwrap();
    });
}

#[test]
fn a_user_without_permission_for_the_directory_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::set_permissions(parent.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let dir = parent.path().join("n");
    let _node = Node::spawn(&dir, Settings::default()).unwrap();
    as_other_user(
        parent.path(),
        || {
            let refused = open(&dir, "theirs").map(drop);
            assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
        },
        || (),
    );
}
