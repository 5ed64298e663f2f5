//! Tests with real namespaces and links. Need root, `ip`, `tc` and `ethtool`.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crossway_netlab::{
    Host, HostSpec, Lab, Link, MAX_HOSTS, NetError, Network, Offloads, Topology,
};
use crossway_sys::netns::inside;

/// The environment variable with the number that the names of this test's networks contain. A test sets it for a
/// process that it starts, so that both use the same names.
const RUN: &str = "CROSSWAY_TEST_RUN";

/// A network name that no other run of these tests on this machine uses; `tag` has three characters at most.
fn own(tag: &str) -> String {
    let run = std::env::var(RUN).unwrap_or_else(|_| std::process::id().to_string());
    format!("{tag}{:x}", run.parse::<u32>().unwrap() & 0xf_ffff)
}

/// Remaining namespaces and state files of the network with the name from [`own`].
fn left(tag: &str) -> Vec<String> {
    let name = own(tag);
    let spaces = std::fs::read_dir("/run/netns").into_iter().flatten();
    let files = std::fs::read_dir("/run/crossway/net").into_iter().flatten();
    let ours = [format!("cw-{name}-"), format!("cw-{name}."), format!("{name}.")];
    spaces
        .chain(files)
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|file| ours.iter().any(|start| file.starts_with(start)))
        .collect()
}

/// The network, or `None` after printing the reason to standard error if this machine cannot have one.
fn up(test: &str, topology: &Topology) -> Option<Lab> {
    match Lab::up(topology) {
        Ok(lab) => Some(lab),
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP {test}: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn on(host: &Host, script: &str) -> Output {
    host.command("sh").args(["-c", script]).stdin(Stdio::null()).output().expect("ip runs")
}

fn say(host: &Host, script: &str) -> String {
    let out = on(host, script);
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn link(rate: Option<&str>, offloads: Offloads) -> Link {
    Link { rate: rate.map(|r| r.parse().unwrap()), offloads, ..Link::default() }
}

fn named(tag: &str, hosts: &[&str], link: Link) -> Topology {
    Topology { name: Some(own(tag)), ..Topology::of(hosts, link) }
}

/// Asserts that a datagram gets from `a` to `b` over IPv4 and over IPv6.
fn assert_reach(a: &Host, b: &Host) {
    for (from, to) in [(IpAddr::from(a.ipv4), IpAddr::from(b.ipv4)), (a.ipv6.into(), b.ipv6.into())]
    {
        let socket = |host: &Host, address: IpAddr| {
            let bound = inside(&host.namespace_path(), || UdpSocket::bind((address, 0)));
            bound.unwrap().unwrap_or_else(|e| panic!("{address}: {e}"))
        };
        let (near, far) = (socket(a, from), socket(b, to));
        near.send_to(b"over the link", far.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut buffer = [0; 64];
        let (length, source) = far.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{to}: {e}"));
        assert_eq!((&buffer[..length], source.ip()), (&b"over the link"[..], from));
    }
}

/// Sends `mebibytes` over TCP from the first host to the second; returns the rate in bits per second that the receiver
/// measured.
fn stream_bits_per_s(network: &Network, mebibytes: u32) -> f64 {
    let (a, b) = (&network.hosts[0], &network.hosts[1]);
    let receiver = "import socket,time
s=socket.create_server(('',5001)); print('ready',flush=True); c,_=s.accept()
n=len(c.recv(65536)); t=time.monotonic()
while True:
    d=c.recv(1<<20)
    if not d: break
    n+=len(d)
print(n*8/(time.monotonic()-t))";
    let mut far = b
        .command("python3")
        .args(["-c", receiver])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ip runs");
    let mut out = BufReader::new(far.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let sender = format!(
        "import socket
s=socket.create_connection(('{}',5001))
for _ in range({mebibytes}): s.sendall(bytes(1<<20))",
        b.ipv4
    );
    assert!(a.command("python3").args(["-c", &sender]).status().unwrap().success());
    line.clear();
    out.read_line(&mut line).unwrap();
    assert!(far.wait().unwrap().success());
    line.trim().parse().expect("a rate")
}

/// Packets and bytes that host `a` sent.
fn sent(lab: &Lab) -> (u64, u64) {
    let read = "cd /sys/class/net/eth0/statistics; cat tx_packets tx_bytes";
    let text = say(lab.host("a").unwrap(), read);
    let mut numbers = text.lines().map(|l| l.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn two_hosts_see_each_other_on_their_own_cpus_and_nothing_stays() {
    let Some(lab) = up("two_hosts", &named("t2", &["a", "b"], link(None, Offloads::Off))) else {
        return;
    };
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    assert_reach(a, b);
    for host in [a, b] {
        let cpus = say(host, "taskset -cp $$");
        let mask = say(host, "cat /sys/class/net/eth0/queues/rx-0/rps_cpus");
        let bits = u64::from_str_radix(&mask.trim().replace(',', ""), 16).unwrap();
        let steered: Vec<u32> = (0..64).filter(|c| bits >> c & 1 == 1).collect();
        assert_eq!(steered, host.cpus);
        let list = cpus.rsplit(": ").next().unwrap().trim();
        assert_eq!(crossway_sys::topology::parse_cpu_list(list).unwrap(), host.cpus);
    }
    if !lab.network().cpus_shared {
        assert!(a.cpus.iter().all(|cpu| !b.cpus.contains(cpu)));
    }
    assert!(lab.network().switch.is_none(), "two hosts need no switch");
    let unknown = lab.host("c").unwrap_err().to_string();
    let name = own("t2");
    assert_eq!(
        unknown,
        format!("there is no host '{name}/c'; network '{name}' has these hosts: a, b")
    );
    drop(lab);
    assert_eq!(left("t2"), [""; 0]);
}

#[test]
fn offloads_decide_how_large_frames_on_the_link_are() {
    for (name, offloads) in [("tof", Offloads::Off), ("ton", Offloads::On)] {
        let Some(lab) = up("offloads", &named(name, &["a", "b"], link(None, offloads))) else {
            return;
        };
        let features = say(lab.host("a").unwrap(), "ethtool -k eth0");
        for feature in ["tcp-segmentation-offload", "generic-segmentation-offload"] {
            let state = features.lines().find_map(|l| l.trim().strip_prefix(feature)).unwrap();
            assert_eq!(state.trim_start_matches(": "), if name == "ton" { "on" } else { "off" });
        }
        let before = sent(&lab);
        stream_bits_per_s(lab.network(), 4);
        let after = sent(&lab);
        let frame = (after.1 - before.1) as f64 / (after.0 - before.0) as f64;
        // 4 MiB in frames of at most 1514 bytes, or in segments of up to 64 KiB.
        assert!(if name == "ton" { frame > 1514.0 } else { frame <= 1514.0 }, "{name}: {frame}");
    }
}

#[test]
fn the_rate_bounds_the_stream_and_the_faster_link_is_faster() {
    // The shaper can only be late, never early (except for its burst), so the upper bound also holds on a loaded
    // machine. 1448 bytes of data in frames of 1514; 4 MiB plus what a burst of 1 ms and a full receive buffer add.
    let most_of = |bits_per_s: f64| bits_per_s * 1448.0 / 1514.0 * 1.05;
    for (name, rate, slower) in [("tr2", "20mbit", 0.0), ("tr1", "100mbit", 20e6)] {
        let topology = named(name, &["a", "b"], link(Some(rate), Offloads::Off));
        let Some(lab) = up("rate", &topology) else { return };
        let most = most_of(topology.link.rate.unwrap().bits_per_s as f64);
        // One stream during which the machine does not pause is enough to show that more passes than the slower link
        // ever allows.
        let faster = (0..10).any(|_| {
            let bits = stream_bits_per_s(lab.network(), 4);
            assert!(bits <= most, "{rate}: {bits} bit/s of data");
            bits > most_of(slower)
        });
        assert!(faster, "{rate} lets no more pass than a link of {slower} bit/s");
        let shaper = say(lab.host("a").unwrap(), "tc -s qdisc show dev eth0");
        assert!(shaper.contains("qdisc tbf 10: root"), "{shaper}");
    }
}

#[test]
fn three_hosts_hang_on_a_switch() {
    let topology = named("t3", &["a", "b", "c"], link(Some("1gbit"), Offloads::Off));
    let Some(lab) = up("three", &topology) else { return };
    let c = lab.host("c").unwrap();
    for host in ["a", "b"] {
        assert_reach(lab.host(host).unwrap(), c);
    }
    assert_eq!(lab.network().switch.as_deref(), Some(&*format!("cw-{}.sw", own("t3"))));
    drop(lab);
    assert_eq!(left("t3"), [""; 0]);
}

#[test]
fn fifty_hosts_come_and_go() {
    let names: Vec<String> = (0..50).map(|n| format!("h{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(lab) = up("fifty", &named("t5", &names, Link::default())) else { return };
    let last = &lab.network().hosts[49];
    assert_reach(&lab.network().hosts[0], last);
    drop(lab);
    assert_eq!(left("t5"), [""; 0]);
}

#[test]
fn a_busy_name_is_refused_and_the_network_stays() {
    let topology = named("tb", &["a", "b"], Link::default());
    let Some(lab) = up("busy", &topology) else { return };
    let error = Lab::up(&topology).unwrap_err().to_string();
    let name = own("tb");
    let held = format!("network '{name}' is already up (held by process");
    assert!(error.starts_with(&held), "{error}");
    assert!(error.ends_with(&format!("crossway net down {name}")), "{error}");
    say(lab.host("a").unwrap(), "true");
}

#[test]
fn processes_on_a_host_end_with_the_network() {
    let Some(lab) = up("processes", &named("tp", &["a", "b"], Link::default())) else { return };
    let mut sleeper = lab.host("a").unwrap().command("sleep").arg("600").spawn().unwrap();
    // `ip netns exec` becomes the command itself; before it has entered the namespace, removing the network cannot find
    // it.
    let space = |file: &str| std::fs::metadata(file).unwrap().ino();
    let inside = || space(&format!("/proc/{}/ns/net", sleeper.id()));
    while inside() == space("/proc/self/ns/net") {
        std::thread::yield_now();
    }
    drop(lab);
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn a_network_that_was_kept_stays_until_taken_down() {
    let topology = named("tk", &["a", "b"], Link::default());
    let Some(lab) = up("kept", &topology) else { return };
    drop(lab);
    let network = Lab::up_to_stay(&topology).unwrap();
    assert_eq!(network.owner, None);
    assert_eq!(crossway_netlab::find(&own("tk")).unwrap(), network);
    assert!(Path::new(&format!("/run/netns/cw-{}-a", own("tk"))).exists());
    crossway_netlab::down(&own("tk")).unwrap();
    assert_eq!(left("tk"), [""; 0]);
    let error = crossway_netlab::down(&own("tk")).unwrap_err().to_string();
    assert!(error.starts_with(&format!("there is no network '{}'; ", own("tk"))), "{error}");
}

/// Not a test by itself: the next test runs it in another process, and kills that process.
#[test]
#[ignore = "a part of the_remains_of_a_killed_owner_are_removed_by_the_next_one"]
fn owner_that_waits_to_be_killed() {
    let lab = Lab::up(&named("tx", &["a", "b", "c"], Link::default())).unwrap();
    println!("up {}", lab.network().name);
    loop {
        std::thread::park();
    }
}

#[test]
fn the_remains_of_a_killed_owner_are_removed_by_the_next_one() {
    let Some(lab) = up("killed", &named("t1", &["a", "b"], Link::default())) else { return };
    drop(lab);
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .env(RUN, std::process::id().to_string())
        .args(["--ignored", "--exact", "--nocapture", "owner_that_waits_to_be_killed"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(owner.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(&format!("up {}", own("tx"))) {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the network did not come up");
    }
    assert_eq!(left("tx").len(), 6, "three hosts, a switch, a file, its lock: {:?}", left("tx"));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(crossway_netlab::list().unwrap().iter().all(|n| n.name != own("tx")));
    assert_eq!(left("tx"), [""; 0]);
}

#[test]
fn invalid_settings_are_rejected_before_anything_is_created() {
    let many: Vec<HostSpec> =
        (0..=MAX_HOSTS).map(|n| HostSpec::namespace(&format!("h{n}"))).collect();
    let topology = Topology { name: None, hosts: many, link: Link::default() };
    let error = Lab::up(&topology).unwrap_err().to_string();
    assert!(error.starts_with("number of hosts '251'"), "{error}");
    let mut topology = named("tc", &["a", "b"], Link::default());
    topology.hosts[0].cpus = vec![4095];
    match Lab::up(&topology) {
        Err(NetError::NoPrivilege | NetError::MissingTool { .. }) => eprintln!("SKIP cpu: no root"),
        other => {
            let error = other.unwrap_err().to_string();
            assert!(error.starts_with("CPU '4095': this process may run only on"), "{error}");
        }
    }
    assert_eq!(left("tc"), [""; 0]);
}
