//! Runs during which a process is killed, stopped or asked to end. Existing records are kept, and nothing is left
//! behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crossway_records::record::Status;

use super::place::{Place, await_that, signal, state};
use super::{assert_success, is_done};

const LONG: &str = r#"
[group.long]
mechanisms = ["pipe", "uds-stream"]
workload = ["throughput", "ping-pong"]
size_bytes = 64
placement = "unpinned"
trials = 6
warmup_ms = 20
measure_ms = 60
"#;

#[test]
fn a_killed_controller_leaves_nothing_and_its_run_goes_on() {
    let place = Place::new(LONG);
    let mut controller = place.start();
    place.await_records(3);
    controller.kill().unwrap();
    controller.wait().unwrap();
    await_that("a clean end", || place.leftovers().is_empty());
    // A kill during a write truncates the last line.
    let results = place.run().join("results.jsonl");
    let mut text = fs::read_to_string(&results).unwrap();
    let whole = text.lines().count();
    text.push_str("{\"schema\":1,\"ru");
    fs::write(&results, text).unwrap();

    let run = place.run();
    // A changed plan would mix trials of different lengths, or never become complete.
    let plan = run.join("plan.toml");
    let with = |old: &str, new: &str| LONG.replace(old, new);
    for (changed, why) in [
        (with("measure_ms = 60", "measure_ms = 70"), "'measure_ms' differs from the plan"),
        (
            with("size_bytes = 64", "size_bytes = 64\nmessages = 900"),
            "'messages' differs from the plan",
        ),
        (with("trials = 6", "trials = 7"), "it began with 24 trials, but the plan has 28"),
        (with("\"pipe\"", "\"fifo\""), "the plan lacks long/"),
    ] {
        fs::write(&plan, changed).unwrap();
        let refused =
            place.command(&["measure", "--resume", run.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains(why) && said.contains("its plan.toml or the declared contenders"),
            "{said}"
        );
    }
    fs::write(&plan, LONG).unwrap();
    // Findings before a continuation are distinguished from those before the run.
    let preflight = run.join("preflight.json");
    fs::write(&preflight, "[]").unwrap();
    let resumed = place.command(&["measure", "--resume", run.to_str().unwrap()]).output().unwrap();
    assert_success(&resumed);
    let records = place.records();
    assert!(whole < records.len());
    let mut keys: Vec<_> = records.iter().map(|r| (r.case.clone(), r.inputs.trial)).collect();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), count), (4 * 6, 4 * 6));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    let found: Vec<serde_json::Value> =
        serde_json::from_slice(&fs::read(&preflight).unwrap()).unwrap();
    assert!(found.iter().all(|finding| finding["continued"] == true), "{found:?}");
    // A development build is always reported.
    assert!(!found.is_empty() || !cfg!(debug_assertions), "{found:?}");

    // If it is continued again, it has nothing to do, and nothing is added to the findings from before the run.
    let earlier = serde_json::json!([{
        "severity": "warning", "about": "load", "what": "a test was here", "next_step": "wait"
    }]);
    fs::write(&preflight, earlier.to_string()).unwrap();
    let again = place.command(&["measure", "--resume", run.to_str().unwrap()]).output().unwrap();
    assert_success(&again);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("nothing was left to measure"), "{said}");
    assert_eq!(fs::read_to_string(&preflight).unwrap(), earlier.to_string());
}

#[test]
fn an_interrupted_continuation_counts_the_whole_run() {
    let place = Place::new(LONG);
    let mut first = place.start();
    place.await_records(3);
    signal(first.id() as i32, "-INT");
    first.wait().unwrap();
    let before = place.count_records();
    let run = place.run();
    let mut resume = place.command(&["measure", "--json", "--resume", run.to_str().unwrap()]);
    let second = resume.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.await_records(before + 2);
    signal(second.id() as i32, "-INT");
    let output = second.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counted = ["ok", "degraded", "failed", "skipped"].map(|s| told[s].as_u64().unwrap());
    assert_eq!(counted.iter().sum::<u64>() as usize, place.count_records(), "{told}");
}

#[test]
fn a_run_is_measured_by_one_process_only() {
    let place = Place::new(LONG);
    let controller = place.start();
    place.await_records(2);
    // A stopped process keeps its lock, and does not finish the run meanwhile.
    signal(controller.id() as i32, "-STOP");
    let run = place.run();
    let name = run.to_str().unwrap();
    let second = place.command(&["measure", "--resume", name]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("is being measured by another process"), "{said}");
    let ranked = place.command(&["rank", name]).output().unwrap();
    let said = [ranked.stdout, ranked.stderr].concat();
    let said = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("it is still being measured") && !said.contains("--resume"), "{said}");
    signal(controller.id() as i32, "-INT");
    signal(controller.id() as i32, "-CONT");
    controller.wait_with_output().unwrap();
    let resumed = place.command(&["measure", "--resume", name]).output().unwrap();
    assert_success(&resumed);
    assert_eq!(place.records().len(), 4 * 6);
}

#[test]
fn ctrl_c_ends_cleanly_with_what_there_is() {
    for how in ["-INT", "-TERM"] {
        let place = Place::new(LONG);
        let controller = place.start();
        place.await_records(2);
        signal(controller.id() as i32, how);
        let output = controller.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let records = place.records();
        assert!(records.len() >= 2 && records.len() < 24);
        assert!(records.iter().all(is_done));
        assert_eq!(place.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_killed_role_fails_its_trial_and_the_run_goes_on() {
    let place = Place::new(LONG);
    let controller = place.start();
    place.await_records(1);
    // While the controller is stopped, roles continue until they need it: those that were ordered to close have
    // exited by then, the others sleep in the middle of their trial.
    let conductor = controller.id() as i32;
    await_that("a role", || {
        signal(conductor, "-STOP");
        await_that("the stop", || state(conductor) == Some('T'));
        let mut roles = Vec::new();
        let mut looks = 0;
        await_that("roles that wait", || {
            let now = place.processes(|line| line.ends_with("role "));
            let waits = now == roles && now.iter().all(|pid| state(*pid) == Some('S'));
            looks = if waits { looks + 1 } else { 0 };
            roles = now;
            looks == 20
        });
        if let Some(pid) = roles.first() {
            signal(*pid, "-KILL");
        }
        signal(conductor, "-CONT");
        !roles.is_empty()
    });
    let output = controller.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a failed trial is the answer no");
    let records = place.records();
    assert_eq!(records.len(), 24);
    let failed: Vec<_> = records.iter().filter(|r| r.status == Status::Failed).collect();
    assert_eq!(failed.len(), 1);
    let reason = failed[0].reason.as_ref().unwrap();
    assert!(reason.contains("was killed by signal 9"), "{reason}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_frozen_role_is_noticed_by_the_watchdog() {
    let place = Place::new(
        r#"
[group.one]
mechanisms = "pipe"
workload = "ping-pong"
size_bytes = 64
placement = "unpinned"
trials = 1
warmup_ms = 10
measure_ms = 3000
"#,
    );
    let controller = place.start();
    await_that("a role", || {
        place.processes(|line| line.ends_with("role ")).first().is_some_and(|pid| {
            Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success()
        })
    });
    let output = controller.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let records = place.records();
    assert_eq!(records[0].status, Status::Failed);
    let reason = records[0].reason.as_ref().unwrap();
    assert!(reason.contains("did not answer within"), "{reason}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

/// A node that is killed together with the controller cannot remove its socket.
#[test]
fn a_process_group_killed_with_its_node_leaves_no_socket() {
    let place = Place::new(&LONG.replace("\"pipe\"", "\"tipc-node-stream\""));
    let none = place.dir.path().join("no-tipcd");
    let with_node = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("TIPCD_SOCKET", &none);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // The node's socket is next to the leases of its run.
    let sockets = || {
        let runs = fs::read_dir(place.dir.path().join("rt/crossway")).into_iter().flatten();
        let files = runs.flatten().filter_map(|run| fs::read_dir(run.path()).ok()).flatten();
        files.flatten().filter(|f| f.file_name().to_string_lossy().starts_with("tipcd-")).count()
    };
    let mut controller = with_node(&["measure", "plan.toml"]).process_group(0).spawn().unwrap();
    await_that("the node's socket", || sockets() > 0);
    place.await_records(1);
    let group = format!("-{}", controller.id());
    assert!(Command::new("kill").args(["-9", "--", &group]).status().unwrap().success());
    controller.wait().unwrap();
    await_that("a clean end", || place.leftovers().is_empty());
    assert_eq!(sockets(), 0);
    // A command without a run removes the node that it probed, too.
    assert!(with_node(&["list"]).status().unwrap().success());
    assert_eq!((sockets(), place.leftovers()), (0, Vec::new()));
}

/// Kills the controller, alone or together with the reaper, in any phase of a trial of any mechanism.
#[test]
fn kills_at_any_moment_leave_nothing() {
    let place = Place::new(
        r#"
[group.all]
mechanisms = "local"
workload = ["throughput", "ping-pong"]
size_bytes = 64
placement = "unpinned"
trials = 5
warmup_ms = 5
measure_ms = 10
"#,
    );
    for delay_ms in [30, 220, 410, 650, 1300] {
        let mut controller = place.start();
        await_that("the first lease", || !place.leftovers().is_empty());
        std::thread::sleep(Duration::from_millis(delay_ms));
        let with_reaper = delay_ms % 20 == 10;
        if with_reaper {
            // Nothing is left that could clean up: the next start does it.
            for pid in place.processes(|line| line.contains(" reaper ")) {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            }
        }
        controller.kill().unwrap();
        controller.wait().unwrap();
        if with_reaper {
            await_that("the roles' end", || place.processes(|_| true).is_empty());
            assert_success(&place.measure(&["-f", "pipe/throughput", "-o", "next"]));
        }
        await_that("a clean end", || place.leftovers().is_empty());
    }
}
