//! `crossway channel`: two programs that connect by a name, a switch while lines are sent, and the messages about it;
//! then the same programs on two hosts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossway_lab::moves::MoveRecord;
use crossway_netlab::{Lab, Link, NetError, Topology};
use crossway_records::records_io::RESULTS;
use crossway_records::side_records;
use crossway_tipc_client::LoneTipcd;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn channel(dir: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    command.arg("channel").args(args).env("CROSSWAY_CHANNEL_DIR", dir.path().join("names"));
    command
}

fn run(dir: &tempfile::TempDir, args: &[&str]) -> Output {
    channel(dir, args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_listener_that_is_interrupted_leaves_no_name() {
    for (more, signal) in [(&["--once"][..], 2), (&[], 15)] {
        let dir = tempfile::tempdir().unwrap();
        let names = dir.path().join("names");
        let args = [&["listen", "camera/left"], more].concat();
        let mut listening = Running(channel(&dir, &args).spawn().unwrap());
        let limit = Instant::now() + Duration::from_secs(60);
        while !names.join("camera%2Fleft").exists() {
            assert!(Instant::now() < limit, "it does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        crossway_sys::proc::signal(listening.0.id(), signal);
        assert_eq!(listening.0.wait().unwrap().code(), Some(130));
        assert_eq!(std::fs::read_dir(&names).unwrap().count(), 0, "no name is left");
    }
}

#[test]
fn lines_pass_by_name_a_switch_is_explained_and_top_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut listening =
        Running(channel(&dir, &["listen", "camera/left", "--echo", "--once"]).spawn().unwrap());
    let mut sending = Running(
        channel(&dir, &["send", "camera/left", "--answers", "--explain"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut input = sending.0.stdin.take().unwrap();
    let mut answers = BufReader::new(sending.0.stdout.take().unwrap()).lines();
    let mut said = BufReader::new(sending.0.stderr.take().unwrap()).lines();
    let mut exchange = |line: &str| {
        writeln!(input, "{line}").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), line);
    };
    exchange("first");
    let asked = run(&dir, &["switch", "camera/left", "shm-eventfd"]);
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let limit = Instant::now() + Duration::from_secs(120);
    let switch = loop {
        assert!(Instant::now() < limit, "no switch");
        exchange("more");
        let line = said.next().unwrap().unwrap();
        if line.contains("-> shm-eventfd") {
            break line;
        }
    };
    assert!(
        switch.contains("camera/left") && switch.ends_with("the program asked for it"),
        "{switch}"
    );
    let top = run(&dir, &["top", "--once", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(all[0]["name"], "camera/left");
    assert!(all[0]["received_msgs"].as_u64().unwrap() >= 2, "{all}");
    let table = run(&dir, &["top", "--once", "--interval-s", "0.1"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("camera/left") && table.contains("switches"), "{table}");
    drop(input);
    assert!(sending.0.wait().unwrap().success());
    assert!(listening.0.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(dir.path().join("names")).unwrap().count(), 0, "no name is left");
}

#[test]
fn a_sender_that_ends_normally_closed_and_did_not_die() {
    let dir = tempfile::tempdir().unwrap();
    let mut listen = channel(&dir, &["listen", "lines", "--explain"]);
    let mut listening =
        Running(listen.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(listening.0.stdout.take().unwrap()).lines();
    for _ in 0..10 {
        let mut send =
            Running(channel(&dir, &["send", "lines"]).stdin(Stdio::piped()).spawn().unwrap());
        let mut input = send.0.stdin.take().unwrap();
        (0..2_000).for_each(|n| writeln!(input, "{n}").unwrap());
        drop(input);
        for n in 0..2_000 {
            assert_eq!(lines.next().unwrap().unwrap(), n.to_string());
        }
        assert!(send.0.wait().unwrap().success());
    }
    listening.0.kill().unwrap();
    let events = BufReader::new(listening.0.stderr.take().unwrap()).lines();
    let events: Vec<String> = events.map(Result::unwrap).collect();
    assert!(!events.is_empty());
    assert!(!events.iter().any(|event| event.contains("died")), "{events:#?}");
}

#[test]
fn what_cannot_be_is_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&["send", "nobody", "--wait-s", "0"][..], "nobody listens on channel 'nobody'"),
        (&["switch", "nobody", "shm-futex"], "no channel 'nobody' is open"),
        (&["switch", "nobody", "smoke"], "unknown transport 'smoke'"),
        (&["switch", "nobody", "tipc"], "channels do not switch to tipc"),
        (&["listen", "a", "--key", "/no/such"], "/no/such"),
        (&["listen", "a b"], "'a b' is not a valid channel name"),
        (&["listen", "a", "--profile", "/no/such"], "profile /no/such"),
        (&["listen", "a", "--pin", "shm-spin", "--forbid", "shm-spin"], "allows no transport"),
    ] {
        let output = run(&dir, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
    for args in [&["key", "--hosts", "/no/such"][..], &["top", "--key", "/no/such"]] {
        let output = run(&dir, args);
        assert_eq!(output.status.code(), Some(2), "an option without effect: {args:?}");
    }
    let top = run(&dir, &["top", "--once", "--interval-s", "0"]);
    assert!(String::from_utf8(top.stdout).unwrap().starts_with("No channel is open in "));
}

/// A running program with its standard input and its output.
struct Sending {
    child: Running,
    input: Option<ChildStdin>,
    answers: std::io::Lines<BufReader<ChildStdout>>,
    said: std::io::Lines<BufReader<ChildStderr>>,
}

impl Sending {
    fn start(mut command: Command) -> Sending {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        let input = child.0.stdin.take();
        let answers = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let said = BufReader::new(child.0.stderr.take().unwrap()).lines();
        Sending { child, input, answers, said }
    }

    fn exchange(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let answer = self.answers.next().and_then(Result::ok).unwrap_or_else(|| {
            panic!("no answer: {:?}", self.said.by_ref().map_while(Result::ok).collect::<Vec<_>>())
        });
        assert_eq!(answer, line);
    }

    /// Waits for the program's next line that contains `words`, and returns it.
    fn says(&mut self, words: &str) -> String {
        let line = self.said.by_ref().map_while(Result::ok).find(|line| line.contains(words));
        line.unwrap_or_else(|| panic!("it never says {words}"))
    }

    fn end(mut self) {
        self.input = None;
        assert!(self.child.0.wait().unwrap().success());
    }
}

/// Two hosts on one network, each with a directory of names and a tipcd.
struct TwoHosts {
    tipcds: [Option<LoneTipcd>; 2],
    lab: Lab,
    dir: tempfile::TempDir,
}

impl TwoHosts {
    fn up() -> Result<TwoHosts, NetError> {
        let lab = Lab::up(&Topology::of(&["a", "b"], Link::default()))?;
        let mut hosts = TwoHosts { tipcds: [None, None], lab, dir: tempfile::tempdir().unwrap() };
        for n in 0..2 {
            hosts.start_tipcd(n);
        }
        Ok(hosts)
    }

    fn start_tipcd(&mut self, n: usize) {
        let host = &self.lab.network().hosts[n];
        let mut command = host.command(assert_cmd::cargo::cargo_bin!("crossway"));
        let address = format!("100{}", n + 1);
        command.args(["tipcd", "--id", &host.name, "--address", &address]);
        command.arg(format!("eth:{}", host.interface));
        self.tipcds[n] = Some(LoneTipcd::start(command, &self.socket(n)).unwrap());
    }

    fn socket(&self, n: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("tipcd{n}"))
    }

    /// Returns a command that runs `crossway channel` on a host.
    fn channel(&self, n: usize, args: &[&str]) -> Command {
        let host = &self.lab.network().hosts[n];
        let mut command = host.command(assert_cmd::cargo::cargo_bin!("crossway"));
        command.arg("channel").args(args);
        command.env("CROSSWAY_CHANNEL_DIR", self.dir.path().join(format!("names{n}")));
        command
    }

    /// Starts a listener on the first host, then on each host in turn a program that sends to it. Checks that the
    /// program on the second host is connected by the mechanism `between`. `settings` gives each host's environment
    /// variables.
    fn exchange(&self, settings: &dyn Fn(usize) -> Vec<(&'static str, String)>, between: &str) {
        let start = |n: usize, args: &[&str]| {
            let mut command = self.channel(n, args);
            command.envs(settings(n));
            command
        };
        let listening = start(0, &["listen", "camera/left", "--echo"]).spawn();
        let _listening = Running(listening.unwrap());
        for (n, on) in [(0, "uds-seqpacket"), (1, between)] {
            let words = ["send", "camera/left", "--answers", "--explain", "--wait-s", "60"];
            let mut sending = Sending::start(start(n, &words));
            sending.exchange("a line");
            let connected = sending.says("connected on");
            assert!(connected.ends_with(on), "{connected}");
            if n == 0 {
                // It switches without being asked, as soon as memory is available.
                sending.says("uds-seqpacket -> shm-futex");
            }
            sending.exchange("another line");
            sending.end();
        }
    }
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_same_words_lead_through_memory_within_a_host_and_over_tcp_or_tipc_between_hosts() {
    let mut hosts = match TwoHosts::up() {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("SKIP channels between hosts: {why}"),
    };
    let dir = hosts.dir.path().to_owned();
    let key = dir.join("key").display().to_string();
    let make = || hosts.channel(0, &["key", &key]).output().unwrap().status.code();
    assert_eq!((make(), make()), (Some(0), Some(2)), "a key is not overwritten");
    let address = format!("{}:7400", hosts.lab.network().hosts[0].ipv4);
    let list = file(&dir, "hosts", &format!("camera/left {address} # the first host\n"));
    let tcp =
        |_| vec![("CROSSWAY_CHANNEL_HOSTS", list.clone()), ("CROSSWAY_CHANNEL_KEY", key.clone())];
    hosts.exchange(&tcp, "tcp");

    // Messages travel by UDP if both ends allow loss.
    let network = ["--hosts", &list, "--key", &key, "--lossy"];
    let listen = [&["listen", "camera/left", "--echo", "--once"], &network[..]].concat();
    let listening = Running(hosts.channel(0, &listen).spawn().unwrap());
    let check = [&["check", "camera/left", "--seconds", "1", "--json"], &network[..]].concat();
    let output = hosts.channel(1, &check).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{checked}");
    let legs = checked["legs"].as_array().unwrap().iter();
    let on_udp = |leg: &serde_json::Value| leg["transport"] == "udp";
    assert!(legs.filter(|leg| on_udp(leg)).any(|leg| leg["messages"] != 0), "{checked}");
    drop(listening);

    let sockets = [hosts.socket(0), hosts.socket(1)];
    let tipc = |n: usize| {
        let socket = sockets[n].display().to_string();
        vec![("CROSSWAY_CHANNEL_TIPC", socket), ("CROSSWAY_CHANNEL_KEY", key.clone())]
    };
    hosts.exchange(&tipc, "tipc");

    // Neither a key nor --plain is given.
    let said = hosts.channel(1, &["send", "camera/left", "--hosts", &list]).output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("CROSSWAY_CHANNEL_KEY"), "{said}");

    // If a tipcd ends and is restarted, at either host, the channel continues where it stopped.
    let [here, there] = sockets.each_ref().map(|socket| socket.display().to_string());
    let listen = ["listen", "camera/left", "--echo", "--plain", "--tipc", &here];
    let _listening = Running(hosts.channel(0, &listen).spawn().unwrap());
    let words = ["send", "camera/left", "--answers", "--explain", "--plain", "--tipc", &there];
    let mut sending = Sending::start(hosts.channel(1, &words));
    sending.exchange("before");
    for n in [0, 1] {
        hosts.tipcds[n] = None;
        hosts.start_tipcd(n);
        for _ in 0..3 {
            sending.exchange("after");
        }
        sending.says("found the peer again");
    }
    sending.end();
}

/// A plan with one small case, which also measures a process that moves between nodes.
const PLAN: &str = r#"
moves = true
[group.one]
mechanisms = "pipe"
workload = "throughput"
size_bytes = 64
messages = 100
trials = 1
"#;

#[test]
fn a_program_moves_to_another_node_and_back_and_the_run_keeps_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("own.toml"), PLAN).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    let output = command.args(["measure", "./own.toml", "--json"]).current_dir(dir.path());
    let output = output.stdin(Stdio::null()).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = dir.path().join(told["dir"].as_str().expect("the run's folder"));
    let moves: Vec<MoveRecord> = side_records::read_beside(&run).unwrap();
    let [record] = moves.as_slice() else { panic!("{moves:?}") };
    let Some(checked) = &record.result else {
        let reason = record.reason.as_deref().unwrap_or_default();
        assert!(reason.contains("root"), "{record:?}");
        return eprintln!("SKIP moves between nodes: {reason}; remedy: run as root");
    };
    assert!(checked.is_exact() && checked.sent > 0, "{checked:?}");
    let [away, back] = checked.moves.as_slice() else { panic!("{checked:?}") };
    let there_and_back = (away.to.id(), back.from.id(), back.to.id());
    assert_eq!(there_and_back, ("tipc", "tipc", "uds-seqpacket"), "{checked:?}");
    // On its first node it uses whichever local transport the policy considers cheapest.
    let ids: Vec<&str> = checked.legs.iter().map(|leg| leg.transport.id()).collect();
    assert!(ids.first() != Some(&"tipc") && ids.last() != Some(&"tipc"), "{checked:?}");
}

#[test]
fn a_profile_is_computed_from_records_and_read_by_channels() {
    let dir = tempfile::tempdir().unwrap();
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let records = std::fs::read_dir(records).unwrap().map(|entry| entry.unwrap().path());
    let runs = records.filter(|folder| folder.join(RESULTS).exists());
    let records = runs.max().expect("records of a reference run").display().to_string();
    let file = dir.path().join("costs.json").display().to_string();
    let table = run(&dir, &["profile", &records, "-o", &file]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(table.status.success(), "{}", String::from_utf8_lossy(&table.stderr));
    let ring = text.lines().find(|line| line.trim_start().starts_with("shm-futex")).unwrap();
    assert!(ring.contains("15 + 15") && !ring.contains("default"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let cost = |transport: &str, what: &str| costs["costs"][transport][what].as_f64().unwrap();
    for transport in ["shm-spin", "shm-futex", "uds-seqpacket"] {
        assert!(cost(transport, "message_ns") > 0.0, "{costs}");
    }
    // Waking a sleeper costs more than noticing a message while spinning, on any machine.
    assert!(cost("shm-futex", "wake_ns") > cost("shm-spin", "wake_ns"), "{costs}");
    let listen = ["listen", "camera/left", "--once", "--echo", "--profile", &file];
    let _listening = Running(channel(&dir, &listen).spawn().unwrap());
    let checked = run(&dir, &["check", "camera/left", "--seconds", "0.05"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let empty = dir.path().join("results.jsonl");
    std::fs::write(&empty, "").unwrap();
    let refused = run(&dir, &["profile", &empty.display().to_string()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("crossway measure quick"));
}

#[test]
fn a_check_counts_and_says_what_is_wrong_with_its_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let _listening = Running(channel(&dir, &["listen", "camera/left", "--echo"]).spawn().unwrap());
    let checked = run(&dir, &["check", "camera/left", "--seconds", "0.1"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{text}");
    assert!(text.contains("0 lost, 0 duplicated, 0 reordered, 0 damaged"), "{text}");
    for (arg, value) in [("--size", "7"), ("--seconds", "-1")] {
        let refused = run(&dir, &["check", "camera/left", &format!("{arg}={value}")]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8(refused.stderr).unwrap().contains(arg));
    }
    // Another process takes the name over; the first one exits successfully.
    let nobody = run(&dir, &["listen", "nobody", "--take-over", "--wait-s", "0"]);
    assert_eq!(nobody.status.code(), Some(2));
}
