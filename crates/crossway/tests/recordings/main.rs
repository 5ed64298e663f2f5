//! Recordings as workloads and as questions: replayed over mechanisms, damaged ones, and predictions for real programs.

#[path = "../cli/mod.rs"]
mod cli;
mod predictions;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use cli::{crossway, text};

/// Imports the log of a client and a server that exchange `count` requests of 64 B and replies of two sizes over TCP,
/// one each millisecond.
fn recorded(dir: &Path, count: u32) {
    let mut log = String::new();
    let (client, server) = ("127.0.0.1:5000->127.0.0.1:80", "127.0.0.1:80->127.0.0.1:5000");
    for number in 0..count {
        let at = |us: u32| format!("{}.{:06}", 100 + number / 1000, number % 1000 * 1000 + us);
        let reply = if number % 2 == 0 { 1000 } else { 20 };
        writeln!(log, "1 {} write(3<TCP:[{client}]>, \"\"..., 64) = 64 <0.000010>", at(100))
            .unwrap();
        writeln!(log, "2 {} read(4<TCP:[{server}]>, \"\"..., 4096) = 64 <0.000010>", at(105))
            .unwrap();
        writeln!(
            log,
            "2 {} write(4<TCP:[{server}]>, \"\"..., {reply}) = {reply} <0.000010>",
            at(130)
        )
        .unwrap();
        writeln!(log, "1 {} read(3<TCP:[{client}]>, \"\"..., 4096) = {reply} <0.000030>", at(120))
            .unwrap();
    }
    std::fs::write(dir.join("log"), log).unwrap();
    text(&crossway(dir, &["observe", "--import", "log", "--record", "rec"]));
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        eprintln!("SKIP recordings: there is no {program}; remedy: scripts/setup.sh test");
    }
    found.status.success()
}

fn records(dir: &Path) -> Vec<Value> {
    let run = std::fs::read_dir(dir.join("out")).unwrap().next().unwrap().unwrap().path();
    let lines = std::fs::read_to_string(run.join("results.jsonl")).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_recorded_channel_is_replayed_over_mechanisms_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 200);
    let args =
        ["measure", "--replay", "rec", "-f", "replay/pipe/|replay/uds-seqpacket/|replay/udp/"];
    let output =
        crossway(dir.path(), &[&args[..], &["--trials", "2", "--measure-ms", "60"]].concat());
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("replay of channel 0"), "{shown}");
    let records = records(dir.path());
    let of = |id: &'static str| records.iter().filter(move |r| r["mechanism"] == id);
    for record in of("pipe").chain(of("uds-seqpacket")) {
        // Where a hypervisor or a quota stops the trial, it is degraded and repeated; it was verified all the same.
        let status = record["status"].as_str().unwrap();
        assert!(status == "ok" || status == "degraded" && record["remedy"].is_string(), "{record}");
        // 60 exchanges of 1 ms, the last of which is whole; every byte arrived.
        let (counts, replay) = (&record["counts"], &record["replay"]);
        assert_eq!((&counts["sent"], &counts["received"]), (&Value::from(60), &Value::from(60)));
        assert_eq!(counts["bytes"], 30 * 1020, "{counts}");
        assert_eq!(
            (&replay["messages"], &replay["carrier"]),
            (&Value::from(120), &Value::from("tcp-local"))
        );
        assert_eq!(replay["size_bytes_recorded"], replay["size_bytes_replayed"]);
        assert_eq!(replay["same_mechanism"], false);
        assert_eq!(record["inputs"]["recording"], "rec");
        assert_eq!(record["latency_ns"][0]["n"], 60);
    }
    assert!(of("pipe").count() >= 2 && of("uds-seqpacket").count() >= 2);
    let lossy: Vec<_> = of("udp").collect();
    assert!(!lossy.is_empty() && lossy.iter().all(|r| r["status"] == "skipped"), "{lossy:?}");
    // The plan of the same case, repeated from its record.
    let case = format!("latest:{}", of("pipe").next().unwrap()["case"].as_str().unwrap());
    text(&crossway(dir.path(), &["rerun", &case, "-o", "again"]));
    assert!(dir.path().join("again").read_dir().unwrap().count() > 0);
}

/// Checks the records of a replay with this number of channels and roles: every exchange was completed, and each channel
/// has its figures.
fn check_several(records: &[Value], channels: usize, roles: usize) {
    for record in records {
        let status = record["status"].as_str().unwrap();
        assert!(status == "ok" || status == "degraded" && record["remedy"].is_string(), "{record}");
        assert_eq!(record["roles"].as_array().unwrap().len(), roles, "{record}");
        let counts = &record["counts"];
        assert_eq!((&counts["corrupt"], &counts["sent"]), (&Value::from(0), &counts["received"]));
        assert!(counts["sent"].as_u64().unwrap() > 20, "{counts}");
        let of = record["replay"]["channels"].as_array().unwrap();
        assert_eq!(of.len(), channels, "{record}");
        assert_eq!(record["inputs"]["recorded_channels"].as_array().unwrap().len(), channels);
        for channel in of {
            assert!(channel["exchange_ns_recorded"].as_u64().is_some_and(|ns| ns > 0), "{channel}");
            assert!(channel["exchange_ns_replayed"].as_u64().is_some_and(|ns| ns > 0), "{channel}");
            assert!(channel["gap_distance"].is_f64(), "{channel}");
        }
    }
}

#[test]
fn channels_are_replayed_together_with_their_causes_across_a_proxy() {
    let dir = tempfile::tempdir().unwrap();
    // Two clients ask a proxy, which asks an upstream server before it answers.
    let mut log = String::new();
    for number in 0..200 {
        for (client, port, us) in [(1, 5000, 0), (4, 5001, 500)] {
            let at = |more: u32| {
                format!("{}.{:06}", 100 + number / 1000, number % 1000 * 1000 + us + more)
            };
            let ends = |from: u32, to: u32| format!("<TCP:[127.0.0.1:{from}->127.0.0.1:{to}]>");
            let (here, there) = (ends(port, 80), ends(80, port));
            let (out, back) = (ends(6000, 90), ends(90, 6000));
            for (pid, us, call, descriptor, bytes) in [
                (client, 0, "write", &here, 64),
                (2, 5, "read", &there, 64),
                (2, 30, "write", &out, 80),
                (3, 35, "read", &back, 80),
                (3, 60, "write", &back, 1000),
                (2, 65, "read", &out, 1000),
                (2, 90, "write", &there, 1100),
                (client, 95, "read", &here, 1100),
            ] {
                let at = at(us);
                writeln!(
                    log,
                    "{pid} {at} {call}(3{descriptor}, \"\"..., 4096) = {bytes} <0.000010>"
                )
                .unwrap();
            }
        }
    }
    std::fs::write(dir.path().join("log"), log).unwrap();
    text(&crossway(dir.path(), &["observe", "--import", "log", "--record", "rec"]));
    let measure = |more: &[&str]| {
        let args = ["measure", "--replay", "rec", "--trials", "1", "--measure-ms", "60", "-f"];
        let mechanisms = "/pipe/|/uds-stream/|/tcp/|/shm-futex/|/uds-seqpacket/";
        crossway(dir.path(), &[&args[..], &[mechanisms], more].concat())
    };
    let output = measure(&["--channel", "all"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("replay of 3 channels"), "{output:?}");
    let records = records(dir.path());
    assert!(records.len() >= 5, "{records:?}");
    check_several(&records, 3, 4);
    // Only the clients' exchanges are round trips of the trial, and both clients began one each millisecond.
    assert!(records.iter().all(|r| r["latency_ns"][0]["n"].as_u64().is_some_and(|n| n >= 118)));
    let listed = |output: &Output| text(output).lines().count();
    assert!(listed(&measure(&["--list", "--channels", "2,0"])) >= 5);
    let plan =
        "[group.a]\nmechanisms = ['pipe']\nworkload = { replay = 'rec', channel = [0, 1] }\n";
    std::fs::write(dir.path().join("plan.toml"), plan).unwrap();
    let output = crossway(dir.path(), &["measure", "plan.toml", "--list"]);
    assert!(text(&output).contains("-2-channels/"), "{output:?}");
    std::fs::write(dir.path().join("plan.toml"), plan.replace("[0, 1]", "[0, 0]")).unwrap();
    for output in [
        crossway(dir.path(), &["measure", "plan.toml", "--list"]),
        measure(&["--list", "--channel", "1,x"]),
        measure(&["--list", "--channel", "1,9"]),
    ] {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let case = format!("latest:{}", records[0]["case"].as_str().unwrap());
    text(&crossway(dir.path(), &["rerun", &case, "-o", "again"]));
}

#[test]
fn the_clients_of_a_python_server_are_replayed_together() {
    if !["strace", "/usr/bin/python3"].into_iter().all(has) {
        return;
    }
    let script = "
import os, selectors, socket
listener = socket.socket(socket.AF_UNIX)
listener.bind('')
listener.listen()
for client in range(3):
    if os.fork() == 0:
        s = socket.socket(socket.AF_UNIX)
        s.connect(listener.getsockname())
        for number in range(100):
            s.sendall(b'x' * (64 + client)); s.recv(1000, socket.MSG_WAITALL)
        os._exit(0)
selector = selectors.DefaultSelector()
open = [listener.accept()[0] for _ in range(3)]
for s in open: selector.register(s, selectors.EVENT_READ)
while open:
    for key, _ in selector.select():
        s = key.fileobj
        if data := s.recv(1000): s.sendall(b'y' * 1000)
        else: selector.unregister(s); open.remove(s)
";
    let dir = tempfile::tempdir().unwrap();
    let made = crossway(
        dir.path(),
        &["observe", "--record", "rec", "--", "/usr/bin/python3", "-c", script],
    );
    if String::from_utf8_lossy(&made.stderr).contains("not permitted") {
        return eprintln!("SKIP a replay: processes may not be traced here; remedy: run as root");
    }
    text(&made);
    let args = ["measure", "--replay", "rec", "--channel", "all", "--trials", "1"];
    let more = ["--measure-ms", "100", "-f", "/uds-stream/|/pipe/|/tcp/"];
    let output = crossway(dir.path(), &[&args[..], &more].concat());
    assert!(output.status.success(), "{output:?}");
    check_several(&records(dir.path()), 3, 4);
}

#[test]
fn speed_and_channel_are_chosen_and_damage_is_said() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 40);
    let list = |more: &[&str]| {
        let args = [&["measure", "--replay", "rec", "--list", "-f", "/pipe/"], more].concat();
        crossway(dir.path(), &args)
    };
    assert!(text(&list(&["--speed", "2", "--channel", "0"])).contains("-0-200percent/"));
    assert!(text(&list(&["--as-fast-as-possible"])).contains("as-fast-as-possible"));
    let refused = |output: Output, said: &str| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(said), "{error}");
    };
    refused(list(&["--channel", "7"]), "no channel 7; it has channel 0");
    let head = dir.path().join("rec/head.toml");
    let whole = std::fs::read_to_string(&head).unwrap();
    // Another machine, a clock that was set, a recorder that was killed: remarks, and the replay goes on.
    let elsewhere = format!("kernel = \"1.2.3\"\ncpus = 77\n{whole}");
    std::fs::write(&head, elsewhere.replace("clock_backwards = 0", "clock_backwards = 3")).unwrap();
    let output = list(&[]);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    assert!(notes.contains("another machine") && notes.contains("backwards 3 times"), "{notes}");
    let cut = whole.split("[totals]").next().unwrap().to_owned();
    let rest = whole.find("[[processes]]").map(|at| &whole[at..]).unwrap_or_default();
    std::fs::write(&head, cut + rest).unwrap();
    let output = list(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not finish"), "{output:?}");
    // A newer version, and events that are damaged: one error each.
    std::fs::write(&head, whole.replace("version = 3", "version = 4")).unwrap();
    refused(list(&[]), "newer crossway");
    std::fs::write(&head, &whole).unwrap();
    let events = dir.path().join("rec/events-000001.parquet");
    let bytes = std::fs::read(&events).unwrap();
    std::fs::write(&events, &bytes[..bytes.len() / 2]).unwrap();
    refused(list(&[]), "no channel that carried a message (events-000001.parquet is damaged");
    let advise = crossway(dir.path(), &["advise", "--observed", "rec", "--print"]);
    refused(advise, "no channel that carried a message");
}
