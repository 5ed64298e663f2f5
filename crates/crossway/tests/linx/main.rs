//! `crossway linx`: nodes as processes, and the tools that inspect them.

mod cluster;
mod trace;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crossway_netlab::{Lab, Link as NetLink, NetError, Topology};

struct Node {
    child: Child,
    said: Vec<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn linx(dir: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    command.args(["linx", "--dir"]).arg(dir);
    command
}

impl Node {
    /// Starts a node and waits until it has printed this number of lines.
    fn start(mut command: Command, lines: usize) -> Node {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let said = out.lines().take(lines).map(Result::unwrap).collect();
        Node { child, said }
    }
}

/// Starts a node with these arguments, and waits until it has printed this number of lines.
fn node(dir: &Path, words: &[&str], lines: usize) -> Node {
    let mut command = linx(dir);
    command.arg("node").args(words);
    Node::start(command, lines)
}

fn output(command: &mut Command) -> (bool, String, String) {
    let out = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

#[test]
fn a_hunt_goes_over_a_link_and_a_killed_node_leaves_its_directory_usable() {
    let dir = tempfile::tempdir().unwrap();
    let (east, west) = (dir.path().join("e"), dir.path().join("w"));
    let there = node(&east, &["--name", "east", "--listen", "127.0.0.1:0"], 2);
    let address = there.said[1].strip_prefix("listening at ").unwrap();
    let link = format!("there={address}");
    let mut here = node(&west, &["--name", "west", "--link", &link, "--transport", "shm"], 1);

    // A pending hunt is an endpoint itself: each side finds the other's.
    let mut waiting =
        Node { child: linx(&east).args(["hunt", "nobody"]).spawn().unwrap(), said: Vec::new() };
    let path = "there/crossway-linx-hunt";
    let (ok, out, _) = output(linx(&west).args(["hunt", path, "--timeout", "60"]));
    assert!(ok && out.contains(path), "{out}");
    let (ok, out, _) = output(linx(&west).args(["list"]));
    assert!(ok && out.contains("there") && out.contains("link"), "{out}");
    let (ok, out, _) = output(linx(&east).args(["list", "--json"]));
    assert!(ok && out.contains("\"name\": \"west\""), "{out}");
    let (ok, _, _) = output(linx(&west).args(["send", path, "hello", "--timeout", "60"]));
    assert!(ok);
    waiting.child.kill().unwrap();

    let (ok, _, err) = output(linx(&west).args(["hunt", "nobody", "--timeout", "0.1"]));
    assert!(!ok && err.contains("endpoint 'nobody' did not appear"), "{err}");
    let (ok, _, err) = output(linx(&west).args(["node"]));
    assert!(!ok && err.contains("serves in"), "{err}");
    here.child.kill().unwrap();
    here.child.wait().unwrap();
    let (ok, _, err) = output(linx(&west).args(["list"]));
    assert!(!ok && err.contains("crossway linx node"), "{err}");
    let successor = node(&west, &[], 1);
    assert!(successor.said[0].starts_with("serving in"));
}

#[test]
fn the_bench_measures_every_case_against_its_own_server_and_one_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let _node = node(&at, &[], 1);
    let few = ["bench", "--times", "5", "--pairs", "2", "--timeout", "60", "--json"];
    let (ok, out, err) = output(linx(&at).args(few));
    assert!(ok, "{err}");
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = rows.as_array().unwrap();
    let of = |case: &str| rows.iter().filter(|row| row["case"] == case).count();
    let counts = ["attach delay", "round trip", "burst", "2 pairs"].map(of);
    assert_eq!(counts, [1, 11, 11, 1], "a line for each size");
    let pairs = rows.iter().find(|row| row["case"] == "2 pairs").unwrap();
    assert_eq!(pairs["signals"], 2 * 5 * 40);
    let (_, list, _) = output(linx(&at).args(["list"]));
    assert!(!list.contains("crossway-linx-bench"), "nothing is left: {list}");

    let server = linx(&at).args(["bench", "--serve", "there"]).spawn().unwrap();
    let _server = Node { child: server, said: Vec::new() };
    let words = ["bench", "round-trip", "--server", "there", "--times", "5", "--timeout", "60"];
    let (ok, out, err) = output(linx(&at).args(words));
    assert!(ok && out.contains("round trip"), "{out} {err}");
    let (ok, _, err) = output(linx(&at).args(["bench", "--server", "no", "--timeout", "0.1"]));
    assert!(!ok && err.contains("cannot reach the bench server 'no'"), "{err}");
}

#[test]
fn one_program_does_not_take_all_descriptors_of_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 200; exec \"$0\" linx --dir \"$1\" node"])
        .arg(program)
        .arg(&at)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let _node = Node { child, said: out.lines().take(1).map(Result::unwrap).collect() };
    let mut held = Vec::new();
    let refusal = loop {
        match crossway_linx::Endpoint::open(&at, "greedy") {
            Ok(endpoint) => held.push(endpoint),
            Err(error) => break error.to_string(),
        }
        assert!(held.len() <= 200);
    };
    assert!(refusal.contains("limit of endpoints per process"), "{refusal}");
    assert_eq!(held.len(), 100);
    let (ok, out, _) = output(linx(&at).args(["hunt", "greedy", "--timeout", "60"]));
    assert!(ok && out.contains("greedy"), "another program finds it all the same: {out}");
}

/// Returns the commands in the first block of docs/LINX.md, each as arguments of `crossway`.
fn documented_commands() -> Vec<Vec<String>> {
    let text = include_str!("../../../../docs/LINX.md");
    let commands = text.lines().filter_map(|line| line.strip_prefix("    crossway "));
    let words = |line: &str| {
        let command = line.split('#').next().unwrap();
        command.split_whitespace().map(str::to_owned).collect()
    };
    commands.take(3).map(words).collect()
}

#[test]
fn the_documented_commands_start_two_nodes_on_two_hosts_and_hunt_across() {
    let name = format!("lx{:x}", std::process::id() % 0xfff);
    let topology = Topology { name: Some(name), ..Topology::of(&["a", "b"], NetLink::default()) };
    let lab = match Lab::up(&topology) {
        Ok(lab) => lab,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP two hosts: {why}");
            return;
        }
        Err(other) => panic!("{other}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let address = lab.host("a").unwrap().ipv4.to_string();
    let [first, second, hunt] = &documented_commands()[..] else { panic!("three commands") };
    let command = |host: &str, words: &[String]| {
        let mut command =
            lab.host(host).unwrap().command(assert_cmd::cargo::cargo_bin!("crossway"));
        command.args(words.iter().map(|word| word.replace("10.77.0.1", &address)));
        command.env("CROSSWAY_LINX_DIR", dir.path().join(host)).stdout(Stdio::piped());
        command
    };
    let start =
        |host: &str, words: &[String], lines: usize| Node::start(command(host, words), lines);
    let there = start("a", first, 2);
    assert_eq!(there.said[1], format!("listening at {address}:19790"));
    let _here = start("b", second, 1);
    let _server = crossway_linx::Endpoint::open(&dir.path().join("a"), "server").unwrap();
    let (ok, out, err) = output(&mut command("b", hunt));
    assert!(ok && out.contains("a/server"), "{out} {err}");
}
