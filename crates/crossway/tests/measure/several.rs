//! Workloads of several roles whose messages are timed one by one: clients of one server, and a fan-out at a rate.

use crossway_records::record::{Record, Span};

use super::place::Place;
use super::{assert_success, is_done};

/// Whether everything arrived intact, and every message that counts was timed.
fn check(record: &Record, roles: usize, span: Span) {
    assert!(is_done(record), "{}: {:?}", record.case, record.reason);
    let counts = record.counts.as_ref().unwrap();
    assert_eq!((counts.sent, counts.corrupt), (counts.received, 0), "{}", record.case);
    assert!(counts.received > 0, "{}", record.case);
    let [latency] = &record.latency_ns[..] else { panic!("{:?}", record.latency_ns) };
    assert_eq!((latency.span, latency.n), (span, counts.received), "{}", record.case);
    assert_eq!(record.roles.len(), roles, "{}", record.case);
}

#[test]
fn requests_of_several_clients_and_several_in_flight_are_verified_and_timed() {
    let place = Place::new(
        "[defaults]\nmechanisms = [\"pipe\", \"uds-seqpacket\", \"tcp\", \"shm-futex\", \"posix-mq\", \"fifo\"]\n\
         placement = \"unpinned\"\ntrials = 1\nwarmup_ms = 5\nmeasure_ms = 30\nreply_bytes = \"4 KiB\"\n\
         size_bytes = [64, \"4 KiB\"]\n\
         [group.three]\nworkload = { clients = { clients = 3, in_flight = 4 } }\n\
         [group.many]\nworkload = { clients = { clients = 1, in_flight = 64 } }\n\
         [group.two]\nworkload = { clients = { clients = 2 } }\n",
    );
    assert_success(&place.measure(&[]));
    let records = place.records();
    assert_eq!(records.len(), 3 * 2 * 6);
    for record in &records {
        let clients = match record.group.as_str() {
            "three" => 3,
            "two" => 2,
            _ => 1,
        };
        check(record, clients + 1, Span::RoundTrip);
        assert!(record.throughput.is_some() && record.fairness.is_none(), "{}", record.case);
    }
}

#[test]
fn a_fan_out_at_a_rate_is_timed_at_each_receiver() {
    let place = Place::new(
        "[group.ticker]\nmechanisms = [\"pipe\", \"uds-dgram\", \"udp\", \"tcp\", \"shm-futex\"]\n\
         placement = \"unpinned\"\ntrials = 1\nwarmup_ms = 5\nmeasure_ms = 60\nsize_bytes = 64\n\
         workload = { fan-out = { receivers = 3, period_us = 1000 } }\n",
    );
    assert_success(&place.measure(&[]));
    let records = place.records();
    assert_eq!(records.len(), 5);
    for record in &records {
        check(record, 4, Span::OneWay);
        // A busy machine sends fewer than are due.
        let pacing = record.pacing.expect("a schedule");
        let sent = record.counts.as_ref().unwrap().sent;
        assert_eq!(sent, 3 * pacing.bursts, "{}", record.case);
    }
}
