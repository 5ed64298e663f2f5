//! Programs on a virtual host: signals reach them, and they can clean up when their network is taken down.

use super::*;

/// A program that makes the file `begun`, and the file `cleaned` when it is told to end.
const PROGRAM: &str =
    "trap 'touch cleaned; exit 7' TERM; touch begun; while :; do sleep 0.02; done";

/// Starts the program on the only host of a new network; returns the network's name too.
fn start(place: &Path) -> (String, Child) {
    let up = Command::new(CROSSWAY).args(["net", "up", "--hosts", "a", "--json"]).output().unwrap();
    let network: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    let name = network["name"].as_str().unwrap().to_owned();
    let host = format!("{name}/a");
    let child = Command::new(CROSSWAY)
        .args(["net", "exec", &host, "--", "sh", "-c", PROGRAM])
        .current_dir(place)
        .spawn()
        .unwrap();
    await_that("the program runs", || place.join("begun").exists());
    (name, child)
}

fn down(name: &str) {
    assert!(Command::new(CROSSWAY).args(["net", "down", name]).status().unwrap().success());
}

#[test]
fn a_signal_to_net_exec_reaches_the_program() {
    if !can_make_networks("signals of net exec") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (name, mut child) = start(place.path());
    signal(child.id() as i32, "-TERM");
    let status = child.wait().unwrap();
    let cleaned = place.path().join("cleaned").exists();
    down(&name);
    assert_eq!((status.code(), cleaned), (Some(7), true));
}

#[test]
fn programs_can_clean_up_when_their_network_is_taken_down() {
    if !can_make_networks("clean-up by programs of net down") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (name, mut child) = start(place.path());
    down(&name);
    child.wait().unwrap();
    assert!(place.path().join("cleaned").exists());
}
