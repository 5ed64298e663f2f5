//! Testbeds on this machine: namespaces and guests.

use super::*;

/// Returns whether the process `owner` has left a network or a guest behind.
fn holds_networks(owner: u32) -> bool {
    let holder = format!("\"pid\":{owner},");
    ["net", "guest"].iter().any(|kind| {
        let Ok(files) = fs::read_dir(Path::new("/run/crossway").join(kind)) else { return false };
        files.flatten().any(|file| {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            text.split_whitespace().collect::<String>().contains(&holder)
        })
    })
}

const NETLAB: &str = r#"
[testbed.ethernet-100]
kind = "netlab"
rate = "100mbit"
tipc = "node"
[group.x]
testbed = "ethernet-100"
ends = ["between", "within"]
mechanisms = ["tcp", "udp", "tipc-node-rdm"]
workload = ["throughput", "ping-pong", "exchange"]
size_bytes = 512
trials = 1
warmup_ms = 10
measure_ms = 30
"#;

#[test]
fn two_namespaces_are_hosts_and_their_link_is_what_is_measured() {
    if !can_make_networks("two_namespaces_are_hosts") {
        return;
    }
    let place = Place::new(NETLAB);
    let child = place.start();
    let owner = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut records = place.records();
    records.retain(|r| r.status != Status::Skipped);
    assert_eq!(records.len(), 14);
    check_hosts(&records, "a", "b");
    for record in records {
        assert_ne!(record.status, Status::Failed, "{}: {:?}", record.case, record.reason);
        let carried: Vec<_> = record.net.iter().map(|i| format!("{} {}", i.host, i.name)).collect();
        match record.inputs.ends {
            Ends::Between => assert_eq!(carried, ["a eth0", "b eth0"], "{}", record.case),
            // Nodes exchange messages from time to time, even if their programs use shared memory.
            Ends::Within if record.mechanism.starts_with("tipc") => {}
            Ends::Within => assert!(carried.contains(&"a lo".to_owned()), "{}", record.case),
        }
        if record.inputs.ends == Ends::Between && record.case.contains("throughput") {
            // After a pause, the shaper forwards a burst of one millisecond immediately.
            const BURST_BITS: f64 = 100e6 / 1000.0 + 2.0 * 1514.0 * 8.0;
            let throughput = record.throughput.unwrap();
            let wall_s = throughput.wall_ns as f64 / 1e9;
            let bits = throughput.bytes_per_s * 8.0 * wall_s;
            assert!(bits < 100e6 * wall_s + BURST_BITS, "{}: {bits} in {wall_s} s", record.case);
        }
    }
    assert!(!holds_networks(owner));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_controller_leaves_no_network() {
    if !can_make_networks("a_killed_controller_leaves_no_network") {
        return;
    }
    let place = Place::new(&NETLAB.replace("trials = 1", "trials = 100"));
    let mut child = place.start();
    place.await_records(3);
    assert!(holds_networks(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    await_nothing_left(&place);
    await_that("the network's end", || !holds_networks(child.id()));
}

#[test]
fn two_guests_speak_tipc_over_their_link() {
    let place = Place::new(
        r#"
[testbed.guests]
kind = "guests"
tipc = "kernel"
[defaults]
testbed = "guests"
size_bytes = 512
trials = 1
warmup_ms = 30
measure_ms = 60
[group.between]
mechanisms = ["tcp", "tipc-kernel-*"]
workload = ["throughput", { paced = { burst_bytes = 512, period_us = 5000 } }]
[group.within]
ends = "within"
mechanisms = ["tcp", "tipc-kernel-*"]
workload = "ping-pong"
"#,
    );
    let child = place.start();
    let owner = child.id();
    let output = child.wait_with_output().unwrap();
    let records = place.records();
    if let Some(record) = records.iter().find(|r| r.status == Status::Skipped) {
        let (why, remedy) = (record.reason.as_deref(), record.remedy.as_deref());
        let why = why.unwrap_or_default();
        assert!(
            why.contains("needs root") || why.contains("was not found"),
            "{}: {why}; {remedy:?}",
            record.case
        );
        eprintln!("SKIP two_guests_speak_tipc: {why}; {}", remedy.unwrap_or_default());
        return;
    }
    assert!(output.status.success());
    // tcp, and every kind of the kernel's TIPC: stream, seqpacket, rdm, dgram, multicast.
    assert_eq!(records.len(), 6 * 3);
    check_hosts(&records, "a", "b");
    for record in &records {
        assert_ne!(record.status, Status::Failed, "{}: {:?}", record.case, record.reason);
        // A kernel other than this one, each with its own clock.
        let version = record.mechanism_version.as_deref().unwrap();
        assert!(version.contains(&record.hosts[0].kernel), "{version}: {:?}", record.hosts);
        if record.inputs.ends == Ends::Between {
            let eth0 = |host: &str| record.net.iter().any(|i| i.host == host && i.name == "eth0");
            assert!(eth0("a") && eth0("b"), "{}: {:?}", record.case, record.net);
            assert!(record.throughput.unwrap().sender_wall_ns.is_some());
            assert!(record.latency_ns.is_empty());
        }
        if record.case.contains("paced") {
            let why = &record.nulls["latency_ns"];
            assert!(why.contains("have different clocks"), "{why}");
        }
    }
    assert!(!holds_networks(owner));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

/// Returns the main process of the guest that `owner` has booted for `host`, and the guest's other processes; `None` if
/// no such guest is up.
fn guest_processes(owner: u32, host: &str) -> Option<(u32, Vec<u32>)> {
    let files = fs::read_dir("/run/crossway/guest").ok()?;
    let records = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    let records = records.filter_map(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let mut names = records.filter(|r| r["starter"]["pid"] == owner && r["facts"].is_object());
    let name =
        names.find_map(|r| r["name"].as_str().filter(|n| n.ends_with(host)).map(str::to_owned))?;
    let word = format!("umid={name}");
    let all: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|w| w == word.as_bytes())
        })
        .collect();
    let parent = |pid: u32| -> u32 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    let kernel = all.iter().copied().find(|pid| !all.contains(&parent(*pid)))?;
    Some((kernel, all.into_iter().filter(|pid| *pid != kernel).collect()))
}

#[test]
fn a_guest_that_dies_is_booted_again_and_the_trials_go_on() {
    let plan = "[testbed.guests]\nkind = \"guests\"\ntipc = \"kernel\"\n[group.x]\ntestbed = \"guests\"\n\
         mechanisms = [\"tcp\", \"tipc-kernel-stream\"]\nworkload = \"ping-pong\"\nsize_bytes = [64, 512]\n\
         trials = 4\nwarmup_ms = 5\nmeasure_ms = 50\n";
    let place = Place::new(plan);
    let mut child = place.start();
    let owner = child.id();
    let written = || {
        let Ok(runs) = fs::read_dir(place.dir.path().join("out")) else { return 0 };
        let texts =
            runs.flatten().filter_map(|r| fs::read_to_string(r.path().join("results.jsonl")).ok());
        texts.map(|text| text.lines().count()).sum::<usize>()
    };
    let mut ended = false;
    await_that("the first records", || {
        ended = child.try_wait().unwrap().is_some();
        ended || written() >= 2
    });
    let skipped = place.records().into_iter().find(|r| r.status == Status::Skipped);
    if let Some(record) = skipped {
        child.wait().unwrap();
        let why = record.reason.unwrap_or_default();
        assert!(why.contains("needs root") || why.contains("was not found"), "{why}");
        eprintln!("SKIP a_guest_that_dies: {why}; {}", record.remedy.unwrap_or_default());
        return;
    }
    assert!(!ended, "the run is over before a guest was killed");
    // Kill the kernel of one guest, then everything started by the kernel of the other, which makes it unresponsive.
    let (kernel, _) = guest_processes(owner, "-a").expect("guest a");
    signal(kernel as i32, "-KILL");
    let after = written() + 2;
    await_that("records after the first death", || written() >= after);
    let (_, helpers) = guest_processes(owner, "-b").expect("guest b");
    assert!(!helpers.is_empty());
    for helper in helpers {
        // One may exit when another does.
        let _ = Command::new("kill").args(["-KILL", &helper.to_string()]).output();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "trials failed");
    let records = place.records();
    assert_eq!(records.len(), 16);
    let failed: Vec<_> = records.iter().filter(|r| r.status == Status::Failed).collect();
    let reasons: Vec<_> = failed.iter().filter_map(|r| r.reason.as_deref()).collect();
    assert!((2..=3).contains(&reasons.len()), "{reasons:?}");
    assert!(reasons.iter().any(|why| why.contains("-a' ended")), "{reasons:?}");
    // If the role's own helper dies before the others, the guest's kernel ends the role and goes on.
    let of_b = ["-b' was ended: it did not answer", "on host 'b' was killed by signal"];
    assert!(reasons.iter().any(|why| of_b.iter().any(|said| why.contains(said))), "{reasons:?}");
    let last = records.iter().rfind(|r| r.status != Status::Skipped).unwrap();
    assert!(matches!(last.status, Status::Ok | Status::Degraded), "{:?}", last.reason);
    let b_died = reasons.iter().any(|why| why.contains(of_b[0]));
    for host in ["a", "b"].into_iter().filter(|host| *host == "a" || b_died) {
        let again = format!("host '{host}' died during this run and was booted again");
        assert!(last.warnings.iter().any(|w| w.contains(&again)), "{:?}", last.warnings);
    }
    assert!(!holds_networks(owner));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}
