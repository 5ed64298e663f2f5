//! Workloads of several roles whose messages are timed one by one: clients of one server, as fast as possible and at a rate,
//! and fans at a rate.

use crossway_records::record::{Record, Span, Status};

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
fn requests_of_several_clients_at_a_rate_are_verified_and_timed_from_when_they_are_due() {
    let place = Place::new(
        "[group.rate]\nmechanisms = [\"pipe\", \"uds-seqpacket\", \"tcp\", \"shm-futex\", \"posix-mq\", \"udp\"]\n\
         placement = \"unpinned\"\ntrials = 1\nwarmup_ms = 5\nmeasure_ms = 60\nsize_bytes = 64\n\
         reply_bytes = 200\nworkload = { clients = { clients = 3, period_ns = 1000000 } }\n\
         [group.flight]\nmechanisms = [\"pipe\", \"uds-seqpacket\", \"tcp\", \"shm-futex\", \"posix-mq\"]\n\
         placement = \"unpinned\"\ntrials = 1\nwarmup_ms = 5\nmeasure_ms = 60\nsize_bytes = 64\n\
         reply_bytes = 200\nworkload = { clients = { clients = 3, in_flight = 4, period_ns = 1000000 } }\n\
         [group.small]\nmechanisms = \"pipe\"\ntrials = 1\nsize_bytes = 4\n\
         workload = { clients = { clients = 2, period_ns = 1000000 } }\n",
    );
    assert_success(&place.measure(&[]));
    let (records, skipped): (Vec<_>, Vec<_>) =
        place.records().into_iter().partition(|record| record.status != Status::Skipped);
    assert_eq!(records.len(), 10);
    for record in &records {
        check(record, 4, Span::RoundTrip);
        let pacing = record.pacing.expect("a schedule");
        // Each request was due at its time, whatever happened to the one before it.
        let sent = record.counts.as_ref().unwrap().sent;
        assert_eq!((sent % 3, pacing.bursts), (0, sent), "{}", record.case);
        assert_eq!(pacing.intended_bits_per_s, 3_000.0 * 200.0 * 8.0, "{}", record.case);
        let lateness = pacing.lateness_ns.expect("how late the clients were");
        assert_eq!(lateness.n, sent, "{}", record.case);
        let [latency] = &record.latency_ns[..] else { panic!("{:?}", record.latency_ns) };
        assert!(latency.max >= lateness.max, "it counts from the due time: {}", record.case);
    }
    // The mark that ends a client's requests must arrive and be told from a message.
    let why: Vec<_> = skipped.iter().filter_map(|record| record.reason.as_deref()).collect();
    assert!(why.iter().any(|why| why.contains("may lose the message that ends")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("sequence number of 8 bytes")), "{why:?}");
    assert_eq!(why.len(), 2);
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

#[test]
fn a_fan_in_at_a_rate_is_timed_from_when_each_sender_had_to_send() {
    // One channel per sender, or one for all (the first three).
    let place = Place::new(
        "[defaults]\nplacement = \"unpinned\"\ntrials = 1\nwarmup_ms = 5\nsize_bytes = 64\n\
         [group.sensors]\nmechanisms = [\"uds-dgram\", \"fifo\", \"posix-mq\", \"pipe\", \"tcp\", \"shm-futex\", \"udp\"]\n\
         measure_ms = 60\nworkload = { fan-in = { senders = 3, period_us = 1000 } }\n\
         [group.behind]\nmechanisms = [\"uds-dgram\", \"pipe\"]\nmeasure_ms = 100\n\
         workload = { fan-in = { senders = 3, period_us = 2000, receiver_us = 2000 } }\n",
    );
    assert_success(&place.measure(&[]));
    let (records, skipped): (Vec<_>, Vec<_>) =
        place.records().into_iter().partition(|record| record.status != Status::Skipped);
    assert_eq!(records.len(), 8);
    for record in &records {
        check(record, 4, Span::OneWay);
        let pacing = record.pacing.expect("a schedule");
        let sent = record.counts.as_ref().unwrap().sent;
        // Each message was due at its time, whatever happened to the one before it.
        assert_eq!((sent % 3, pacing.bursts), (0, sent), "{}", record.case);
        let lateness = pacing.lateness_ns.expect("how late the senders were");
        assert_eq!(lateness.n, sent, "{}", record.case);
        let [latency] = &record.latency_ns[..] else { panic!("{:?}", record.latency_ns) };
        assert!(latency.max >= lateness.max, "it counts from the due time: {}", record.case);
        if record.group == "behind" {
            // The receiver takes at least 2 ms for each message, so the last one is received that
            // long after the first for each message between; it was due within as many periods of 2
            // ms as each sender has messages, and begins up to one period later.
            let least = 2_000_000 * (sent - 1 - (sent / 3 + 1));
            assert!(latency.max >= least, "{}: {} ns, not {least}", record.case, latency.max);
            let why = record.reason.as_deref().unwrap_or("none");
            assert!(why.contains("the rate was not achieved"), "{}: {why}", record.case);
        }
    }
    let [udp] = &skipped[..] else { panic!("{skipped:?}") };
    let why = udp.reason.as_deref().unwrap_or("none");
    assert!(why.contains("may lose the message that ends"), "{why}");
}
