//! By what the programs of a recording can meet, and which mechanisms that leaves.

use super::*;
use crate::candidate::{Candidate, Change, Field, Known, field};
use crate::{Objection, Question};
use crossway_lab::catalogue::Entry;
use crossway_mech::{Meeting, Wait, registry};
use crossway_observe::recording::{Origin, Recording};
use crossway_observe::tape::exchanges;
use crossway_records::testbed::Share;

/// A recording of exchanges over TCP between a client and a server with these parents, each in a session of its own or
/// both in one, and with these mount namespaces.
fn recording(parents: [u32; 2], sessions: [u32; 2], mounts: [u64; 2]) -> Recording {
    let mut recording = exchanges(50, "tcp-local", Some(100)).recording;
    for at in 0..2 {
        recording.head.processes[at].origin = Some(Origin {
            parent: Some(parents[at]),
            session: Some(sessions[at]),
            namespaces: Some(Namespaces { network: 1, ipc: 2, mount: mounts[at], pid: 4 }),
        });
    }
    recording
}

fn asked(recording: &Recording) -> Question {
    let flow = flows(recording).remove(0);
    Question::from_table("observed", "the recording", &flow.question()).unwrap()
}

fn field_of(question: &Question) -> Field {
    let known = Known { probes: &[], faults: &[] };
    field(question, &known, registry::ALL.iter().map(Entry::Mechanism))
}

fn has(field: &Field, id: &str) -> bool {
    field.candidates.iter().any(|candidate| candidate.mechanism == id)
}

/// Mechanisms of which an end is a descriptor that somebody must inherit or be passed.
const DESCRIPTORS: [&str; 6] =
    ["pipe", "splice", "vmsplice", "uring-pipe", "shm-pipe", "shm-futex"];

#[test]
fn programs_that_were_started_apart_use_nothing_that_needs_a_common_parent() {
    for apart in [
        recording([5, 6], [5, 6], [3, 3]),
        // Two services of one manager.
        recording([5, 5], [10, 20], [3, 3]),
        // A recording of an earlier version, or an import.
        exchanges(50, "tcp-local", Some(100)).recording,
    ] {
        let question = asked(&apart);
        let field = field_of(&question);
        for id in DESCRIPTORS {
            let out = field.ruled_out.iter().find(|out| out.candidate == id).map(|r| &r.objection);
            let Some(out @ Objection::CannotMeet { needs, apart: true, .. }) = out else {
                panic!("{id}: {out:?}")
            };
            assert_eq!(needs[..], [Meeting::Descriptor], "{id}");
            assert_eq!(out.brief(), "needing a common parent");
            assert!(out.to_string().contains("say so: `--started together`"), "{out}");
        }
        for id in ["tcp", "uds-stream", "uds-seqpacket", "fifo", "posix-mq", "sysv-mq"] {
            assert!(has(&field, id), "{id}");
        }
        assert!(question.sentence().contains("programs that were started apart"));
    }
}

#[test]
fn a_parent_and_its_child_and_two_siblings_keep_pipes() {
    for kin in [recording([5, 5], [5, 5], [3, 3]), recording([5, 10], [5, 20], [3, 3])] {
        let question = asked(&kin);
        let field = field_of(&question);
        assert!(DESCRIPTORS.iter().all(|id| has(&field, id)), "{:?}", field.ruled_out);
        assert!(!question.apart && question.shares.is_empty());
    }
    let mut inherited = recording([5, 6], [5, 6], [3, 3]);
    inherited.head.channels[1].carrier = "pipe".to_owned();
    assert!(has(&field_of(&asked(&inherited)), "splice"));
}

#[test]
fn mount_namespaces_of_their_own_leave_no_paths() {
    let field = field_of(&asked(&recording([5, 6], [5, 6], [3, 4])));
    assert!(!has(&field, "fifo") && !has(&field, "posix-shm"), "{:?}", field.candidates);
    // Abstract names are in the network namespace, queues in that of IPC.
    assert!(has(&field, "uds-stream") && has(&field, "sysv-mq"));
    let fifo = field.ruled_out.iter().find(|out| out.candidate == "fifo").unwrap();
    let told = "programs, which were started apart, share only ipc, network, pid; if yours share more, say so: \
                `--shares volume`";
    assert!(fifo.why.contains(told), "{}", fifo.why);
    // Without a common network, the two are measured as containers are.
    let mut far = recording([5, 6], [5, 6], [3, 4]);
    far.head.processes[1].origin.as_mut().unwrap().namespaces =
        Some(Namespaces { network: 9, ipc: 8, mount: 4, pid: 4 });
    let question = asked(&far);
    assert_eq!(
        (question.site.word(), &question.shares[..]),
        ("other-container", &[Share::Pid][..])
    );
    assert!(has(&field_of(&question), "tcp") && !has(&field_of(&question), "uds-stream"));
}

#[test]
fn what_changes_least_comes_first_among_equals() {
    let question = asked(&recording([5, 5], [5, 5], [3, 3]));
    assert_eq!(question.now, Some("tcp-nodelay"));
    let of = |now: &str, id: &str| {
        let entry = registry::find(id).unwrap();
        let candidate = Candidate {
            mechanism: entry.id,
            wait: Wait::Block,
            caps: (entry.caps)(),
            contender: false,
            order: 0,
            facts: Vec::new(),
        };
        candidate.change_from(Some(now))
    };
    let from_tcp: Vec<Change> = ["tcp-nodelay", "uds-stream", "uds-seqpacket", "pipe", "uring-tcp"]
        .map(|id| of("tcp-nodelay", id))
        .to_vec();
    let expected =
        [Change::Nothing, Change::Opening, Change::Framing, Change::Calls, Change::Calls];
    assert_eq!(from_tcp, expected);
    assert_eq!(of("pipe", "fifo"), Change::Opening);
    assert_eq!(of("udp", "uds-dgram"), Change::Opening);
}
