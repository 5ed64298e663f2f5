//! Tests of what is trusted, with the owners and permissions that an attacker can produce.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A user other than root and this one.
const OTHER: u32 = 65_533;

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A folder for a test, with the mode of a home folder.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    set(dir.path(), 0o755);
    dir
}

/// Gives `path` to another user; `false`, with a message, if this process may not.
fn given_away(path: &Path) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).is_ok();
    if !given {
        println!("SKIP what belongs to another user: needs root to give files away; run as root");
    }
    given
}

fn reason(path: &Path) -> String {
    check(path).unwrap_err().to_string()
}

#[test]
fn what_only_this_user_can_write_is_trusted_at_any_depth() {
    let dir = folder();
    let deep = dir.path().join("a/b/c");
    private_dir(&deep).unwrap();
    assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o777, 0o700);
    fs::write(deep.join("file"), "").unwrap();
    check(&deep.join("file")).unwrap();
    check(&deep.join("../c/file")).unwrap();
    check_tree(dir.path()).unwrap();
    assert!(check(&deep.join("none")).unwrap_err().is_missing());
    check(Path::new("/dev/null")).unwrap();
}

#[test]
fn nothing_below_a_folder_that_others_may_write_to_is_trusted_or_created() {
    let dir = folder();
    let open = dir.path().join("open");
    fs::create_dir_all(open.join("inner")).unwrap();
    fs::write(open.join("inner/file"), "").unwrap();
    set(&open, 0o777);
    let text = reason(&open.join("inner/file"));
    assert!(text.contains(&format!("write to {} (mode 777)", open.display())), "{text}");
    assert!(text.contains("remove it, or make sure"), "{text}");
    let error = private_dir(&open.join("fresh/deeper")).unwrap_err().to_string();
    assert!(error.contains("other users may write"), "{error}");
    assert!(!open.join("fresh").exists(), "nothing is written there");

    // Nobody else gets into a closed folder, even if its content were open to everybody.
    let closed = dir.path().join("closed");
    private_dir(&closed.join("inner")).unwrap();
    fs::write(closed.join("inner/file"), "").unwrap();
    set(&closed.join("inner"), 0o777);
    set(&closed.join("inner/file"), 0o666);
    check_tree(&closed).unwrap();
    set(&closed, 0o711);
    assert!(check(&closed.join("inner/file")).is_err());

    // A file in it is refused for its own permissions, too, and so is the whole tree.
    set(&open, 0o755);
    set(&open.join("inner/file"), 0o666);
    assert!(reason(&open.join("inner/file")).contains("mode 666"));
    assert!(check_tree(&open).is_err());
}

#[test]
fn a_sticky_folder_is_passed_but_not_trusted_itself() {
    let dir = folder();
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    set(&shared, 0o1777);
    private_dir(&shared.join("mine")).unwrap();
    fs::write(shared.join("file"), "").unwrap();
    check(&shared.join("file")).unwrap();
    assert!(reason(&shared).contains("everybody may write"), "a folder to read from");
    assert!(private_dir(&shared).is_err());
    if !given_away(&shared.join("file")) {
        return;
    }
    assert!(reason(&shared.join("file")).contains("another user (uid 65533)"));
    assert!(given_away(&shared.join("mine")));
    assert!(private_dir(&shared.join("mine")).is_err());
    assert!(private_dir(&shared.join("mine/deeper")).is_err());
    assert!(!shared.join("mine/deeper").exists());
}

#[test]
fn what_another_user_owns_is_refused_wherever_it_is_in_the_path() {
    let dir = folder();
    let middle = dir.path().join("middle");
    fs::create_dir_all(middle.join("mine")).unwrap();
    if !given_away(&middle) {
        return;
    }
    for path in ["middle", "middle/mine", "middle/.", "middle/mine/.."] {
        let text = reason(&dir.path().join(path));
        assert!(text.contains(&format!("{} belongs to another", middle.display())), "{text}");
    }
}

#[test]
fn links_are_judged_by_owner_and_by_where_they_lead() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    for (name, mode) in [("good", 0o755), ("bad", 0o777), ("shared", 0o1777)] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("file"), "").unwrap();
        set(&at(name), mode);
    }
    symlink("good", at("to-good")).unwrap();
    symlink(at("bad"), at("to-bad")).unwrap();
    symlink("to-bad", at("to-to-bad")).unwrap();
    symlink("bad/../good", at("past-bad")).unwrap();
    symlink("loop", at("loop")).unwrap();
    check(&at("to-good/file")).unwrap();
    for path in ["to-bad/file", "to-to-bad/file", "past-bad/file", "loop"] {
        assert!(check(&at(path)).is_err(), "{path}");
    }
    let foreign = at("shared").join("link");
    symlink(at("good"), &foreign).unwrap();
    check(&foreign.join("file")).unwrap();
    if given_away(&foreign) {
        assert!(reason(&foreign.join("file")).contains("another user"));
        assert!(private_dir(&foreign.join("fresh")).is_err());
        assert!(!at("good/fresh").exists());
    }
}

#[test]
fn a_group_counts_as_others_unless_the_owner_is_its_only_member() {
    let passwd = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:/bin/sh\n\
                  eve:x:1002:1003::/:/bin/sh\n";
    let group = "root:x:0:\nann:x:1000:ann\nusers:x:100:\ndev:x:1001:ann,eve\nodd:x:1003:\n";
    assert!(is_only_member(1000, 1000, passwd, group));
    assert!(is_only_member(0, 0, passwd, group));
    for (gid, uid) in [(1001, 1000), (100, 1000), (1003, 1000), (7, 1000), (1000, 4711)] {
        assert!(!is_only_member(gid, uid, passwd, group), "group {gid} of user {uid}");
    }
}

#[test]
fn a_socket_or_device_may_be_open_for_everybody() {
    let dir = folder();
    let path = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    set(&path, 0o777);
    check(&path).unwrap();
    if given_away(&path) {
        assert!(check(&path).is_err());
    }
}
