//! Goals of a plan, and their effect on the exit status and the report.

use serde_json::Value;

use super::place::Place;

fn plan(require: &str) -> String {
    format!(
        "[group.x]\nmechanisms = \"pipe\"\nworkload = \"ping-pong\"\nsize_bytes = 64\nplacement = \"unpinned\"\n\
         trials = 5\nmessages = 50\nwarmup_ms = 0\nrequire = {{ {require} }}\n"
    )
}

/// Runs a plan with these goals. Returns the exit status, the last line of output, and the goals in the report.
fn run(require: &str, args: &[&str]) -> (Option<i32>, String, Value) {
    let place = Place::new(&plan(require));
    let output = place.measure(args);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = place.command(&["report", "latest", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let page = std::fs::read_to_string(place.run().join("report.html")).unwrap();
    assert!(page.contains("Goals: ") && page.contains("<section id=\"goals\""));
    (output.status.code(), said, report["goals"].clone())
}

#[test]
fn goals_decide_the_exit_status_and_stand_in_the_report() {
    let (code, said, goals) = run("p50_us = 1e9, msgs_per_s = 1e-3", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Goals: 2 goals met, 0 missed, 0 undecided."), "{said}");
    assert_eq!(goals.as_array().unwrap().len(), 2);
    assert!(goals.as_array().unwrap().iter().all(|g| g["verdict"] == "met" && g["trials"] == 5));

    let (code, said, goals) = run("p50_us = 1e9, max_us = 1e-3", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Goals: 1 goal met, 1 missed, 0 undecided."), "{said}");
    assert!(said.contains("- missed: max_us at most 1.00 ns, measured "), "{said}");
    assert!(said.contains("x/pipe/ping-pong/64/block/unpinned"), "{said}");
    assert_eq!(goals[0]["verdict"], "missed", "what is missed comes first");
}

#[test]
fn what_the_trials_leave_open_fails_unless_it_is_allowed() {
    let open = "p999_us = 1e9";
    let (code, said, goals) = run(open, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(goals[0]["verdict"], "undecided");
    assert!(goals[0]["reason"].as_str().unwrap().contains("raise measure_ms"), "{goals}");
    assert_eq!(run(open, &["--allow-unclear"]).0, Some(0));
    let few = run("p50_us = 1e9", &["--trials", "4"]);
    assert_eq!(few.0, Some(1), "four trials decide nothing: {}", few.1);
}
