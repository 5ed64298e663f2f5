//! The packet counters of two hosts, compared with what the protocols must send and with what tshark captures; and how
//! eight senders share a slow receiver. Needs root, `ip`, `tc`, `ethtool` and `tshark`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_netlab::{Impairment, Lab, Link, NetError, Topology};
use crossway_records::record::{Record, Status, Transport};
use crossway_records::records_io::read_records;

/// Runs a plan and returns its records. Returns `None` and prints the reason if this machine cannot create hosts.
fn measure(plan: &str, more: &[&str]) -> Option<Vec<Record>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.toml");
    std::fs::write(&file, plan).unwrap();
    let output = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .args(["measure", file.to_str().unwrap(), "--out"])
        .arg(dir.path().join("out"))
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let run = std::fs::read_dir(dir.path().join("out")).unwrap().next().unwrap().unwrap();
    let records = read_records(&run.path()).unwrap().records;
    for record in &records {
        match record.status {
            Status::Ok | Status::Degraded => {}
            Status::Skipped => {
                let remedy = record.remedy.as_deref().unwrap_or_default();
                eprintln!("SKIP packets: {}; {remedy}", record.reason.as_deref().unwrap());
                return None;
            }
            Status::Failed => panic!("{record:?}"),
        }
    }
    Some(records)
}

/// Creates a network of the hosts `a` and `b`; returns it with the value for `--hosts`. Returns `None` and prints the
/// reason if this machine cannot create hosts.
fn up(name: &str, impairment: Impairment) -> Option<(Lab, String)> {
    let name = format!("{name}{:x}", std::process::id() % 0xfff);
    let link = Link { impairment, ..Link::default() };
    let topology = Topology { name: Some(name), ..Topology::of(&["a", "b"], link) };
    match Lab::up(&topology) {
        Ok(lab) => {
            // Quoted, because a list of CPUs contains commas, too.
            let words = |host| {
                let words = lab.host(host).unwrap().prefix();
                words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
            };
            let hosts = format!("{},{}", words("a"), words("b"));
            Some((lab, hosts))
        }
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP packets: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_round_trip_is_two_packets_and_the_series_sees_them_too() {
    const PLAN: &str = "about = 'round trips'\n[testbed.n]\nkind = 'netlab'\n[group.g]\ntestbed = 'n'\n\
        mechanisms = ['tcp-nodelay', 'udp']\nworkload = 'ping-pong'\nsize_bytes = 64\nmessages = 200\n\
        trials = 5\nwarmup_ms = 40\npacket_series_ms = 5\n";
    let Some(records) = measure(PLAN, &[]) else { return };
    let mut exact = BTreeMap::<&str, u32>::new();
    for record in &records {
        let packets = record.packets.expect("two hosts tell the ways apart");
        // A host that was busy for 40 ms acknowledges before it answers, or resolves its peer's address again.
        assert!(packets.per_msg >= 2.0 && packets.msgs_per_packet <= 1.0, "{record:?}");
        let is_exact = packets.per_msg == 2.0 && packets.reverse_per_forward == Some(1.0);
        if is_exact {
            *exact.entry(record.mechanism.as_str()).or_default() += 1;
        }
        let hosts: Vec<&str> = record.host_cpu.iter().map(|h| h.host.as_str()).collect();
        assert_eq!(hosts, ["a", "b"]);
        assert!(record.host_cpu.iter().all(|h| h.load().is_some_and(|load| load >= 0.0)));
        for iface in record.net.iter().filter(|i| i.name == "eth0") {
            assert_eq!((iface.tx_dropped, iface.rx_dropped), (Some(0), Some(0)), "{iface:?}");
            let of_it = |s: &&crossway_records::record::PacketSeries| {
                s.host == iface.host && s.interface == iface.name
            };
            let series = record.packet_series.iter().find(of_it).expect("a series of it");
            let last = series.samples.last().expect("a last sample");
            // The series begins before the window's first packet and ends after its last.
            assert!(last.tx_packets >= iface.tx_packets && last.rx_packets >= iface.rx_packets);
            assert_eq!((series.interval_ms, series.samples[0].tx_packets), (5, 0));
            assert!(series.cost_ns > 0);
        }
        match record.mechanism.as_str() {
            "udp" => assert!(record.nulls["retransmissions"].contains("UDP")),
            _ => {
                let by: Vec<_> = record.retransmissions.iter().map(|t| t.transport).collect();
                assert_eq!(by, [Transport::Tcp; 2]);
                // If the machine pauses for longer than TCP waits, TCP retransmits.
                let again: u64 = record.retransmissions.iter().map(|t| t.again).sum();
                assert!(again == 0 || !is_exact, "{record:?}");
                assert!(record.retransmissions.iter().all(|t| t.sent >= 200));
            }
        }
    }
    assert_eq!(exact.len(), 2, "never exactly two packets a round trip: {exact:?} of {records:?}");
}

#[test]
fn a_stream_s_small_messages_share_packets_and_datagrams_do_not() {
    const PLAN: &str = "about = 'small'\n[testbed.n]\nkind = 'netlab'\n[group.g]\ntestbed = 'n'\n\
        mechanisms = ['tcp', 'udp']\nworkload = 'throughput'\nsize_bytes = 16\nmessages = 20000\n\
        trials = 2\nwarmup_ms = 20\n";
    let Some(records) = measure(PLAN, &[]) else { return };
    for record in &records {
        let packets = record.packets.expect("two hosts tell the ways apart");
        match record.mechanism.as_str() {
            "tcp" => assert!(packets.msgs_per_packet > 3.0, "{packets:?}"),
            // Some additional packets signal the end to the receiver.
            _ => assert!((0.9..=1.0).contains(&packets.msgs_per_packet), "{packets:?}"),
        }
    }
}

/// A process that captures packets on a host's interface; killed on drop.
struct Capture(Child);

impl Capture {
    fn start(lab: &Lab, host: &str, file: &Path) -> Option<Capture> {
        let mut command = lab.host(host).unwrap().command("tshark");
        let file = file.to_str().unwrap();
        command.args(["-q", "-i", "eth0", "-f", "tcp", "-w", file, "-a", "duration:120"]);
        let mut child = match command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("SKIP the capture: {error}; sudo apt-get install tshark");
                return None;
            }
        };
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("Capturing on") {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                eprintln!("SKIP the capture: tshark ended; sudo apt-get install tshark");
                return None;
            }
        }
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Some(Capture(child))
    }
}

/// A port without a listener. An attempt to connect to it is the last event in a capture.
const LAST_CALL: &str = "9";

impl Capture {
    /// Stops the capture after everything that was sent over the link is in the file. tshark receives packets in blocks
    /// and loses an unfinished block when it stops. Therefore this attempts a last connection, and waits until that
    /// attempt is in the file.
    fn finish(self, lab: &Lab, host: &str, other: &str, file: &Path) {
        let call = format!("exec 3<>/dev/tcp/{other}/{LAST_CALL}");
        let refused = lab.host(host).unwrap().command("bash").args(["-c", &call]).output().unwrap();
        assert!(!refused.status.success(), "somebody listens at port {LAST_CALL} of {other}");
        let until = Instant::now() + Duration::from_secs(120);
        while fields(file, &format!("tcp.port == {LAST_CALL}")).is_empty() {
            assert!(Instant::now() < until, "the capture never saw the last call");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Returns the number of frames in each TCP connection, in the order of the connections.
fn connections(file: &Path) -> Vec<u64> {
    let mut frames = BTreeMap::<u64, u64>::new();
    for stream in fields(file, &format!("!(tcp.port == {LAST_CALL})")) {
        *frames.entry(stream).or_default() += 1;
    }
    frames.into_values().collect()
}

/// Returns the connection number of each captured frame that matches the display filter.
fn fields(file: &Path, filter: &str) -> Vec<u64> {
    let told = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-Y", filter, "-T", "fields", "-e", "tcp.stream"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&told.stdout);
    text.lines().map(|line| line.trim().parse().unwrap()).collect()
}

/// An exchange on a separate connection takes TCP at least seven packets (item C5 of the cluster study).
#[test]
fn an_exchange_s_packets_are_those_that_tshark_sees() {
    const EXCHANGES: usize = 40;
    const PLAN: &str = "about = 'exchange'\n[testbed.h]\nkind = 'hosts'\n[group.g]\ntestbed = 'h'\n\
        mechanisms = 'tcp'\nworkload = 'exchange'\nsize_bytes = 64\nmessages = 40\ntrials = 1\n\
        warmup_ms = 1\n";
    let Some((lab, hosts)) = up("pkx", Impairment::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    // A stray packet of the network itself (such as address resolution) may be in one window, but not in each.
    for attempt in 0..5 {
        let file = folder.path().join(format!("{attempt}.pcap"));
        let Some(capture) = Capture::start(&lab, "a", &file) else { return };
        let Some(records) = measure(PLAN, &["--hosts", &hosts]) else { return };
        capture.finish(&lab, "a", "10.77.0.2", &file);
        let [record] = &records[..] else { panic!("one trial, not {}", records.len()) };
        let metered = record.packets.expect("two hosts tell the ways apart").per_msg;
        let all = connections(&file);
        // The last connections are the measured ones.
        let captured: u64 = all.iter().rev().take(EXCHANGES).sum();
        let captured = captured as f64 / EXCHANGES as f64;
        assert!(metered >= 7.0 && captured >= 7.0, "{metered} metered, {captured} captured");
        if metered == captured {
            return;
        }
        seen.push((metered, captured, all.len()));
    }
    panic!("packets per exchange, metered and captured, connections in all: {seen:?}");
}

#[test]
fn what_a_lossy_link_makes_tcp_send_again_is_reported() {
    const PLAN: &str = "about = 'loss'\n[testbed.h]\nkind = 'hosts'\n[group.g]\ntestbed = 'h'\n\
        mechanisms = 'tcp'\nworkload = 'throughput'\nsize_bytes = 4096\nmessages = 600\ntrials = 1\n\
        warmup_ms = 1\n";
    let impairment = Impairment { loss: 0.02, seed: 7, ..Impairment::default() };
    let Some((_lab, hosts)) = up("pkl", impairment) else { return };
    let Some(records) = measure(PLAN, &["--hosts", &hosts]) else { return };
    let again: u64 = records[0].retransmissions.iter().map(|t| t.again).sum();
    // About 1,700 segments, of which one in fifty is lost.
    assert!(again > 0, "{:?}", records[0].retransmissions);
    let sent: u64 = records[0].retransmissions.iter().map(|t| t.sent).sum();
    assert!(sent > 1_000, "{:?}", records[0].retransmissions);
}

/// Many senders share one slow receiver (item T11 of the Toshiba study).
#[test]
fn eight_senders_share_a_slow_receiver_and_the_record_says_how() {
    const WORK_US: u64 = 40;
    const PLAN: &str = "about = 'fairness'\n[group.g]\nmechanisms = ['fifo', 'pipe', 'tcp']\n\
        workload = { fan-in = { senders = 8, receiver_us = 40 } }\nsize_bytes = 1024\ntrials = 4\n\
        placement = 'unpinned'\nwarmup_ms = 20\nmeasure_ms = 300\n";
    let Some(records) = measure(PLAN, &[]) else { return };
    assert_eq!(records.len(), 3 * 4);
    let mut slept = BTreeSet::<&str>::new();
    for record in &records {
        let fairness = record.fairness.as_ref().expect("several senders");
        assert_eq!(fairness.shares.len(), 8);
        assert!((fairness.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{fairness:?}");
        assert!(fairness.jain > 0.124 && fairness.jain < 1.000_001, "{fairness:?}");
        let (sleeps, wasted) = (fairness.sleeps_per_msg, fairness.wasted_wakeups_per_msg);
        let (sleeps, wasted) = (sleeps.expect("counted"), wasted.expect("counted"));
        assert!(sleeps >= 0.0 && wasted <= sleeps, "{fairness:?}");
        // If the machine pauses, a window may pass in which no sender has to sleep; but not every window.
        if sleeps > 0.0 {
            slept.insert(&record.mechanism);
        }
        // The receiver accepts at most one message per unit of work, so the senders had to wait for one another.
        let counts = record.counts.expect("counted");
        let wall_ns = record.throughput.expect("timed").wall_ns;
        assert!(wall_ns >= counts.received * WORK_US * 1000, "{record:?}");
        assert!(fairness.longest_wait_ns > WORK_US * 1000, "{fairness:?}");
        assert!(record.case.contains("fan-in-8-slow40us"), "{}", record.case);
    }
    assert_eq!(slept.len(), 3, "only with these somebody slept: {slept:?} of {records:?}");
}
