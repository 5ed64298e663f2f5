//! Tests with plans that name testbeds and hosts.

use super::tests::{GROUP, cases_of, error, parse};
use super::*;
use crate::case::Case;

const TWO_BEDS: &str = r#"
[testbed.fast]
kind = "netlab"
rate = "1gbit"
mtu = 9000
offloads = "on"
[testbed.vm]
kind = "guests"
tipc = ["kernel", "node"]
[testbed.real]
kind = "hosts"
[group.x]
mechanisms = ["pipe", "tcp"]
testbed = ["local", "fast", "real"]
ends = ["between", "within"]
workload = "throughput"
size_bytes = 64
"#;

#[test]
fn testbeds_and_ends_are_axes() {
    let mut plan = parse(TWO_BEDS).unwrap();
    assert_eq!(plan.testbeds.len(), 3);
    let cases = cases_of(&plan);
    let ids: Vec<_> = cases.iter().filter(|c| c.mechanism == "tcp").map(|c| c.id.clone()).collect();
    assert_eq!(
        ids,
        [
            "tcp/throughput/64/block/other-core",
            "tcp/throughput/64/block/unpinned/fast",
            "tcp/throughput/64/block/unpinned/fast/within",
            "tcp/throughput/64/block/unpinned/real",
            "tcp/throughput/64/block/unpinned/real/within",
        ]
    );
    let why = |id: &str, cases: &[Case]| {
        let case = cases.iter().find(|c| c.id == id).unwrap_or_else(|| panic!("{id}"));
        case.excluded.as_ref().map_or(String::new(), |e| format!("{}; {}", e.why, e.remedy))
    };
    let between = why("pipe/throughput/64/block/unpinned/fast", &cases);
    assert_eq!(between, "the mechanism does not work between hosts; set ends = \"within\"");
    assert_eq!(why("pipe/throughput/64/block/unpinned/fast/within", &cases), "");
    let nobody = why("tcp/throughput/64/block/unpinned/real", &cases);
    assert!(nobody.starts_with("the testbed 'real' has no hosts; name two"), "{nobody}");

    plan.set_hosts("ssh a,ssh b,ssh c").unwrap();
    let cases = cases_of(&plan);
    for pair in ["ssh a to ssh b", "ssh a to ssh c", "ssh b to ssh c"] {
        assert_eq!(why(&format!("tcp/throughput/64/block/unpinned/real/{pair}"), &cases), "");
    }
    assert_eq!(why("pipe/throughput/64/block/unpinned/real/within/ssh a", &cases), "");
}

#[test]
fn hosts_move_a_plan_without_testbeds() {
    let mut plan = parse(
        "[group.x]\nmechanisms = [\"pipe\", \"tcp\"]\nworkload = \"ping-pong\"\nsize_bytes = 1\n\
         placement = \"same-core\"\n",
    )
    .unwrap();
    plan.set_hosts("ssh a,").unwrap();
    let cases = cases_of(&plan);
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].id, "tcp/ping-pong/1/block/unpinned/hosts/ssh a to local");
    assert_eq!(cases[0].excluded, None);

    let error = parse(GROUP).unwrap().set_hosts("ssh a,ssh b").unwrap_err().to_string();
    assert!(error.contains("no mechanism that works between hosts"), "{error}");
    let only_netlab = format!("[testbed.n]\nkind = \"netlab\"\n{GROUP}");
    let error = parse(&only_netlab).unwrap().set_hosts("ssh a,ssh b").unwrap_err().to_string();
    assert!(error.contains("no testbed of kind \"hosts\""), "{error}");
}

#[test]
fn a_record_of_a_testbed_can_be_repeated() {
    let mut plan = parse(TWO_BEDS).unwrap();
    plan.set_hosts("ssh a,ssh b,ssh c=10.0.0.3").unwrap();
    for case in cases_of(&plan).into_iter().filter(|c| c.inputs.testbed.is_some()) {
        let mut record = crossway_records::samples::ping_pong(case.mechanism, 64, 0, 1, 1.0);
        record.inputs = case.inputs.clone();
        record.group.clone_from(&case.group);
        let mut again = Plan::repeating(&record).unwrap();
        let (bed, spec) = (&mut again.testbeds[0], case.inputs.testbed_spec.as_ref().unwrap());
        // Their prefixes are commands, which nobody's record may bring along.
        assert!(bed.hosts.is_empty(), "{:?}", bed.hosts);
        bed.hosts.clone_from(&spec.hosts);
        assert_eq!(cases_of(&again), [case]);
    }
}

#[test]
fn testbeds_that_cannot_be_are_refused_by_key() {
    for (text, why) in [
        ("[testbed.local]\nkind = \"netlab\"", "testbed.local: 'local' is this machine"),
        ("[testbed.n]", "testbed.n.kind: missing; allowed: netlab, guests, hosts"),
        ("[testbed.n]\nkind = \"vm\"", "testbed.n.kind: unknown kind 'vm'"),
        ("[testbed.n]\nkind = \"netlab\"\nrate = \"fast\"", "testbed.n.rate: rate 'fast'"),
        ("[testbed.n]\nkind = \"netlab\"\nmtu = 100", "testbed.n.mtu: 100 is not between"),
        ("[testbed.n]\nkind = \"netlab\"\ntipc = \"kernel\"", "needs kind = \"guests\""),
        ("[testbed.n]\nkind = \"hosts\"\nmtu = 1500", "testbed.n.mtu: unknown key"),
        ("[testbed.n]\nkind = \"netlab\"\nspeed = 1", "testbed.n.speed: unknown key"),
    ] {
        let error = error(&format!("{text}\n{GROUP}"));
        assert!(error.contains(why), "{error}");
    }
    let error = error(&format!("{GROUP}testbed = \"fast\"\n"));
    assert!(error.contains("unknown testbed 'fast'; allowed: local"), "{error}");
    let error = self::error(&format!("{GROUP}ends = \"both\"\n"));
    assert!(error.contains("allowed: between, within"), "{error}");
}

#[test]
fn one_host_is_refused_before_a_run_if_every_case_needs_two() {
    let mut plan = Plan::load("quick").unwrap();
    assert!(matches!(plan.clone().set_hosts("local"), Err(HostsError::One)));
    plan.set_hosts("local,env A=1").unwrap();
}
