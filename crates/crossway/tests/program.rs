//! What every subcommand must provide: help, man pages, completions, exit codes, JSON.

use std::process::{Command, Output};

fn crossway(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("crossway")).args(args).output().unwrap()
}

#[test]
fn bad_arguments_are_exit_code_2() {
    for args in [vec!["no-such-command"], vec!["measure", "--no-such-flag"], vec![]] {
        assert_eq!(crossway(&args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn list_prints_every_mechanism_as_json() {
    let output = crossway(&["list", "--json"]);
    assert!(output.status.success());
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ids: Vec<_> = rows.as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect();
    let known: Vec<_> = crossway_mech::registry::ALL.iter().map(|e| e.id).collect();
    assert_eq!(ids[..known.len()], known);
    // After them, the contenders that come with the tree.
    assert!(ids[known.len()..].contains(&"pipe-c"), "{ids:?}");
}

#[test]
fn no_colours_without_a_terminal() {
    let output = crossway(&["list"]);
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn descriptions_of_the_machine_and_of_a_case_fit_eighty_columns() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("profile.html");
    let case = ["profile", "pipe", "--placement", "unpinned", "--measure-ms", "50", "--out"];
    let profile = [&case[..], &[page.to_str().unwrap()]].concat();
    for args in [&["env"][..], &profile] {
        let output = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
            .args(args)
            .current_dir(&dir)
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        for said in [&output.stdout, &output.stderr] {
            for line in String::from_utf8_lossy(said).lines() {
                // A path is not divided.
                let is_long = line.chars().count() > 80 && !line.starts_with("HTML page: ");
                assert!(!is_long, "{args:?}: {line}");
            }
        }
    }
}

#[test]
fn man_pages_and_completions_know_the_subcommands_but_not_the_hidden_ones() {
    let dir = tempfile::tempdir().unwrap();
    assert!(crossway(&["man", dir.path().to_str().unwrap()]).status.success());
    assert!(dir.path().join("crossway-measure.1").exists());
    let completions = crossway(&["completions", "bash"]);
    let script = String::from_utf8(completions.stdout).unwrap();
    assert!(script.contains("crossway") && script.contains("CROSSWAY_COMPLETE"));
    let help = String::from_utf8(crossway(&["--help"]).stdout).unwrap();
    assert!(help.contains("measure") && !help.contains("reaper"));
}

#[test]
fn a_closed_standard_output_is_no_panic() {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .args(["measure", "full", "--list"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
}
