//! The commands in the manual pages tipc-bearer(8), tipc-link(8), tipc-media(8), tipc-nametable(8), tipc-node(8),
//! tipc-peer(8) and tipc-socket(8), literally, on a tipcd.

use crossway_netlab::{Lab, Link, Topology};
use serde_json::json;

use super::{Site, host, pair};

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

#[test]
fn the_manuals_commands_for_links_work_in_their_order() {
    let (one, two) = pair(110);
    let link = "alpha:udp0-beta:udp0";
    let text = |command: &str| one.text(&words(command));
    for (command, answer) in [
        (format!("link set tolerance 800 link {link}"), ""),
        (format!("link get tolerance link {link}"), "800\n"),
        (format!("link set window 40 link {link}"), ""),
        (format!("link get window link {link}"), "40\n"),
        ("link set broadcast REPLICAST".to_owned(), ""),
        ("link get broadcast".to_owned(), "method:replicast  ratio:10%  window:50 packets\n"),
        ("link set broadcast AUTOSELECT ratio 25".to_owned(), ""),
        ("link get broadcast".to_owned(), "method:autoselect  ratio:25%  window:50 packets\n"),
        ("link get window link broadcast-link".to_owned(), "50\n"),
        (format!("link statistics reset link {link}"), ""),
        ("link monitor set threshold 12".to_owned(), ""),
        ("link monitor get threshold".to_owned(), "12\n"),
    ] {
        assert_eq!(text(&command), answer, "{command}");
    }
    assert!(text(&format!("link statistics show link {link}")).starts_with("Link <alpha:udp0"));
    assert!(text("link statistics show link broadcast-link").starts_with("Link <broadcast-link>"));
    assert!(text("link monitor summary").starts_with("bearer udp:udp0\n"));
    assert!(text("link monitor list media udp name udp0").starts_with("bearer udp:udp0\n"));
    assert_eq!(text("link list"), format!("broadcast-link: up\n{link}: up\n"));
    assert_eq!(
        one.json(&words("-j -p link get tolerance link alpha:udp0-beta:udp0"))["tolerance"],
        800
    );
    assert_eq!(text("link set priority 20 link alpha:udp0-beta:udp0"), "");
    two.linked_to(&["alpha"]);
    for (command, says) in [
        ("link set tolerance fast link L", "'fast' is not a valid value of tolerance"),
        ("link set tolerance 500", "no link is named"),
        ("link set link L", "nothing to set"),
        ("link set broadcast LOUD", "REPLICAST or AUTOSELECT"),
        ("link set window 77 link broadcast-link", "link set broadcast BROADCAST"),
        ("link get tolerance link nobody", "there is no link nobody"),
        ("link get priority link broadcast-link", "the broadcast link has no priority"),
        ("link monitor list media eth device none0", "there is no bearer eth:none0"),
    ] {
        let error = one.error(&words(command));
        assert!(error.contains(says), "{command}: {error}");
    }
}

#[test]
fn the_manuals_commands_for_bearers_and_the_rest_work_in_their_order() {
    let (a, b, c) = (host(120), host(121), host(122));
    let one = Site::with(&["--id", "alpha"]);
    let two = Site::with(&[&format!("udp:{b},{a}"), "--id", "beta"]);
    let text = |command: &str| one.text(&words(command));
    assert_eq!(
        text(&format!("bearer enable priority 12 media udp name UDP1 localip {a} remoteip {b}")),
        ""
    );
    one.linked_to(&["beta"]);
    assert_eq!(text("bearer list"), "udp:UDP1\n");
    assert_eq!(text("bearer get priority media udp name UDP1"), "12\n");
    assert_eq!(text("bearer set tolerance 700 media udp name UDP1"), "");
    assert_eq!(text("bearer get tolerance media udp name UDP1"), "700\n");
    assert_eq!(text(&format!("bearer add media udp name UDP1 remoteip {c}")), "");
    assert_eq!(text("bearer get remoteip media udp name UDP1"), format!("{b}:6118\n{c}:6118\n"));
    let details = two.json(&words("bearer get udp0"));
    assert_eq!(details["name"], "udp:udp0");
    assert_eq!(text("media list"), "eth\nudp\n");
    assert_eq!(text("media get tolerance media eth"), "1500\n");
    assert_eq!(one.json(&words("media get priority media udp"))["priority"], json!(10));
    assert!(text("nametable show").starts_with("Type "));
    assert_eq!(text("socket list"), "");
    assert_eq!(text("node get netid"), "4711\n");
    assert!(text("node get address").trim().len() <= 8);
    assert!(text("node list").contains("beta"));
    let peer = one.json(&["peer", "list"])[0]["address"].as_str().unwrap().to_owned();
    let removed = one.error(&["peer", "remove", "address", &peer]);
    assert!(removed.contains("only a node that is down"), "{removed}");
    assert_eq!(text("bearer disable media udp name UDP1"), "");
    assert_eq!(text("bearer list"), "");
    for (command, says) in [
        ("bearer enable media eth", "expected `media eth device DEVICE`"),
        ("bearer enable media ib device ib0", "no InfiniBand"),
        ("bearer enable domain 1.1.0 media udp name U localip 127.0.0.1", "domain 1.1.0"),
        ("bearer disable media eth device none0", "none0"),
        (
            "bearer enable media udp name U localip 127.0.0.1 colour red",
            "'colour' is not recognised",
        ),
        ("media set tolerance 500 media eth", "set each bearer"),
        ("node set netid 4712", "--netid"),
    ] {
        let error = one.error(&words(command));
        assert!(error.contains(says), "{command}: {error}");
    }
}

#[test]
fn the_manuals_commands_for_ethernet_bearers_work_in_their_order() {
    let lab = match Lab::up(&Topology::of(&["a", "b"], Link::default())) {
        Ok(lab) => lab,
        Err(why) => return eprintln!("SKIP bearer enable media eth: {why}"),
    };
    let [a, b] = &lab.network().hosts[..] else { panic!("two hosts") };
    let site = |host: &crossway_netlab::Host, id: &str| {
        Site::started_by(host.command(assert_cmd::cargo::cargo_bin!("crossway")), &["--id", id])
    };
    let (one, two) = (site(a, "alpha"), site(b, "beta"));
    let bearer = format!("media eth device {}", a.interface);
    for (command, answer) in [
        (format!("bearer enable priority 7 {bearer}"), ""),
        (format!("bearer get priority {bearer}"), "7\n"),
        (format!("bearer set tolerance 700 {bearer}"), ""),
        (format!("bearer get tolerance {bearer}"), "700\n"),
        (format!("bearer set window 60 {bearer}"), ""),
        (format!("bearer get window {bearer}"), "60\n"),
    ] {
        assert_eq!(one.text(&words(&command)), answer, "{command}");
    }
    assert_eq!(one.text(&["bearer", "list"]), format!("eth:{}\n", a.interface));
    // Only now, and with the same tolerance: a link that is up keeps its own, and a new one takes that of the end that
    // was heard last.
    let other = format!("bearer enable media eth device {} --tolerance 700", b.interface);
    two.text(&words(&other));
    one.linked_to(&["beta"]);
    let link = format!("alpha:{}-beta:{}", a.interface, b.interface);
    assert_eq!(one.text(&words(&format!("link get tolerance link {link}"))), "700\n");
    let twice = one.error(&words(&format!("bearer enable {bearer}")));
    assert!(twice.contains(&a.interface), "{twice}");
    assert_eq!(one.text(&words(&format!("bearer disable {bearer}"))), "");
    assert_eq!(one.text(&["bearer", "list"]), "");
    two.linked_to(&[]);
}
