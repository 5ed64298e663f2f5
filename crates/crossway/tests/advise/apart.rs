//! Questions about ends on two hosts, or in two containers.

use super::place::{Place, await_that};

/// Asks a question in a separate folder; returns the answer and the error output.
fn asked(place: &Place, arguments: &[&str]) -> (serde_json::Value, String) {
    let mut all = vec!["advise", "--size", "64", "--json", "--time", "8s"];
    all.extend(arguments);
    let output = place.command(&all).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{errors}");
    let answer = serde_json::from_slice(&output.stdout).expect("JSON");
    await_that("the end of everything", || place.leftovers().is_empty());
    (answer, errors)
}

/// Returns the candidates that have figures.
fn compared(answer: &serde_json::Value) -> Vec<&str> {
    let all = answer["compared"].as_array().expect("a list");
    all.iter().filter_map(|c| c["candidate"].as_str()).collect()
}

#[test]
fn between_hosts_only_what_crosses_them_is_measured_by_their_agents() {
    let place = Place::new("");
    let hosts = "env A=1,env A=2";
    // Kernel interfaces only: a tipcd's sockets would first wait for a link between the two.
    let few = ["--where", "other-host", "--require", "delivery,language=c"];
    let (answer, errors) = asked(&place, &[&few[..], &["--hosts", hosts]].concat());
    let found = compared(&answer);
    assert!(found.contains(&"tcp") && !found.contains(&"pipe"), "{found:?}: {errors}");
    let command = answer["commands"][0].as_str().expect("a command");
    assert!(command.ends_with(&format!("plan.toml --hosts '{hosts}'")), "{command}");
    let out = answer["ruled_out"].as_array().expect("a list");
    let pipe = out.iter().find(|r| r["candidate"] == "pipe").expect("ruled out");
    assert!(
        pipe["why"].as_str().is_some_and(|why| why.contains("does not work between hosts")),
        "{pipe}"
    );
    // These records answer for these hosts, and for no others. A command that reproduces figures has the filter of
    // their run.
    let out = place.dir.path().join("out");
    assert_eq!(std::fs::read_dir(&out).expect("answers").count(), 1, "one folder for one answer");
    for run in crossway_records::runs::folders(&out) {
        let path = run.join("run.json");
        let mut info: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).expect("run.json")).expect("JSON");
        info["filters"] = serde_json::json!(["tcp|udp x"]);
        std::fs::write(&path, info.to_string()).expect("written");
    }
    let again = [&few[..], &["--no-measure", "--hosts"]].concat();
    let (answer, _) = asked(&place, &[&again[..], &[hosts]].concat());
    assert!(compared(&answer).contains(&"tcp"), "{answer}");
    let command = answer["commands"][0].as_str().expect("a command");
    let told = format!("plan.toml --filter 'tcp|udp x' --hosts '{hosts}'");
    assert!(command.ends_with(&told), "{command}");
    let (answer, _) = asked(&place, &[&again[..], &["env A=1,env A=3"]].concat());
    assert_eq!(compared(&answer), Vec::<&str>::new());
}

#[test]
fn between_containers_what_they_share_decides() {
    let place = Place::new("");
    if !crossway_sys::proc::is_root() {
        eprintln!("SKIP: containers need root; run the test as root");
        return;
    }
    let few = ["--where", "other-container", "--require", "pollable"];
    let few = [&few[..], &["--prohibit", "boundaries", "--placement", "unpinned"]].concat();
    let (answer, errors) = asked(&place, &few);
    let found = compared(&answer);
    assert!(found.contains(&"tcp"), "{found:?}: {errors}");
    for id in ["pipe", "splice", "fifo", "uds-stream"] {
        assert!(!found.contains(&id), "{found:?}");
        let out = answer["ruled_out"].as_array().expect("a list");
        let out = out.iter().find(|r| r["candidate"] == id).expect("ruled out");
        assert_eq!(out["objection"]["kind"], "cannot-meet", "{out}");
    }
    if answer["choice"].is_string() {
        assert_eq!(answer["meets"], serde_json::json!(["network"]), "{answer}");
    }
    let (answer, errors) = asked(&place, &[&few[..], &["--shares", "volume"]].concat());
    let found = compared(&answer);
    assert!(found.contains(&"fifo") && found.contains(&"pipe"), "{answer}: {errors}");
}
