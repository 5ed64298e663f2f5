//! `crossway observe` on the command line: maps of commands, imported logs, their summary and CSV, and what is refused.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn observe(dir: &Path, args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .arg("observe")
        .args(args)
        .current_dir(dir)
        .env("COLUMNS", "120")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_command_is_mapped_and_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["--after", "0.5", "--", "sh", "-c", "sleep 3 | cat"];
    let shown = text(&observe(dir.path(), &command));
    let row = shown.lines().find(|line| line.contains("sleep (") && line.contains("cat ("));
    assert!(row.is_some_and(|row| row.contains("→") && row.contains("pipe")), "{shown}");
    let json = [&["--json"], &command[..]].concat();
    let document: serde_json::Value =
        serde_json::from_str(&text(&observe(dir.path(), &json))).unwrap();
    let carriers = document["channels"].as_array().unwrap().iter().map(|c| &c["carrier"]);
    assert!(carriers.into_iter().any(|carrier| carrier == "pipe"), "{document}");
}

#[test]
fn a_log_is_imported_summarised_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let log = "1 1.000000 write(1<pipe:[7]>, \"secret\", 6) = 6 <0.000010>\n\
               2 1.000005 read(0<pipe:[7]>, \"secret\", 10) = 6 <0.000020>\n";
    std::fs::write(dir.path().join("log"), log).unwrap();
    let made = text(&observe(dir.path(), &["--import", "log", "--record", "rec"]));
    assert!(made.contains("2 events"), "{made}");
    let shown = text(&observe(dir.path(), &["--recording", "rec"]));
    assert!(shown.contains("pipe") && shown.contains("6 B"), "{shown}");
    let csv = text(&observe(dir.path(), &["--recording", "rec", "--csv", "-"]));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(!csv.contains("secret"));
    // A second recording does not overwrite the first one.
    let again = observe(dir.path(), &["--import", "log", "--record", "rec"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"), "{again:?}");
}

#[test]
fn what_cannot_be_observed_is_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&[][..], "nothing to observe"),
        (&["no-such-program"], "--all"),
        (&["4194304"], "there is no process 4194304"),
        (&["--recording", "nowhere"], "nowhere"),
        (&["--import", "nowhere", "--record", "rec"], "nowhere"),
        (&["--", "/no/such/program"], "/no/such/program"),
    ] {
        let output = observe(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(said), "{args:?}: {error}");
    }
}
