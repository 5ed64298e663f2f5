//! Measuring between hosts: agents behind command prefixes of every kind, and what happens when they fail.

mod place;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crossway_lab::inputs::Ends;
use crossway_lab::record::{Record, Span, Status};
use place::{Place, await_that, signal};

const CROSSWAY: &str = env!("CARGO_BIN_EXE_crossway");

/// What crosses hosts, and what does not.
const PLAN: &str = r#"
[testbed.pair]
kind = "hosts"
[defaults]
size_bytes = [64, 4096]
trials = 1
warmup_ms = 5
measure_ms = 10
[group.between]
testbed = "pair"
mechanisms = ["tcp", "udp"]
workload = ["throughput", "ping-pong", { paced = { burst_bytes = 64, period_us = 1000 } }]
[group.within]
testbed = "pair"
ends = "within"
mechanisms = ["pipe", "shm-futex", "tcp"]
workload = ["throughput", "ping-pong", { fan-in = { senders = 2 } }]
"#;

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The records of a run that went to its end, all verified.
fn measured(place: &Place, output: &Output) -> Vec<Record> {
    assert!(output.status.success(), "{:?}: {}", output.status, errors(output));
    let records = place.records();
    for record in &records {
        let spoiled = record.status == Status::Degraded;
        assert!(record.status == Status::Ok || spoiled, "{}: {:?}", record.case, record.reason);
        let counts = record.counts.expect("counts");
        assert!(counts.received > 0 && counts.corrupt == 0, "{}: {counts:?}", record.case);
        assert!(record.throughput.expect("a speed").wall_ns > 0);
    }
    records
}

/// Hosts, roles and meters of each record fit together.
fn check_hosts(records: &[Record], first: &str, last: &str) {
    for record in records {
        let names: Vec<&str> = record.hosts.iter().map(|host| host.name.as_str()).collect();
        let (roles, meters) = (&record.roles, &record.host_cpu);
        assert_eq!(roles[0].host, first, "{}", record.case);
        let metered: Vec<&str> = meters.iter().map(|cpu| cpu.host.as_str()).collect();
        assert_eq!(metered, names);
        match record.inputs.ends {
            Ends::Between => {
                assert_eq!(names, [first, last]);
                assert_eq!(record.host, format!("{first} to {last}"));
                assert_eq!(roles[roles.len() - 1].host, last);
            }
            Ends::Within => {
                assert_eq!(names, [first]);
                assert!(roles.iter().all(|role| role.host == first));
            }
        }
    }
}

fn await_nothing_left(place: &Place) {
    await_that("the end of everything", || place.leftovers().is_empty());
}

#[test]
fn plain_prefixes_are_hosts_and_share_their_clock() {
    let place = Place::new(PLAN);
    let output = place.measure(&["--hosts", "nice -n 0,env A=1"]);
    let records = measured(&place, &output);
    assert_eq!(records.len(), 2 * 2 * 3 + 2 * 3 * 3);
    check_hosts(&records, "nice -n 0", "env A=1");
    // One kernel, one clock: then instants may be compared.
    let paced: Vec<_> = records.iter().filter(|r| r.case.contains("paced")).collect();
    assert!(paced.iter().all(|r| r.latency_ns.iter().any(|l| l.span == Span::OneWay)));
    assert!(records.iter().all(|r| r.throughput.unwrap().sender_wall_ns.is_none()));
    let told = errors(&output);
    assert!(told.contains("host 'env A=1': Linux "), "{told}");
    assert_eq!(place.leftovers(), Vec::<String>::new());

    // The hosts' fingerprints stand beside this machine's.
    let text = fs::read_to_string(place.run().join("env.json")).unwrap();
    let environment: serde_json::Value = serde_json::from_str(&text).unwrap();
    let id = &records[0].hosts[0].environment;
    assert_eq!(environment["hosts"][id.as_str()]["machine_id"], **id);

    // A record alone is enough to repeat it, hosts included.
    let line = format!("{}:1", place.run().display());
    let again = place.command(&["rerun", &line, "--out", "again", "--json"]).output().unwrap();
    assert!(again.status.success(), "{}", errors(&again));
}

#[test]
fn a_plan_without_testbeds_runs_what_crosses_hosts_and_goes_on_there() {
    let place = Place::new(
        "[group.x]\nmechanisms = [\"pipe\", \"tcp\"]\nworkload = \"ping-pong\"\nsize_bytes = 64\n\
         trials = 60\nwarmup_ms = 5\nmeasure_ms = 20\n",
    );
    let mut command = place.command(&["measure", "plan.toml", "--hosts", "env,local"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    place.await_records(3);
    signal(child.id() as i32, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    assert!(place.records().len() < 60);

    let run = place.run().display().to_string();
    let output = place.command(&["measure", "--resume", &run]).output().unwrap();
    let records = measured(&place, &output);
    assert_eq!(records.len(), 60);
    check_hosts(&records, "env", "local");
}

#[test]
fn hosts_that_cannot_be_used_are_one_clear_error_each() {
    let place = Place::new(PLAN);
    let greeting =
        concat!("crossway-agent protocol=2 version=", env!("CARGO_PKG_VERSION"), " records=2");
    let nonsense = format!("sh -c 'echo {greeting}; echo garbage; cat'");
    for (host, says, remedy) in [
        ("no-such-program x", "cannot run 'no-such-program'", "correct the words of --hosts"),
        ("false", "ended with code 1", "try it by hand: false "),
        (
            "ssh -o BatchMode=yes -o ConnectTimeout=5 -p 1 127.0.0.1",
            "Connection refused",
            "--agent-program",
        ),
        ("sh -c 'echo Welcome to x; cat'", "said 'Welcome to x'", "print nothing"),
        ("sh -c 'printf half; exit 3'", "said 'half'", "print nothing"),
        (
            "sh -c 'echo crossway-agent protocol=9 version=9.9 records=9; cat'",
            "runs crossway 9.9 (protocol 9, records 9), and this is",
            "install the same version",
        ),
        (nonsense.as_str(), "carried nonsense", "starts another agent"),
        ("env=10.0.0", "'10.0.0' is no IP address", "write each host as the words"),
        ("env", "named twice", "write each host as the words"),
    ] {
        let output = place.measure(&["--hosts", &format!("{host},env")]);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{host}: {errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.contains(says) && last.contains(remedy), "{host}: {errors}");
        assert_eq!(place.leftovers(), Vec::<String>::new(), "{host}");
    }
    assert!(!place.dir.path().join("out").exists(), "a run was begun");
}

#[test]
fn an_agent_refuses_who_is_no_controller_of_its_version() {
    for (line, says) in [
        ("crossway-controller protocol=9 version=9.9 records=9\n", "its controller is 9.9"),
        ("GET / HTTP/1.1\n", "not started by crossway"),
    ] {
        let agent = Command::new(CROSSWAY)
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut agent.stdin.as_ref().unwrap(), line.as_bytes()).unwrap();
        let output = agent.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains(says), "{}", errors(&output));
    }
}

#[test]
fn ctrl_c_while_a_host_keeps_silent_ends_at_once_with_all_it_started() {
    let place = Place::new(PLAN);
    let hosts = "sh -c 'sleep 1000; true',env";
    let mut command = place.command(&["measure", "plan.toml", "--hosts", hosts]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    await_that("the silent host", || {
        !place.processes(|line| line.starts_with("sleep 1000")).is_empty()
    });
    signal(child.id() as i32, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(errors(&output).contains("interrupted before the first trial"));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    assert!(!place.dir.path().join("out").exists(), "a run was begun");
}

/// Trials long enough to kill something in their midst.
const LONG: &str = r#"
[testbed.pair]
kind = "hosts"
[group.x]
testbed = "pair"
mechanisms = "tcp"
workload = "ping-pong"
size_bytes = [64, 65, 66]
trials = 3
warmup_ms = 5
measure_ms = 300
"#;

fn agents(place: &Place) -> Vec<i32> {
    place.processes(|line| line.trim_end().ends_with("crossway agent"))
}

fn start_long(place: &Place, hosts: &str) -> Child {
    let mut command = place.command(&["measure", "plan.toml", "--hosts", hosts]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_killed_agent_fails_its_trial_and_the_next_has_another() {
    let place = Place::new(LONG);
    let mut child = start_long(&place, "env,nice");
    place.await_records(1);
    signal(agents(&place)[0], "-KILL");
    assert_eq!(child.wait().unwrap().code(), Some(1), "a trial failed");
    let records = place.records();
    assert_eq!(records.len(), 9);
    let failed: Vec<_> = records.iter().filter(|r| r.status == Status::Failed).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let why = failed[0].reason.as_deref().unwrap();
    assert!(why.contains("agent was lost") && why.contains("was killed by signal 9"), "{why}");
    assert!(why.contains("host 'env'") || why.contains("host 'nice'"), "{why}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_host_whose_agents_die_three_times_in_a_row_is_given_up() {
    let place = Place::new(LONG);
    let mut child = start_long(&place, "env,nice");
    place.await_records(1);
    let mut status = None;
    await_that("the end of the run", || {
        for agent in agents(&place) {
            // It may have ended meanwhile.
            let _ = Command::new("kill").args(["-KILL", &agent.to_string()]).output();
        }
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(1));
    let records = place.records();
    let given_up = |r: &&Record| {
        r.status == Status::Skipped
            && r.reason.as_deref().unwrap().starts_with("3 agents in a row were lost")
    };
    assert!(records.iter().any(|r| given_up(&r)), "{records:?}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_controller_leaves_no_agent_and_no_role() {
    let place = Place::new(LONG);
    let mut child = start_long(&place, "env,nice");
    place.await_records(1);
    assert_eq!(agents(&place).len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    await_nothing_left(&place);
}

#[test]
fn all_pairs_of_three_hosts_are_measured_one_after_the_other() {
    let place = Place::new(&LONG.replace("[64, 65, 66]", "64").replace("300", "10"));
    let output = place.measure(&["--hosts", "env A=1,env A=2,local"]);
    let records = measured(&place, &output);
    let mut pairs: Vec<&str> = records.iter().map(|r| r.host.as_str()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs, ["env A=1 to env A=2", "env A=1 to local", "env A=2 to local"]);
    assert_eq!(records.len(), 9);
}

/// Whether this machine can make networks; else it says why not.
fn can_make_networks(test: &str) -> bool {
    let up = Command::new(CROSSWAY).args(["net", "up", "--hosts", "a", "--json"]).output().unwrap();
    if !up.status.success() {
        eprintln!("SKIP {test}: {}", errors(&up));
        return false;
    }
    let network: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    let name = network["name"].as_str().unwrap();
    Command::new(CROSSWAY).args(["net", "down", name]).status().unwrap().success()
}

/// Whether the process has left a network or a guest behind.
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
            // Nodes talk of themselves now and then, also while their programs use shared memory.
            Ends::Within if record.mechanism.starts_with("tipc") => {}
            Ends::Within => assert!(carried.contains(&"a lo".to_owned()), "{}", record.case),
        }
        if record.inputs.ends == Ends::Between && record.case.contains("throughput") {
            let bits_per_s = record.throughput.unwrap().bytes_per_s * 8.0;
            assert!(bits_per_s < 100e6, "{}: {bits_per_s}", record.case);
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
    assert!(output.status.success());
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
    // tcp, and every way of the kernel's TIPC: stream, seqpacket, rdm, dgram, multicast.
    assert_eq!(records.len(), 6 * 3);
    check_hosts(&records, "a", "b");
    for record in &records {
        assert_ne!(record.status, Status::Failed, "{}: {:?}", record.case, record.reason);
        // Another kernel than this one, and each with a clock of its own.
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
            assert!(why.contains("clocks are not the same"), "{why}");
        }
    }
    assert!(!holds_networks(owner));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

/// An sshd of its own: keys, configuration and port below the place; it ends with the value.
struct Sshd {
    server: Child,
    client: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts sshd on `address` behind the words of `prefix`; `None` where there is none.
fn sshd(place: &Place, prefix: &[&str], address: &str, port: u16) -> Option<Sshd> {
    if !Path::new("/usr/sbin/sshd").exists() {
        eprintln!("SKIP ssh: no /usr/sbin/sshd; sudo apt-get install openssh-server");
        return None;
    }
    let dir = place.dir.path();
    let file = |name: &str| dir.join(name).display().to_string();
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)])
            .status()
            .expect("ssh-keygen");
        assert!(made.success());
    }
    fs::create_dir_all("/run/sshd").expect("sshd's empty folder; needs root");
    let server = format!(
        "Port {port}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         UsePAM no\nPidFile none\nPermitRootLogin yes\nPrintMotd no\n",
        file("host"),
        file("user.pub"),
    );
    fs::write(dir.join("sshd_config"), server).unwrap();
    let client = format!(
        "Host there\n  HostName {address}\n  Port {port}\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  BatchMode yes\n",
        file("user"),
    );
    fs::write(dir.join("ssh_config"), client).unwrap();
    let words: Vec<&str> = prefix.iter().copied().chain(["/usr/sbin/sshd"]).collect();
    let server = Command::new(words[0])
        .args(&words[1..])
        .args(["-D", "-f", &file("sshd_config")])
        // Not in the place's folder, where a process counts as left over.
        .current_dir("/")
        .spawn()
        .expect("sshd");
    let sshd = Sshd { server, client: format!("ssh -F {} there", file("ssh_config")) };
    let mut login: Vec<&str> = prefix.to_vec();
    login.extend(sshd.client.split(' '));
    await_that("a login", || {
        let output = Command::new(login[0]).args(&login[1..]).arg("true").output().unwrap();
        output.status.success()
    });
    Some(sshd)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn ssh_on_loopback_is_a_host() {
    let place = Place::new(PLAN);
    let Some(sshd) = sshd(&place, &[], "127.0.0.1", free_port()) else { return };
    let hosts = format!("local,{}", sshd.client);
    let output = place.measure(&["--hosts", &hosts, "--agent-program", CROSSWAY]);
    let records = measured(&place, &output);
    check_hosts(&records, "local", &sshd.client);
    assert!(records.iter().all(|r| r.hosts.last().unwrap().prefix_kind != "env"));
    assert_eq!(place.leftovers(), Vec::<String>::new());

    // Not in the PATH there.
    let output = place.measure(&["--hosts", &hosts, "--agent-program", "/no/crossway"]);
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("ended with code 127") && told.contains("--agent-program"), "{told}");
}

#[test]
fn ssh_between_two_namespaces_finds_the_link_s_address() {
    if !can_make_networks("ssh_between_two_namespaces") {
        return;
    }
    let up = Command::new(CROSSWAY).args(["net", "up", "--json"]).output().unwrap();
    let network: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    let name = network["name"].as_str().unwrap().to_owned();
    struct Down(String);
    impl Drop for Down {
        fn drop(&mut self) {
            let _ = Command::new(CROSSWAY).args(["net", "down", &self.0]).status();
        }
    }
    let down = Down(name.clone());
    let (a, b) = (format!("cw-{name}-a"), format!("cw-{name}-b"));
    let place = Place::new(PLAN);
    let Some(sshd) = sshd(&place, &["ip", "netns", "exec", &b], "0.0.0.0", 2222) else { return };
    // From a, over the link, to b.
    let config = place.dir.path().join("ssh_config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("HostName 0.0.0.0", "HostName 10.77.0.2")).unwrap();
    let there = format!("ip netns exec {a} {}", sshd.client);
    let hosts = format!("ip netns exec {a},{there}");
    let output = place.measure(&["--hosts", &hosts, "--agent-program", CROSSWAY]);
    let records = measured(&place, &output);
    check_hosts(&records, &format!("ip netns exec {a}"), &there);
    for record in records.iter().filter(|r| r.inputs.ends == Ends::Between) {
        let packets = |at: usize| {
            let host = &record.hosts[at].name;
            let eth0 = record.net.iter().find(|i| i.host == *host && i.name == "eth0");
            eth0.map_or(0, |i| i.tx_packets)
        };
        assert!(packets(0) > 0 && packets(1) > 0, "{}: {:?}", record.case, record.net);
    }
    drop(sshd);
    drop(down);
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn mpirun_is_a_prefix() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("SKIP mpirun_is_a_prefix: no mpirun; sudo apt-get install openmpi-bin");
        return;
    }
    let place = Place::new(PLAN);
    let mpirun = "mpirun --allow-run-as-root -np 1 --host localhost";
    let output = place.measure(&["--hosts", &format!("{mpirun},local")]);
    let records = measured(&place, &output);
    check_hosts(&records, mpirun, "local");
    await_nothing_left(&place);
}
