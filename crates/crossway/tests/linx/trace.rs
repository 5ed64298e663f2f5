//! `crossway linx trace`, whose captures are read by the real tshark with the dissector in the source tree.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossway_linx::signal::{ATTACH, USER_BASE};
use crossway_linx::{Endpoint, Filter, LinkSettings, Node, Settings, Signal};

use super::{linx, output};

const WATCHDOG: Duration = Duration::from_secs(60);
const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../linx/crossway_linx.lua");

fn any(endpoint: &mut Endpoint) -> Signal {
    let until = Some(Instant::now() + WATCHDOG);
    endpoint.receive(&Filter::ANY, until).unwrap().expect("a signal comes")
}

/// Returns the fields of the packets that a filter selects, one line per packet; `None` if tshark is not installed.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{DISSECTOR}")).arg("-r").arg(file);
    command.args(["-Y", filter, "-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let out = match command.output() {
        Ok(out) => out,
        Err(error) => {
            eprintln!("SKIP the dissector's verdict: tshark: {error}; install it");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !errors.contains("Lua"), "{filter}: {errors}");
    Some(String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// Traces a node while `act` runs, and returns what the tool reports.
fn traced(dir: &Path, file: &Path, words: &[&str], act: impl FnOnce()) -> serde_json::Value {
    let mut command = linx(dir);
    command.arg("trace").arg(file).args(words).arg("--json").stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let begin = Instant::now();
    // The file's header is written when the trace runs.
    while std::fs::metadata(file).map_or(0, |about| about.len()) < 24 {
        assert!(begin.elapsed() < WATCHDOG, "the trace does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    act();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn a_trace_shows_signals_hunts_attaches_and_messages_of_links_in_tshark() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("a"), dir.path().join("b"));
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let b = Node::spawn(&there, Settings { listen, ..Settings::default() }).unwrap();
    let link = LinkSettings { name: "b".to_owned(), addresses: b.listens_at().to_vec() };
    let _a = Node::spawn(&here, Settings { links: vec![link], ..Settings::default() }).unwrap();
    let mut early = Endpoint::open(&here, "early").unwrap();
    let mut server = Endpoint::open(&there, "server").unwrap();
    let (local, mut remote, mut own, mut ended) = (early.spid(), 0, 0, 0);
    let mut held = None;
    let file = dir.path().join("t.pcap");
    let told = traced(&here, &file, &["--payload", "16"], || {
        let client = held.insert(Endpoint::open(&here, "client").unwrap());
        own = client.spid().get();
        let far = client.hunt_and_wait("b/server", None).unwrap();
        remote = far.get();
        client.attach(far, None).unwrap();
        client.send(Signal::with_payload(USER_BASE + 1, &[0xab; 100]).unwrap(), far).unwrap();
        assert_eq!(any(&mut server).number(), USER_BASE + 1);
        client.send(Signal::with_payload(USER_BASE + 2, b"in").unwrap(), local).unwrap();
        client.send_out_of_band(Signal::new(USER_BASE + 3, 0).unwrap(), local).unwrap();
        any(&mut early);
        any(&mut early);
        drop(server);
        assert_eq!(any(client).number(), ATTACH);
        let passing = Endpoint::open(&here, "passing").unwrap();
        ended = passing.spid().get();
        client.attach(passing.spid(), None).unwrap();
        drop(passing);
        assert_eq!(any(client).number(), ATTACH);
    });
    assert_eq!((&told["lost_records"], &told["invalid_records"]), (&0.into(), &0.into()));

    let Some(all) = tshark(&file, "crossway_linx", &["frame.number"]) else { return };
    assert_eq!(Some(all.len() as u64), told["records"].as_u64());
    let rows = |filter: &str, fields: &[&str]| tshark(&file, filter, fields).unwrap();
    let name = |field: &str| format!("crossway_linx.{field}");
    let of = |event: u32, fields: &[&str]| {
        let fields: Vec<String> = fields.iter().map(|field| name(field)).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        rows(&format!("crossway_linx.event == {event}"), &fields)
    };
    assert_eq!(rows("_ws.malformed or crossway_linx.malformed", &["frame.number"]), [""; 0]);
    let signal = |number: u32| {
        let fields = ["way", "from", "to", "size", "from_name", "to_name", "oob"].map(name);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        rows(&format!("crossway_linx.event == 1 && crossway_linx.signal == {number}"), &fields)
    };
    let local = local.get();
    assert_eq!(signal(USER_BASE + 1), [format!("1|0x{own:08x}|0x{remote:08x}|104|client||0")]);
    let names = format!("0x{own:08x}|0x{local:08x}|6|client|early|0");
    assert_eq!(signal(USER_BASE + 2), [format!("1|{names}"), format!("2|{names}")]);
    let names = format!("0x{own:08x}|0x{local:08x}|4|client|early|1");
    assert_eq!(signal(USER_BASE + 3), [format!("1|{names}"), format!("2|{names}")]);
    // A payload that was cut is as long as it was.
    let cut = format!("crossway_linx.event == 1 && crossway_linx.signal == {}", USER_BASE + 1);
    let lens = rows(&cut, &["frame.len", "frame.cap_len", "crossway_linx.payload"]);
    assert_eq!(lens, [format!("136|52|{}", "ab".repeat(16))]);

    let client = format!("0x{own:08x}");
    let ended = format!("0x{ended:08x}");
    let opened = [format!("{client}|client"), format!("{ended}|passing")];
    assert_eq!(of(2, &["from", "name"]), opened);
    assert_eq!(of(3, &["from", "from_name"]), [format!("{ended}|passing")]);
    assert_eq!(of(4, &["from", "name"]), [format!("{client}|b/server")]);
    assert_eq!(of(6, &["from", "to"]), [format!("0x{remote:08x}|{client}")]);
    let attached = [format!("{client}|0x{remote:08x}"), format!("{client}|{ended}")];
    assert_eq!(of(7, &["from", "to"]), attached);
    let told = [format!("0x{remote:08x}|{client}"), format!("{ended}|{client}")];
    assert_eq!(of(9, &["from", "to"]), told);
    assert!(of(10, &["name"]).contains(&"early".to_owned()));
    assert_eq!(of(32, &["way", "name", "link"]), ["1|server|b"], "the hunt goes over the link");
    assert_eq!(
        of(37, &["way", "signal", "size", "link"]),
        [format!("1|0x{:08x}|104|b", USER_BASE + 1)]
    );
    assert_eq!(of(35, &["way", "link"]), ["2|b"], "the server ends");
    let columns = rows(&format!("{cut} && crossway_linx.way == 1"), &["_ws.col.Info"]);
    assert_eq!(columns, ["Signal 0x10000001 sent, 104 bytes"]);
}

#[test]
fn only_root_the_nodes_user_and_its_group_may_trace() {
    let user = "65534";
    let as_user = |words: &[&str], program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user]).args(words).arg("--").arg(program);
        command
    };
    let can = as_user(&["--clear-groups"], Path::new("true")).output();
    if !can.as_ref().is_ok_and(|out| out.status.success()) {
        eprintln!("SKIP traces by other users: setpriv: {can:?}; run as root with util-linux");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), all).unwrap();
    let program = dir.path().join("crossway");
    std::fs::copy(assert_cmd::cargo::cargo_bin!("crossway"), &program).unwrap();
    let at = dir.path().join("n");
    let settings = Settings { mode: 0o777, group: Some(4242), ..Settings::default() };
    let _node = Node::spawn(&at, settings).unwrap();
    let _one = Endpoint::open(&at, "one").unwrap();
    let file = dir.path().join("t.pcap");
    let trace = |words: &[&str]| {
        let mut command = as_user(words, &program);
        command.args(["linx", "--dir"]).arg(&at).arg("trace").arg(&file).args(["--count", "1"]);
        output(&mut command)
    };
    let (ok, _, err) = trace(&["--clear-groups"]);
    assert!(!ok && err.contains("members of the node's group (--group) may trace"), "{err}");
    assert!(!file.exists(), "a trace that was refused leaves no file");
    let (ok, _, err) = trace(&["--groups", "7,4242"]);
    assert!(ok && err.contains("1 record written"), "{err}");
}

#[test]
fn a_trace_that_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let file = dir.path().join("t.pcap");
    let (ok, _, err) = output(linx(&at).arg("trace").arg(&file));
    assert!(!ok && err.contains("crossway linx node") && !file.exists(), "{err}");
    let _node = Node::spawn(&at, Settings::default()).unwrap();
    let (ok, _, err) = output(linx(&at).args(["trace", "/nowhere/t.pcap"]));
    assert!(!ok && err.contains("cannot create /nowhere/t.pcap"), "{err}");
    let (ok, _, err) = output(linx(&at).args(["trace", "-", "--payload", "40000"]));
    assert!(!ok && err.contains("up to 32768"), "{err}");
}
