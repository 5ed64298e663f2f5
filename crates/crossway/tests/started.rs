//! `crossway advise --observed` for real programs: what two of them that were started apart can use, and what siblings can.

mod cli;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::proc;
use serde_json::Value;

use cli::{crossway, text};

const SERVER: &str = "
import socket, sys
with socket.create_server(('127.0.0.1', int(sys.argv[1]))) as listener:
    while True:
        channel = listener.accept()[0]
        while data := channel.recv(64):
            channel.sendall(data)
";
const CLIENT: &str = "
import socket, sys
channel = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
while True:
    channel.sendall(bytes(64))
    channel.recv(64)
";

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// Starts a program; one of its own session is as a service manager starts it.
    fn start(text: &str, port: u16, own_session: bool) -> Running {
        let mut command = Command::new("python3");
        command.args(["-c", text, &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if own_session {
            proc::own_session(&mut command);
        }
        Running(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records a server and its client, and returns what `advise` says about them without measuring anything; `None` if
/// processes may not be traced here.
fn advice(own_sessions: bool, dir: &Path) -> Option<(String, Value)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Running::start(SERVER, port, own_sessions);
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "nothing listens at {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let client = Running::start(CLIENT, port, own_sessions);
    std::thread::sleep(Duration::from_millis(300));
    let [server_pid, client_pid] = [&server, &client].map(|process| process.0.id().to_string());
    let record = ["observe", &server_pid, &client_pid, "--record", "rec", "--time", "0.5"];
    let made = crossway(dir, &record);
    if String::from_utf8_lossy(&made.stderr).contains("not permitted") {
        eprintln!("SKIP a recording: processes may not be traced here; remedy: run as root");
        return None;
    }
    text(&made);
    std::fs::create_dir(dir.join("out")).unwrap();
    let question = text(&crossway(dir, &["advise", "--observed", "rec", "--print"]));
    let answer = crossway(dir, &["advise", "--observed", "rec", "--no-measure", "--json"]);
    Some((question, serde_json::from_slice(&answer.stdout).unwrap()))
}

/// Whether a mechanism was ruled out because its ends cannot meet.
fn cannot_meet(answer: &Value, id: &str) -> bool {
    let out = answer["ruled_out"].as_array().unwrap();
    out.iter().any(|r| r["candidate"] == id && r["objection"]["kind"] == "cannot-meet")
}

#[test]
fn programs_started_apart_are_offered_no_pipe_and_siblings_are() {
    let dir = tempfile::tempdir().unwrap();
    let Some((question, answer)) = advice(true, dir.path()) else { return };
    assert!(question.contains("started = \"apart\""), "{question}");
    assert!(question.contains("now = \"tcp-nodelay\""), "{question}");
    assert_eq!(answer["started_apart"], true);
    for (id, expected) in [("pipe", true), ("splice", true), ("uds-stream", false), ("tcp", false)]
    {
        assert_eq!(cannot_meet(&answer, id), expected, "{id}");
    }
    let told = crossway(
        dir.path(),
        &["advise", "--observed", "rec", "--no-measure", "--started", "together", "--json"],
    );
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert!(!cannot_meet(&told, "pipe"), "the user knows better");
    let dir = tempfile::tempdir().unwrap();
    let Some((question, answer)) = advice(false, dir.path()) else { return };
    assert!(!question.contains("started = "), "{question}");
    assert!(!cannot_meet(&answer, "pipe") && !cannot_meet(&answer, "splice"));
}
