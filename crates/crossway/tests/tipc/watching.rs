//! `crossway tipc trace` and `crossway tipc top`, and their errors.

use std::process::{Command, Stdio};
use std::time::Instant;

use crossway_tipc_client::{Address, NodeSocket, Patience, Scope, ServiceRange, SocketKind};
use serde_json::Value;

use super::{WATCHDOG, host, pair, program};

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
fn a_full_disk_and_a_missing_tipcd_are_reported() {
    let (one, _two) = pair(40);
    let error = one.error(&["trace", "/dev/full"]);
    assert!(error.contains("/dev/full") && error.contains("the disk is full"), "{error}");
    let error = one.error(&["trace", "/nowhere/t.pcap"]);
    assert!(error.contains("cannot create /nowhere/t.pcap"), "{error}");
    let output =
        program().args(["tipc", "--socket", "/nowhere/tipcd.sock", "node"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("start one with: crossway tipcd --socket /nowhere/tipcd.sock"),
        "{error}"
    );
}

/// If the disk becomes full while frames are written, the trace reports it and ends. Neither the node nor the next
/// trace is affected.
#[test]
fn a_disk_that_fills_up_in_the_middle_of_a_trace_does_not_concern_the_node() {
    let (one, two) = pair(90);
    let soon = || Patience::Until(Instant::now() + WATCHDOG);
    let server = NodeSocket::open(two.path(), SocketKind::Rdm).unwrap();
    server.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    let client = NodeSocket::open(one.path(), SocketKind::Rdm).unwrap();
    let to = Some(Address::service(1000, 1));
    let begin = Instant::now();
    while client.send(b"first", to, soon()).is_err() {
        assert!(begin.elapsed() < WATCHDOG, "the name does not come");
    }
    let mut raw = [0; 2_000];
    assert_eq!(server.recv(&mut raw, soon()), Ok(5));
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.pcap");
    // A file system of 256 KiB for this command only; it disappears with it, so its contents are copied.
    let script = r#"mount -t tmpfs -o size=256k none "$1" && { "$2" tipc --socket "$3" trace "$1/t.pcap"; code=$?; cat "$1/t.pcap" > "$4"; exit $code; }"#;
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let own = assert_cmd::cargo::cargo_bin!("crossway");
    let mut trace = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([disk.as_path(), own, one.path(), &copy])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut exchanged = 0_u32;
    let ended = loop {
        for _ in 0..16 {
            assert_eq!(client.send(&[9; 1_000], to, soon()), Ok(1_000));
            assert_eq!(server.recv(&mut raw, soon()), Ok(1_000), "after {exchanged}");
            exchanged += 1;
        }
        if let Some(status) = trace.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < WATCHDOG, "the trace goes on");
    };
    let output = trace.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("unshare") || error.contains("mount:") {
        eprintln!("SKIP a disk that fills up: {error}; it needs user namespaces");
        return;
    }
    assert_eq!(ended.code(), Some(2), "{error}");
    assert!(error.contains("the disk is full") && error.contains("ended after packet"), "{error}");
    let bytes = std::fs::read(&copy).unwrap();
    assert!(bytes.len() > 100 << 10, "{} bytes: the disk was full at once", bytes.len());
    // No trace is active any more, and a new one works as before.
    let again = dir.path().join("again.pcap");
    let told = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            for _ in 0..40 {
                client.send(&[9; 1_000], to, soon()).unwrap();
                server.recv(&mut raw, soon()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let told = one.json(&["trace", again.to_str().unwrap(), "--count", "10"]);
        traffic.join().unwrap();
        told
    });
    assert_eq!((&told["frames"], &told["lost_frames"]), (&10.into(), &0.into()));
    assert_eq!(one.json(&["link", "list"])[1]["ups"], 1, "the link never went down");
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
