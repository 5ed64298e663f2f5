//! Commands that describe this machine: `doctor`, `env` and `limits`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{run, this_machine};

#[test]
fn the_doctor_names_every_mechanism_and_a_remedy_for_what_is_missing() {
    let (out, err, code) = run(&["doctor", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let items: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    for entry in crossway_mech::registry::ALL {
        assert!(items.iter().any(|i| i["name"] == entry.id), "{}", entry.id);
    }
    for item in &items {
        let ready = item["ready"].as_bool().expect("a flag");
        assert_eq!(ready, item["remedy"].is_null(), "{item}");
    }
    let (out, _, code) = run(&["doctor"]);
    assert_eq!(code, 0);
    assert!(out.contains("stress-ng"), "{out}");
}

#[test]
fn the_environment_names_no_host_unless_asked() {
    let env = this_machine();
    assert!(env["machine_id"].as_str().is_some_and(|id| id.len() == 16));
    assert!(env.get("hostname").is_none());
    let (out, _, code) = run(&["env", "--hostname", "--json"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_str::<Value>(&out).expect("JSON").get("hostname").is_some());
}

#[test]
fn limits_refuse_cpus_that_cannot_be_used() {
    for (pair, says) in
        [("0-0", "must be different"), ("x", "two CPU numbers"), ("0-60000", "cannot be used")]
    {
        let (_, err, code) = run(&["limits", "--pair", pair]);
        assert_eq!(code, 2);
        assert!(err.contains(says), "{err}");
    }
    let (_, err, code) = run(&["limits", "--sizes", "0"]);
    assert_eq!(code, 2);
    assert!(err.contains('0'), "{err}");
}

#[test]
fn each_limit_is_measured_or_has_the_reason_why_not() {
    let (out, err, code) = run(&["limits", "--json", "--sizes", "64"]);
    assert_eq!(code, 0, "{err}");
    let limits: Value = serde_json::from_str(&out).expect("JSON");
    let list = |name: &str| limits[name].as_array().expect("an array").clone();
    let gaps = limits["gaps"].to_string();
    for (name, figure) in [
        ("cache_lines", "two_lines_ns"),
        ("wakes", "wake_to_run_ns"),
        ("exchanges", "round_trip_ns"),
        ("copies", "bytes_per_s"),
    ] {
        let median = |row: &Value| row[figure]["median"].as_f64().expect("a figure");
        assert!(list(name).iter().all(|row| median(row) > 0.0), "{name}");
        assert!(!list(name).is_empty() || gaps.contains("CPU"), "{name}: {gaps}");
    }
    // The exchange is measured between each pair of the copies and on one CPU; what did not count is a gap.
    let copies = list("copies");
    let pairs: BTreeSet<_> = copies.iter().map(|c| (c["a"].as_u64(), c["b"].as_u64())).collect();
    let refused = gaps.matches("no blocking exchange").count();
    assert_eq!(list("exchanges").len() + refused, pairs.len() + 1, "{limits}");
}
