//! Requests, floods and trace records that a node must withstand.

use std::os::unix::fs::FileExt;

use crossway_sys::socket;
use crossway_sys::words::SharedWords;

use super::{Place, soon};
use crate::control::Control;
use crate::limits::RECORD;
use crate::signal::USER_BASE;
use crate::trace::Trace;
use crate::wire::local::{Event, Report, Request, VERSION};
use crate::{Endpoint, Filter, Options, Signal, Transport};

#[test]
fn a_malformed_request_ends_its_own_connection_and_no_other() {
    let mut place = Place::new(Transport::Uds);
    let own = Request::Hunt { id: 1, owner: None, path: "a".into() };
    let open = Request::Open { version: VERSION, name: "x".into() };
    let report = Request::Report { serial: 0, report: Report::default() };
    let bad_path = Request::Hunt { id: 1, owner: None, path: "//".into() };
    // Sent immediately, and after opening an endpoint.
    let at_once: [Vec<u8>; 6] =
        [vec![0], vec![255; 100], vec![1; RECORD], own.encode(), report.encode(), {
            let mut cut = open.encode();
            cut.pop();
            cut
        }];
    for bytes in &at_once {
        let intruder = place.intruder();
        intruder.say_bytes(bytes);
        intruder.is_disconnected(&format!("{bytes:?} at once"));
    }
    let later = [vec![0], vec![77; 5], open.encode(), bad_path.encode(), vec![6; RECORD + 100]];
    for bytes in later {
        let (intruder, _) = place.intruder().open("x");
        intruder.say_bytes(&bytes);
        intruder.is_disconnected(&format!("{bytes:?} after opening"));
    }
    // The same reference used twice.
    for twice in [
        Request::Hunt { id: 7, owner: None, path: "nobody".into() },
        Request::Attach { id: 7, spid: place.b.spid() },
    ] {
        let (intruder, _) = place.intruder().open("x");
        intruder.say(&twice);
        intruder.say(&twice);
        intruder.is_disconnected(&format!("{twice:?} twice"));
    }
    place.is_unharmed("garbage");
}

#[test]
fn requests_that_name_other_endpoints_change_nothing_of_theirs() {
    let mut place = Place::new(Transport::Uds);
    place.is_unharmed("nothing yet");
    let (a, b) = (place.a.spid(), place.b.spid());
    place.a.attach(b, None).unwrap();
    place.a.hunt("late", None).unwrap();
    let (intruder, own) = place.intruder().open("x");
    // References are local to each connection.
    for id in 0..100 {
        intruder.say(&Request::CancelHunt { id });
        intruder.say(&Request::Detach { id });
        intruder.say(&Request::CancelNewLink { id });
        intruder.say(&Request::Report { serial: id, report: Report::default() });
    }
    // Ending a hunt that is owned by another endpoint does not affect that endpoint.
    intruder.say(&Request::Hunt { id: 1, owner: Some(a), path: "nobody".into() });
    intruder.say(&Request::Attach { id: 1, spid: a });
    intruder.say(&Request::Name { spid: own });
    assert!(matches!(intruder.hear(), Some((Event::NameIs(_), _))));
    drop(intruder);
    place.is_unharmed("requests about others");
    let _late = Endpoint::open_on(place.node.connection().unwrap(), "late", &Options::default());
    let found = place.a.receive(&Filter::only(&[crate::signal::HUNT]), soon()).unwrap();
    assert!(found.is_some(), "the end of the intruder ended a hunt of another endpoint");
    drop(place.b);
    let told = place.a.receive(&Filter::only(&[crate::signal::ATTACH]), soon()).unwrap().unwrap();
    assert_eq!(
        told.sender(),
        Some(b),
        "the end of the intruder ended an attach of another endpoint"
    );
}

#[test]
fn a_program_that_floods_the_node_and_reads_nothing_stops_no_other() {
    let mut place = Place::new(Transport::Uds);
    let b = place.b.spid();
    let (flood, _) = place.intruder().open("x");
    let (answers, _) = place.intruder().open("y");
    let bytes = |request: Request| request.encode();
    let mut id = 0;
    for round in 0..100 {
        for _ in 0..300 {
            id += 1;
            for (to, request) in [
                (&flood, bytes(Request::Hunt { id, owner: None, path: format!("nobody-{id}") })),
                // Answered immediately, but never received.
                (&answers, bytes(Request::Hunt { id, owner: None, path: "a".into() })),
                (&answers, bytes(Request::Name { spid: b })),
            ] {
                // As fast as the node accepts it.
                let _ = socket::send(&to.fd, &request, true);
            }
        }
        if round % 10 == 0 {
            place.is_unharmed("a flood of hunts");
        }
    }
    place.is_unharmed("floods");
}

#[test]
fn records_that_a_program_invents_harm_no_trace() {
    let mut place = Place::new(Transport::Uds);
    let tool = place.node.connection().unwrap();
    let mut trace = Trace::on(Control::on(tool), 16).unwrap();
    let (intruder, _) = place.intruder().open("x");
    intruder.say(&Request::JoinTrace);
    let Some((Event::Trace { .. }, fds)) = intruder.hear() else { panic!("no trace") };
    for bytes in [&[0; 1][..], &[0; 60], &[1; 60], &vec![9; 60_000]] {
        socket::send(&fds[0], bytes, false).unwrap();
    }
    let to = place.b.spid();
    place.a.send(Signal::with_payload(USER_BASE, b"true").unwrap(), to).unwrap();
    let mut sent = Vec::new();
    while let Some(record) = trace.try_next().unwrap() {
        sent.push(record.bytes.to_vec());
    }
    assert_eq!(trace.invalid(), 4);
    assert!(sent.last().unwrap().ends_with(b"true"), "{sent:?}");
    // A program can fill the socket, but only the trace suffers.
    while socket::send(&fds[0], &[0; 60_000], true).is_ok() {}
    place.b.receive(&Filter::ANY, soon()).unwrap().unwrap();
    place.is_unharmed("a full trace");
    assert!(trace.lost() > 0);
    // Nor can it write to the memory by which others notice a trace.
    let (second, own) = (place.intruder(), Request::Open { version: VERSION, name: "y".into() });
    second.say(&own);
    let Some((Event::Opened { .. }, fds)) = second.hear() else { panic!("not opened") };
    assert!(SharedWords::open(&fds[0], 1).is_err());
    assert!(std::fs::File::from(fds[0].try_clone().unwrap()).write_at(&[7], 0).is_err());
}
