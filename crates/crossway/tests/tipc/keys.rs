//! Keys of tipcds: from a file at the start, and from plain to encrypted at run time.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Site, WATCHDOG, host};

const KEY: &str = "a-128-bit-key-+-salt";

/// A file with these lines, and the folder that holds it.
fn key_file(lines: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    std::fs::write(&path, lines).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (dir, path)
}

/// Waits until the state of encryption satisfies a condition.
fn keys_until(site: &Site, holds: impl Fn(&Value) -> bool) {
    let start = Instant::now();
    loop {
        let keys = site.json(&["node", "get", "keys"]);
        if holds(&keys) {
            return;
        }
        assert!(start.elapsed() < WATCHDOG, "{keys}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn nodes_with_a_key_file_meet_and_others_stay_outside() {
    let (a, b, c) = (host(60), host(61), host(62));
    let (_dir, path) = key_file(&format!("# cluster\n{KEY} master\nrekeying 1\n"), 0o600);
    let file = path.to_str().unwrap();
    let with_file = |own: &str, others: String, id: &str| {
        Site::with(&[&format!("udp:{own},{others}"), "--id", id, "--key-file", file])
    };
    let one = with_file(&a, format!("{b},{c}"), "one");
    let two = with_file(&b, format!("{a},{c}"), "two");
    let plain = Site::with(&[&format!("udp:{c},{a},{b}"), "--id", "plain"]);
    one.linked_to(&["two"]);
    two.linked_to(&["one"]);
    plain.linked_to(&[]);
    let refused =
        |site: &Site, reason: &str| site.json(&["node"])["drops"][reason].as_u64().unwrap_or(0) > 0;
    let start = Instant::now();
    while !(refused(&one, "plain") && refused(&plain, "encrypted")) {
        assert!(start.elapsed() < WATCHDOG, "{}", one.text(&["node"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(one.text(&["node", "get", "keys"]).contains("plain frames are refused"));
    assert_eq!(one.json(&["node", "get", "keys"])["rekeying_s"], 60);
    // Its key is replaced by one of its own, which the other node gets.
    assert_eq!(one.text(&["node", "set", "key", "rekeying", "now"]), "");
    keys_until(&one, |keys| keys["own"][1]["users"] == 1);
    one.linked_to(&["two"]);
}

#[test]
fn a_plain_cluster_becomes_encrypted_without_losing_a_link() {
    let (a, b) = (host(63), host(64));
    let one = Site::with(&[&format!("udp:{a},{b}"), "--id", "one", "--allow-plain"]);
    let two = Site::with(&[&format!("udp:{b},{a}"), "--id", "two", "--allow-plain"]);
    one.linked_to(&["two"]);
    two.linked_to(&["one"]);
    assert_eq!(one.text(&["node", "set", "key", KEY, "algname", "gcm(aes)"]), "");
    assert!(
        one.text(&["node", "get", "keys"]).contains("accepted from nodes that do not encrypt yet")
    );
    let (_dir, path) = key_file(KEY, 0o600);
    assert_eq!(two.text(&["node", "set", "key", "file", path.to_str().unwrap()]), "");
    for site in [&one, &two] {
        keys_until(site, |keys| keys["all_peers_encrypt"] == true && keys["own"][0]["users"] == 1);
        assert_eq!(site.text(&["node", "set", "plain", "refused"]), "");
    }
    for (site, other) in [(&one, "two"), (&two, "one")] {
        assert_eq!(site.linked_to(&[other])[0]["ups"], 1, "the link never went down");
    }
    // Without keys on one side, the other one no longer hears it.
    assert_eq!(one.text(&["node", "flush", "key"]), "");
    one.linked_to(&[]);
}

#[test]
fn wrong_keys_and_files_are_refused_with_the_remedy() {
    let site = Site::with(&["--id", "one"]);
    assert!(site.error(&["node", "set", "key", "short"]).contains("20, 28 or 36"));
    assert!(site.error(&["node", "set", "key", "rekeying", "now"]).contains("set one first"));
    assert!(site.error(&["node", "set", "key", KEY, "nodeid", "not legal"]).contains("identity"));
    assert!(site.error(&["node", "set", "netid", "7"]).contains("--netid"));
    let (_dir, path) = key_file(KEY, 0o644);
    let error = site.error(&["node", "set", "key", "file", path.to_str().unwrap()]);
    assert!(error.contains("chmod 600"), "{error}");
}
