//! Tests of the node's directory and of the information that a node provides.

use crossway_linx::signal::{NEW_LINK, USER_BASE};
use crossway_linx::{Count, Endpoint, Error, Filter, Node, Settings, Transport};

use super::{Host, signal, soon};

#[test]
fn the_list_shows_the_state_of_endpoints() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    let mut b = host.open("b");
    a.attach(b.spid(), None).unwrap();
    a.hunt("nobody", None).unwrap();
    b.send(signal(1), a.spid()).unwrap();
    let info = a.info(b.spid()).unwrap();
    assert_eq!((info.name.as_str(), info.pid), ("b", std::process::id()));
    let dir = host.dir().to_owned();
    std::thread::scope(|scope| {
        let spid = a.spid();
        scope.spawn(move || {
            let wanted = Filter::only(&[USER_BASE + 5]);
            assert_eq!(a.receive(&wanted, soon()).unwrap().unwrap().number(), USER_BASE + 5);
        });
        let row = loop {
            let rows = crossway_linx::list(&dir).unwrap();
            assert_eq!(rows.len(), 2);
            let row = rows.into_iter().find(|row| row.spid == spid).unwrap();
            if row.condition.as_ref().is_some_and(|condition| condition.queued == 1) {
                break row;
            }
        };
        let condition = row.condition.unwrap();
        assert_eq!(condition.waits_for, crossway_linx::WaitsFor::Only(vec![USER_BASE + 5]));
        assert_eq!((row.attached_to, row.hunts, row.channels), (1, 1, 1));
        // The same by the call of an endpoint, which also answers about itself.
        assert_eq!(b.condition(spid).unwrap(), condition);
        let own = b.condition(b.spid()).unwrap();
        assert_eq!(own.traffic.sent(), Count { signals: 1, bytes: signal(1).size() as u64 });
        assert_eq!((own.traffic.sent_remote, own.queued), (Count::default(), 0));
        b.send(signal(5), spid).unwrap();
    });
}

#[test]
fn the_end_of_the_node_is_reported_and_its_directory_is_free_again() {
    let host = Host::new(Transport::Uds);
    let mut a = host.open("a");
    a.request_new_link(0).unwrap();
    let dir = host.dir().to_owned();
    let second = Node::bind(&dir, Settings::default());
    assert!(second.unwrap_err().to_string().contains("serves in"));
    drop(host);
    assert!(matches!(a.receive(&Filter::only(&[NEW_LINK]), soon()), Err(Error::NodeGone)));
    assert!(!dir.exists());
    let none = Endpoint::open(&dir, "a").unwrap_err();
    assert!(none.to_string().contains("crossway linx node"), "{none}");
}

#[test]
fn the_directory_has_the_requested_permissions_and_group() {
    use std::os::unix::fs::MetadataExt;
    let temporary = tempfile::tempdir().unwrap();
    let own_group = temporary.path().metadata().unwrap().gid();
    for (name, mode) in [("all", 0o777), ("group", 0o770), ("user", 0o700)] {
        let dir = temporary.path().join(name);
        let settings = Settings { mode, group: Some(own_group), ..Settings::default() };
        let _node = Node::spawn(&dir, settings).unwrap();
        let about = dir.metadata().unwrap();
        assert_eq!((about.mode() & 0o7777, about.gid()), (mode, own_group), "whatever the umask");
    }
    // A user who is not a member of a group cannot assign it, and leaves no directory behind.
    let dir = temporary.path().join("other");
    let settings = Settings { group: Some(4_000_000), ..Settings::default() };
    match Node::spawn(&dir, settings) {
        Ok(_node) => assert_eq!(dir.metadata().unwrap().gid(), 4_000_000),
        Err(error) => {
            assert!(error.to_string().contains("chown"), "{error}");
            assert!(!dir.exists());
        }
    }
}
