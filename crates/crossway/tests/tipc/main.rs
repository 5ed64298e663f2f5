//! `crossway tipc` on tipcds that the tests start.

#[path = "../built/mod.rs"]
mod built;
mod iproute2;
mod keys;
mod monitor;
mod mpi;
mod unmodified;
mod via;
mod watching;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crossway_tipc_client::{
    Address, LoneTipcd, NodeSocket, Patience, Scope, ServiceRange, SocketKind,
};
use serde_json::Value;

const WATCHDOG: Duration = Duration::from_secs(240);

fn program() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
}

/// Returns a loopback address that only this process uses, so that other processes can use the same port.
fn host(n: u32) -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{n}", 64 + pid / 250 % 64, 1 + pid % 250)
}

/// A tipcd that is killed on drop.
struct Site {
    tipcd: LoneTipcd,
    dir: tempfile::TempDir,
}

impl Site {
    fn with(args: &[&str]) -> Self {
        Self::started_by(program(), args)
    }

    /// Starts a tipcd by `command`, which runs `crossway`, for example on a host of a network.
    fn started_by(mut command: Command, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        command.arg("tipcd").args(args);
        let tipcd = LoneTipcd::start(command, &dir.path().join("tipcd.sock")).unwrap();
        Self { tipcd, dir }
    }

    fn path(&self) -> &Path {
        self.tipcd.path()
    }

    fn run(&self, args: &[&str]) -> Output {
        program().arg("tipc").arg("--socket").arg(self.path()).args(args).output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[args, &["--json"]].concat())).unwrap()
    }

    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the links, without the broadcast link.
    fn links(&self) -> Value {
        let Value::Array(mut links) = self.json(&["link", "list"]) else { panic!("an array") };
        assert_eq!(name(&links.remove(0)), "broadcast-link");
        Value::Array(links)
    }

    /// Waits until the links that are up lead to exactly these nodes, and returns all links.
    fn linked_to(&self, peers: &[&str]) -> Value {
        let begin = Instant::now();
        loop {
            let links = self.links();
            let up: Vec<_> = links.as_array().unwrap().iter().filter(|l| l["up"] == true).collect();
            let is_to = |peer: &&str| up.iter().any(|l| name(l).contains(&format!("-{peer}:")));
            if up.len() == peers.len() && peers.iter().all(is_to) {
                return links;
            }
            assert!(begin.elapsed() < WATCHDOG, "no links to {peers:?}: {links}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn name(link: &Value) -> &str {
    link["name"].as_str().unwrap()
}

/// Starts two nodes that are linked by a UDP bearer each.
fn pair(n: u32) -> (Site, Site) {
    let (a, b) = (host(n), host(n + 1));
    let one = Site::with(&[&format!("udp:{a},{b}"), "--id", "alpha"]);
    let two = Site::with(&[&format!("udp:{b},{a}"), "--id", "beta"]);
    one.linked_to(&["beta"]);
    two.linked_to(&["alpha"]);
    (one, two)
}

#[test]
fn sockets_show_their_process_and_node_local_traffic_is_counted() {
    let site = Site::with(&["--id", "alpha"]);
    let socket = NodeSocket::open(site.path(), SocketKind::Rdm).unwrap();
    let range = ServiceRange { service: 1000, lower: 5, upper: 7 };
    socket.bind(range, Scope::Cluster).unwrap();
    let to = Address::Service { service: 1000, instance: 6, domain: 0 };
    let soon = || Patience::Until(Instant::now() + WATCHDOG);
    for _ in 0..3 {
        socket.send(b"hello", Some(to), soon()).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(socket.recv(&mut buffer, soon()).unwrap(), 5);
    }
    let sockets = site.json(&["socket", "list"]);
    let [one] = &sockets.as_array().unwrap()[..] else { panic!("{sockets}") };
    assert_eq!(one["kind"], "rdm");
    assert_eq!(one["pid"], std::process::id());
    let own_name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(one["command"], own_name.trim_end());
    assert_eq!(one["sent"], serde_json::json!({"messages": 3, "bytes": 15}));
    assert_eq!(one["received"], serde_json::json!({"messages": 3, "bytes": 15}));
    let bound = &one["bindings"][0];
    assert_eq!(
        (&bound["type"], &bound["lower"], &bound["upper"]),
        (&1000.into(), &5.into(), &7.into())
    );
    let node = site.json(&["node"]);
    assert_eq!(node["local"], serde_json::json!({"messages": 3, "bytes": 15}));
    assert_eq!((&node["sockets"], &node["identity"]), (&1.into(), &"alpha".into()));
    let names = site.json(&["nametable", "show", "--type", "1000"]);
    assert_eq!(names.as_array().unwrap().len(), 1);
    assert_eq!(names[0]["port"], one["port"]);
    let text = site.text(&["nametable", "show"]);
    assert!(
        text.starts_with("Type       Lower      Upper      Scope    Port       Node\n"),
        "{text}"
    );
    let text = site.text(&["socket", "list"]);
    assert!(text.contains("  bound to {1000,5,7} cluster\n"), "{text}");
}

#[test]
fn links_and_peers_are_shown_and_a_setting_reaches_the_other_end() {
    let (one, two) = pair(10);
    let links = one.linked_to(&["beta"]);
    let link = name(&links[0]);
    assert_eq!(link, "alpha:udp0-beta:udp0");
    assert_eq!(one.text(&["link", "list"]), "broadcast-link: up\nalpha:udp0-beta:udp0: up\n");
    assert_eq!(one.text(&["bearer", "list"]), "udp:udp0\n");
    let peers = one.json(&["peer", "list"]);
    assert_eq!((&peers[0]["identity"], &peers[0]["up"]), (&"beta".into(), &true.into()));
    let listed = one.text(&["node", "list"]);
    assert_eq!(
        listed.lines().map(|l| l.split_whitespace().next()).collect::<Vec<_>>(),
        [Some("Node"), Some("alpha"), Some("beta")]
    );
    let set = ["link", "set", link, "--tolerance", "800", "--priority", "20", "--window", "40"];
    assert_eq!(one.text(&set), "");
    let has = |site: &Site, tolerance: u64, priority: u64| {
        let links = site.links();
        links[0]["tolerance_ms"] == tolerance
            && links[0]["priority"] == priority
            && links[0]["up"] == true
    };
    let begin = Instant::now();
    while !(has(&one, 800, 20) && has(&two, 800, 20)) {
        assert!(begin.elapsed() < WATCHDOG, "{}", two.json(&["link", "list"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(one.json(&["link", "get", link])["window_packets"], 40);
    let text = one.text(&["link", "stat", link]);
    assert!(
        text.contains("  ACTIVE  MTU:14000  Priority:20  Tolerance:800 ms  Window:40 packets\n"),
        "{text}"
    );
    for (set, said) in [
        (["link", "set", link, "--tolerance", "49"], "between 50 and 30000 ms"),
        (["link", "set", link, "--priority", "32"], "between 1 and 31"),
        (["link", "set", "nobody", "--window", "9"], "existing links: alpha:udp0-beta:udp0"),
    ] {
        let error = one.error(&set);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn links_count_fragments_bundles_and_broadcasts() {
    let (one, two) = pair(66);
    // Messages sent while a packet is in flight share the next packet.
    let link = "alpha:udp0-beta:udp0";
    one.text(&["link", "set", link, "--window", "1"]);
    let soon = || Patience::Until(Instant::now() + WATCHDOG);
    let server = NodeSocket::open(two.path(), SocketKind::Rdm).unwrap();
    let range = ServiceRange { service: 1000, lower: 1, upper: 1 };
    server.bind(range, Scope::Cluster).unwrap();
    let client = NodeSocket::open(one.path(), SocketKind::Rdm).unwrap();
    let to = Some(Address::service(1000, 1));
    let begin = Instant::now();
    while client.send(&[7; 66_000], to, soon()).is_err() {
        assert!(begin.elapsed() < WATCHDOG, "the name does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut buffer = vec![0; 66_000];
    assert_eq!(server.recv(&mut buffer, soon()), Ok(66_000));
    for n in 0..300 {
        client.send(&[n as u8; 40], to, soon()).unwrap();
    }
    for _ in 0..300 {
        assert_eq!(server.recv(&mut buffer, soon()), Ok(40));
    }
    let of = |site: &Site, link: &str, counters: [&str; 4]| {
        let link = site.json(&["link", "statistics", link]);
        counters.map(|counter| link[counter].as_u64().expect(counter))
    };
    let [fragments, fragmented, bundles, bundled] =
        of(&one, link, ["sent_fragments", "sent_fragmented", "sent_bundles", "sent_bundled"]);
    assert_eq!((fragments, fragmented), (5, 1), "66,000 bytes in packets of 14,000");
    assert!(bundles > 0 && bundled >= 2 * bundles, "{bundles} {bundled}");
    let received =
        ["received_fragments", "received_fragmented", "received_bundles", "received_bundled"];
    let there = of(&two, "beta:udp0-alpha:udp0", received);
    assert_eq!(there, [fragments, fragmented, bundles, bundled]);
    let profile = &one.json(&["link", "statistics", link])["profile"];
    assert_eq!((&profile[6], profile[1].as_u64() >= Some(300)), (&1.into(), true), "{profile}");
    // The binding was announced over the broadcast link.
    let told = of(
        &two,
        "broadcast-link",
        ["sent_packets", "profile_messages", "listeners", "queue_max_packets"],
    );
    assert_eq!(told, [1, 1, 1, 1]);
    let heard = ["received_packets", "received_fragments", "received_naks", "duplicate_packets"];
    assert_eq!(of(&one, "broadcast-link", heard), [1, 0, 0, 0]);
    let text = one.text(&["link", "statistics"]);
    assert!(text.starts_with("Link <broadcast-link>\n"), "{text}");
    assert!(text.contains("fragments:5/1 bundles:") && text.contains("-66000:"), "{text}");
}

#[test]
fn bearers_come_and_go_and_one_remote_leaves_without_disturbing_others() {
    let (a, b, c) = (host(20), host(21), host(22));
    let one = Site::with(&["--id", "alpha"]);
    let two = Site::with(&[&format!("udp:{b},{a}"), "--id", "beta"]);
    let three = Site::with(&[&format!("udp:{c},{a}"), "--id", "gamma"]);
    assert!(one.error(&["bearer", "disable", "udp0"]).contains("this node has no bearers"));
    let error = one.error(&["bearer", "enable", &format!("udp:{a},mtu=9,{b}")]);
    assert!(error.contains("expected mtu=BYTES from 128 to 65507"), "{error}");
    let bearer = format!("udp:{a},mtu=1472,{b}");
    let enable = ["bearer", "enable", &bearer, "--name", "lan", "--priority", "12"];
    assert_eq!(one.text(&enable), "");
    assert!(one.text(&["bearer", "get", "lan"]).contains("mtu:1472"));
    // The third node finds us by itself, and then packets are sent to it as well.
    assert_eq!(one.text(&["bearer", "add", "lan", "--remoteip", &c]), "");
    let links = one.linked_to(&["beta", "gamma"]);
    // The others' packets may be larger.
    let settled = |l: &Value| l["priority"] == 12 && l["mtu_bytes"] == 1472;
    assert!(links.as_array().unwrap().iter().all(settled), "{links}");
    let remotes = &one.json(&["bearer", "list"])[0]["remotes"];
    assert_eq!(remotes, &serde_json::json!([format!("{b}:6118"), format!("{c}:6118")]));
    assert_eq!(one.text(&["bearer", "remove", "udp:lan", "--remoteip", &b]), "");
    let links = one.linked_to(&["gamma"]);
    assert_eq!(links[0]["ups"], 1, "the other link never went down");
    two.linked_to(&[]);
    assert_eq!(
        one.json(&["bearer", "list"])[0]["removed"],
        serde_json::json!([format!("{b}:6118")])
    );
    let error = one.error(&["bearer", "remove", "lan", "--remoteip", &c]);
    assert!(error.contains("disable the bearer instead"), "{error}");
    assert_eq!(one.text(&["bearer", "add", "lan", "--remoteip", &b]), "");
    let links = one.linked_to(&["beta", "gamma"]);
    let gamma = links.as_array().unwrap().iter().find(|l| name(l).contains("gamma")).unwrap();
    assert_eq!(gamma["ups"], 1);
    assert_eq!(one.text(&["bearer", "disable", "lan"]), "");
    one.linked_to(&[]);
    three.linked_to(&[]);
    assert_eq!(one.text(&["bearer", "list"]), "");
    let error = one.error(&["bearer", "enable", "udp:192.0.2.77"]);
    assert!(error.contains("192.0.2.77") && error.contains("an address of this host"), "{error}");
}

#[test]
fn counters_restart_multicasts_are_steered_and_a_node_that_is_down_is_forgotten() {
    let (one, two) = pair(70);
    let link = "alpha:udp0-beta:udp0";
    let states = |site: &Site| site.json(&["link", "stat", "show", link])["sent_states"].as_u64();
    let begin = Instant::now();
    while states(&one) < Some(3) {
        assert!(begin.elapsed() < WATCHDOG);
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = one.json(&["link", "stat", link]);
    assert_eq!(one.text(&["link", "stat", "reset", link]), "");
    let after = one.json(&["link", "stat", link]);
    assert!(after["sent_states"].as_u64() < before["sent_states"].as_u64(), "{after}");
    assert_eq!((&after["ups"], &after["up"]), (&1.into(), &true.into()));
    assert_eq!(one.text(&["link", "stat", "reset"]), "");
    assert!(one.error(&["link", "stat", "reset", "nobody"]).contains("existing links: alpha:udp0"));
    let get = ["link", "get", "broadcast-link"];
    assert_eq!(one.text(&get), "method:autoselect  ratio:10%  window:50 packets\n");
    one.text(&["link", "set-broadcast", "--method", "replicast", "--ratio", "25"]);
    let set = one.json(&get);
    assert_eq!((&set["method"], &set["replicast_percent"]), (&"replicast".into(), &25.into()));
    let bearer = &one.json(&["bearer", "list"])[0];
    assert_eq!((&bearer["state"], &bearer["device"]), (&"up".into(), &"lo".into()));
    assert!(bearer["receive_buffer_bytes"].as_u64() > Some(0), "{bearer}");
    assert_eq!(one.text(&["node", "get", "clusterid"]), "4711\n");
    assert!(one.error(&["peer", "remove", "beta"]).contains("only a node that is down"));
    drop(two);
    one.linked_to(&[]);
    assert_eq!(one.text(&["peer", "remove", "beta"]), "");
    assert_eq!(one.json(&["peer", "list"]), serde_json::json!([]));
    assert!(one.error(&["peer", "remove", "beta"]).contains("no node beta"));
}

#[test]
fn others_than_root_and_the_owner_are_not_obeyed() {
    if !crossway_sys::proc::is_root() {
        eprintln!("SKIP others are not obeyed: needs another user; run as root");
        return;
    }
    let site = Site::with(&["--mode", "0666"]);
    let open = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(site.path().parent().unwrap(), 0o755);
    // The program itself may be in a directory that the user cannot read.
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), 0o755);
    let copy = dir.path().join("crossway");
    std::fs::copy(assert_cmd::cargo::cargo_bin!("crossway"), &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .args(["tipc", "node", "--socket"])
        .arg(site.path())
        .output();
    let Ok(output) = output else {
        eprintln!("SKIP others are not obeyed: setpriv is missing; install util-linux");
        return;
    };
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("accepts commands only from root and the user who started it"),
        "{error}"
    );
}
