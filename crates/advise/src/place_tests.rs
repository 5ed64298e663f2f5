//! Tests of where the ends are: testbeds, what two containers share, and records of other places.

use crossway_mech::{Meeting, registry};

use super::candidate::{Known, field};
use super::field_tests::{answer, with_facts};
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_lab::catalogue::Entry;
use crossway_records::inputs::Ends;
use crossway_records::testbed::{Share, TestbedKind};

const NOTHING_KNOWN: Known<'static> = Known { probes: &[], faults: &[] };

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

/// The plan that measures pipe and TCP for a question.
fn plan_of(text: &str) -> crossway_lab::plan::Plan {
    let asked = question(text);
    let few = ["pipe", "tcp-nodelay"].map(|id| registry::find(id).expect("there"));
    let found = field(&asked, &NOTHING_KNOWN, few.into_iter().map(Entry::Mechanism));
    survey::plan(&asked, &found.candidates, 3, 1).expect("a plan")
}

#[test]
fn other_places_are_measured_on_a_testbed_of_their_kind() {
    for (text, kind, hosts, shares) in [
        ("where = \"other-host\"", TestbedKind::Netlab, vec![], vec![]),
        (
            "where = \"other-host\"\nhosts = \"env A=1,env A=2\"",
            TestbedKind::Hosts,
            vec!["env A=1", "env A=2"],
            vec![],
        ),
        ("where = \"other-container\"", TestbedKind::Containers, vec![], vec![]),
        (
            "where = \"other-container\"\nshares = [\"volume\", \"ipc\"]",
            TestbedKind::Containers,
            vec![],
            vec![Share::Ipc, Share::Volume],
        ),
    ] {
        let text = format!("size_bytes = 64\n{text}");
        let plan = plan_of(&text);
        let [testbed] = &plan.testbeds[..] else { panic!("{text}: {:?}", plan.testbeds) };
        assert_eq!((testbed.kind, &testbed.shares), (kind, &shares), "{text}");
        assert_eq!(testbed.hosts, hosts, "{text}");
        assert_eq!(Some(testbed), question(&text).testbed().as_ref());
        assert_eq!(plan.groups[0].testbeds, [Some(testbed.name.clone())]);
        assert_eq!(plan.groups[0].ends, [Ends::Between]);
    }
    assert!(plan_of("size_bytes = 64").testbeds.is_empty());
}

#[test]
fn ends_that_cannot_meet_between_two_containers_are_ruled_out() {
    let ruled_out = |shares: &str, id: &str| -> Option<Objection> {
        let asked = question(&format!("size_bytes = 64\nwhere = \"other-container\"\n{shares}"));
        let found = field(&asked, &NOTHING_KNOWN, registry::ALL.iter().map(Entry::Mechanism));
        found.ruled_out.into_iter().find(|r| r.candidate == id).map(|r| r.objection)
    };
    for id in ["pipe", "splice", "vmsplice", "uring-pipe", "shm-pipe", "memfd", "shm-futex"] {
        let out = ruled_out("", id);
        let cannot = Objection::CannotMeet {
            needs: vec![Meeting::Descriptor],
            shares: vec![],
            apart: false,
        };
        assert_eq!(out, Some(cannot), "{id}");
        for shares in ["shares = \"volume\"", "shares = [\"network\", \"ipc\"]"] {
            assert_eq!(ruled_out(shares, id), None, "{id} with {shares}");
        }
        let only_ipc = ruled_out("shares = \"ipc\"", id).map(|out| out.to_string());
        let only_ipc = only_ipc.unwrap_or_default();
        assert!(only_ipc.contains("share only ipc; if yours share more"), "{id}: {only_ipc}");
    }
    for (id, shares) in
        [("sysv-mq", "ipc"), ("posix-mq", "ipc"), ("fifo", "volume"), ("cma", "pid")]
    {
        let out = ruled_out("", id);
        assert!(matches!(out, Some(Objection::CannotMeet { .. })), "{id}: {out:?}");
        assert_eq!(ruled_out(&format!("shares = \"{shares}\""), id), None, "{id}");
    }
    // TCP needs an address only.
    for id in ["tcp", "tcp-nodelay", "udp"] {
        assert_eq!(ruled_out("", id), None, "{id}");
    }
    // On one host, ends can have anything in common.
    let here = field(&question("size_bytes = 64"), &NOTHING_KNOWN, catalogue::all());
    assert!(here.candidates.iter().any(|c| c.mechanism == "pipe"));
}

#[test]
fn records_of_one_place_do_not_answer_for_another() {
    let between = "size_bytes = 64\nwhere = \"other-container\"\nplacement = \"unpinned\"\n";
    let mut records = with_facts("tcp", 5000, &[]);
    for record in &mut records {
        record.inputs.testbed = Some("mine".to_owned());
        record.inputs.ends = Ends::Between;
        record.inputs.testbed_spec = question(between).testbed();
    }
    assert_eq!(answer(between, &records).choice.as_deref(), Some("tcp"));
    assert_eq!(answer(&format!("{between}shares = \"ipc\""), &records).choice, None);
    assert_eq!(answer(UNPINNED, &records).choice, None);
    let hosts = "size_bytes = 64\nwhere = \"other-host\"\nplacement = \"unpinned\"\n";
    assert_eq!(answer(hosts, &records).choice, None);
}
