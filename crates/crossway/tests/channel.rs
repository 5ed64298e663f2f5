//! `crossway channel`: two programs, a name, a switch while lines are sent, and the messages about it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
fn what_cannot_be_is_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&["send", "nobody", "--wait-s", "0"][..], "nobody listens on channel 'nobody'"),
        (&["switch", "nobody", "shm-futex"], "no channel 'nobody' is open"),
        (&["switch", "nobody", "smoke"], "there is no transport 'smoke'"),
        (&["listen", "a b"], "'a b' is no channel name"),
        (&["listen", "a", "--profile", "/no/such"], "profile /no/such"),
        (&["listen", "a", "--pin", "shm-spin", "--forbid", "shm-spin"], "allows no transport"),
    ] {
        let output = run(&dir, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
    let top = run(&dir, &["top", "--once", "--interval-s", "0"]);
    assert!(String::from_utf8(top.stdout).unwrap().starts_with("No channel is open in "));
}
