//! Tests of traces: every signal is recorded or counted as lost, and no reader delays an endpoint.

use std::path::Path;
use std::time::{Duration, Instant};

use crossway_linx::signal::USER_BASE;
use crossway_linx::trace::Trace;
use crossway_linx::{Endpoint, Error, Filter, Node, Settings, Signal, Transport};

const WATCHDOG: Duration = Duration::from_secs(60);
/// The events in a record (see `crossway_linx.lua`).
const SIGNAL: u8 = 1;
const EXISTS: u8 = 10;

fn soon() -> Option<Instant> {
    Some(Instant::now() + WATCHDOG)
}

/// Starts a trace; retries while the node has not noticed the end of the previous one.
fn trace(at: &Path) -> Trace {
    let begin = Instant::now();
    loop {
        match Trace::start(at, 8) {
            Err(Error::Limit(why)) if begin.elapsed() < WATCHDOG => {
                assert!(why.contains("already traces"), "{why}");
                std::thread::sleep(Duration::from_millis(1));
            }
            started => return started.unwrap(),
        }
    }
}

/// Reads records until there are no more; returns the numbers of records of signals and of existing endpoints.
fn read(trace: &mut Trace) -> (u64, u64) {
    let (mut signals, mut exist) = (0, 0);
    while let Some(record) = trace.try_next().unwrap() {
        match record.bytes[1] {
            SIGNAL => signals += 1,
            EXISTS => exist += 1,
            other => panic!("event {other}"),
        }
    }
    (signals, exist)
}

fn exchange(a: &mut Endpoint, b: &mut Endpoint, count: u32) {
    for n in 0..count {
        a.send(Signal::with_payload(USER_BASE + n, b"payload").unwrap(), b.spid()).unwrap();
        let got = b.receive(&Filter::ANY, soon()).unwrap().unwrap();
        assert_eq!(got.number(), USER_BASE + n);
    }
}

#[test]
fn a_reader_that_does_not_read_costs_records_and_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    for transport in [Transport::Uds, Transport::Fifo, Transport::Shm] {
        let at = dir.path().join(transport.to_string());
        let _node = Node::spawn(&at, Settings { transport, ..Settings::default() }).unwrap();
        let mut a = Endpoint::open(&at, "a").unwrap();
        let mut b = Endpoint::open(&at, "b").unwrap();
        exchange(&mut a, &mut b, 10);
        let mut trace = trace(&at);
        // Neither end sleeps on the node in between, and the trace has every signal all the same.
        exchange(&mut a, &mut b, 5);
        assert_eq!(read(&mut trace), (10, 2), "{transport}");
        assert_eq!(trace.lost(), 0);
        exchange(&mut a, &mut b, 20_000);
        let (read, _) = read(&mut trace);
        assert!(read > 0 && trace.lost() > 0, "{transport}: {read} records");
        assert_eq!(read + trace.lost(), 40_000, "{transport}");
    }
}

#[test]
fn a_trace_ends_with_its_reader_and_another_one_can_follow() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let _node = Node::spawn(&at, Settings::default()).unwrap();
    let mut a = Endpoint::open(&at, "a").unwrap();
    let mut b = Endpoint::open(&at, "b").unwrap();
    for _ in 0..3 {
        let mut first = trace(&at);
        let why = Trace::start(&at, 8).unwrap_err().to_string();
        let reader = format!("process {} already traces", std::process::id());
        assert!(why.contains(&reader), "{why}");
        exchange(&mut a, &mut b, 3);
        assert_eq!(read(&mut first), (6, 2));
        drop(first);
        exchange(&mut a, &mut b, 3);
    }
    // A new endpoint takes part immediately, and an endpoint may send to itself.
    let mut last = trace(&at);
    let mut c = Endpoint::open(&at, "c").unwrap();
    let own = c.spid();
    c.send(Signal::new(USER_BASE, 0).unwrap(), own).unwrap();
    c.receive(&Filter::ANY, soon()).unwrap().unwrap();
    let mut events = Vec::new();
    while let Some(record) = last.try_next().unwrap() {
        events.push(record.bytes[1]);
    }
    assert_eq!(events, [EXISTS, EXISTS, 2, SIGNAL, SIGNAL]);
}

#[test]
fn a_trace_reports_the_end_of_its_node() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let node = Node::spawn(&at, Settings::default()).unwrap();
    let mut trace = trace(&at);
    drop(node);
    let begin = Instant::now();
    loop {
        match trace.try_next() {
            Err(Error::NodeGone) => break,
            other => assert!(begin.elapsed() < WATCHDOG, "{other:?}"),
        }
        trace.wait(soon()).unwrap();
    }
}
