//! Recordings as questions: answers, and predictions for real programs.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cli::{crossway, text};
use super::{has, recorded};

#[test]
fn a_recording_asks_a_question_and_gets_a_gain() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 200);
    let question = text(&crossway(dir.path(), &["advise", "--observed", "rec", "--print"]));
    for line in ["pattern = \"request-reply\"", "size_bytes = 64", "rate_per_s = "] {
        assert!(question.contains(line), "{question}");
    }
    let gain = gain(dir.path(), &["--instead", "pipe", "--real-rate", "1000"]);
    assert_eq!((&gain["now"], &gain["in_turn"]), (&Value::from("tcp-nodelay"), &Value::from(true)));
    assert_eq!(gain["exchange_ns"]["low"], 1e6);
    let with = &gain["with"][0];
    assert_eq!(with["mechanism"], "pipe");
    let less = |end: &str| with["less_time"][end].as_f64().unwrap();
    assert!(less("low") <= less("high") && less("high") < 1.0, "{with}");
    let unknown = crossway(dir.path(), &["advise", "--observed", "rec", "--instead", "no-such"]);
    assert_eq!(unknown.status.code(), Some(2));
}

/// Whoever does not wait for the prediction has the choice.
#[test]
fn the_choice_is_said_before_the_gain_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), 200);
    // Few candidates, so that choosing takes seconds.
    let mut advise = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .args(["advise", "--observed", "rec", "--require", "zero-copy", "--time", "12s"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(advise.stderr.take().unwrap());
    while !said.contains("Comparing tcp-nodelay with") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let asked = Command::new("kill").args(["-INT", &advise.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let rest = std::io::read_to_string(stderr).unwrap();
    let output = advise.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}{rest}");
    assert!(rest.ends_with("interrupted: no gain is predicted\n"), "{rest}");
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.contains("Choose ") || answer.contains("No choice"), "{answer}");
    assert!(!answer.contains("What the whole program would gain"), "{answer}");
}

/// The predicted gain for the recording `rec`. A machine that is stopped again and again compares nothing: it is asked again.
fn gain(dir: &Path, more: &[&str]) -> Value {
    let args = [&["advise", "--observed", "rec", "--json"], more].concat();
    let asked = || serde_json::from_str::<Value>(&text(&crossway(dir, &args))).unwrap();
    let has_compared = |gain: &Value| !gain["with"].as_array().unwrap().is_empty();
    (0..3).map(|_| asked()).find(has_compared).expect("three questions without a comparison")
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(program: &str, args: &[&str]) -> Running {
    let quiet = || Stdio::null();
    let mut command = Command::new(program);
    Running(command.args(args).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().unwrap())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for(port: u16) {
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "nothing listens at {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Records a server and its client for a second, ends them, and predicts the gain from a UNIX socket.
fn prediction(server: Running, client: Running) -> Option<Value> {
    let dir = tempfile::tempdir().unwrap();
    let [of_server, of_client] = [&server, &client].map(|process| process.0.id().to_string());
    let record = ["observe", &of_server, &of_client, "--record", "rec", "--time", "1"];
    let made = crossway(dir.path(), &record);
    // The prediction needs only the recording, and would share two CPUs with them.
    drop((client, server));
    if String::from_utf8_lossy(&made.stderr).contains("not permitted") {
        eprintln!("SKIP a prediction: processes may not be traced here; remedy: run as root");
        return None;
    }
    text(&made);
    Some(gain(dir.path(), &["--instead", "uds-stream"]))
}

/// The prediction is about the right channel, and is an interval; whether it is right, `make predict` shows.
fn check(gain: &Value, client: &str, server: &str) {
    let flow = gain["flow"].as_str().unwrap();
    assert!(flow.contains(client) && flow.contains(server) && flow.contains("tcp-local"), "{flow}");
    assert_eq!((&gain["now"], &gain["in_turn"]), (&Value::from("tcp-nodelay"), &Value::from(true)));
    let exchange = |end: &str| gain["exchange_ns"][end].as_f64().unwrap();
    assert!(0.0 < exchange("low") && exchange("low") <= exchange("high"), "{gain}");
    let less = |end: &str| gain["with"][0]["less_time"][end].as_f64().unwrap();
    assert!(less("low") <= less("high") && less("high") < 1.0, "{gain}");
}

#[test]
fn the_gain_of_redis_is_predicted() {
    if !["strace", "redis-server", "redis-benchmark"].into_iter().all(has) {
        return;
    }
    let port = free_port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let server = run("redis-server", &["--port", &port, "--save", "", "--dir", folder]);
    wait_for(port.parse().unwrap());
    let load = ["-p", &port, "-c", "1", "-n", "100000000", "-t", "get", "-d", "64"];
    let client = run("redis-benchmark", &load);
    std::thread::sleep(Duration::from_millis(300));
    if let Some(gain) = prediction(server, client) {
        check(&gain, "redis-benchmark", "redis-server");
    }
}

#[test]
fn the_gain_of_a_python_pair_is_predicted() {
    if !["strace", "/usr/bin/python3"].into_iter().all(has) {
        return;
    }
    let peer = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/predict/peer.py");
    let port = free_port().to_string();
    let server = run("python3", &[peer, "multiprocessing", "serve", &port]);
    wait_for(port.parse().unwrap());
    let client = run("python3", &[peer, "multiprocessing", "ask", &port, "60"]);
    std::thread::sleep(Duration::from_millis(500));
    if let Some(gain) = prediction(server, client) {
        check(&gain, "python3", "python3");
    }
}
