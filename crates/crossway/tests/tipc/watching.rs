//! `crossway tipc trace` and `top`, and what is said when they cannot work.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{host, pair, program};

#[test]
fn a_trace_is_what_the_dissector_takes_for_tipc() {
    let (one, two) = pair(30);
    let v6 = |own: u16, other: u16| format!("udp:[::1]:{own},[::1]:{other}");
    let port = 20_000 + (std::process::id() % 10_000) as u16 * 2;
    one.text(&["bearer", "enable", &v6(port, port + 1)]);
    two.text(&["bearer", "enable", &v6(port + 1, port)]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.pcap");
    let told = one.json(&["trace", file.to_str().unwrap(), "--count", "30"]);
    assert_eq!((&told["frames"], &told["lost_frames"]), (&30.into(), &0.into()));
    let decode = format!("udp.port=={port},tipc");
    let tshark = |filter: &str| {
        let output = Command::new("tshark")
            .args(["-r", file.to_str().unwrap(), "-d", &decode, "-Y", filter])
            .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
            .stderr(Stdio::null())
            .output();
        output.ok().map(|o| String::from_utf8_lossy(&o.stdout).lines().count())
    };
    let Some(all) = tshark("tipc") else {
        eprintln!("SKIP the dissector's verdict: tshark is missing; install it");
        return;
    };
    assert_eq!(all, 30);
    assert_eq!(tshark("_ws.malformed"), Some(0));
    assert_eq!(tshark("ip.checksum.status == 0 or udp.checksum.status == 0"), Some(0));
    assert_eq!(
        tshark(&format!("ip.src == {} and ip.dst == {}", host(30), host(31))).map(|n| n > 0),
        Some(true)
    );
    assert_eq!(tshark("ipv6").map(|n| n > 0), Some(true), "both bearers are in it");
}

#[test]
fn a_full_disk_and_a_missing_tipcd_are_told() {
    let (one, _two) = pair(40);
    let error = one.error(&["trace", "/dev/full"]);
    assert!(error.contains("/dev/full") && error.contains("the disk is full"), "{error}");
    let error = one.error(&["trace", "/nowhere/t.pcap"]);
    assert!(error.contains("cannot create /nowhere/t.pcap"), "{error}");
    let output =
        program().args(["tipc", "--socket", "/nowhere/tipcd.sock", "node"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("start `crossway tipcd --socket /nowhere/tipcd.sock`"), "{error}");
}

#[test]
fn top_is_plain_when_nobody_looks() {
    let (one, _two) = pair(50);
    let text = one.text(&["top", "-n", "1", "--interval", "0.1"]);
    assert!(!text.contains('\x1b') && text.contains("alpha:udp0-beta:udp0"), "{text}");
    let lines = one.text(&["top", "-n", "2", "--interval", "0.1", "--json"]);
    let looks: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(looks.len(), 2);
    assert_eq!(looks[1]["links"][0]["name"], "alpha:udp0-beta:udp0");
    assert!(looks[1]["elapsed_s"].as_f64().unwrap() >= 0.1);
}
