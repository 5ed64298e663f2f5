//! Two cases that differ in any input are never pooled and never shown under one name, by whatever reads records.

use crossway_records::cases::{CaseKey, group};
use crossway_records::compare::durations::pooled;
use crossway_records::export::COLUMNS;
use crossway_records::inputs::{
    Access, Beside, Ends, Inputs, Load, Placement, ReplayShape, Wait, Workload,
};
use crossway_records::record::{Record, Span, Status};
use crossway_report::Run;
use crossway_report::summary::{Summary, workload_name};

use super::synthetic::{Ask, MADE, Noise};
use super::{round_trips, run_of};

fn base() -> Record {
    round_trips("pipe", Wait::Block, &[10_000]).remove(0)
}

/// The base, and one record for each value of an input in which cases can differ.
fn variants() -> Vec<(String, Record)> {
    let mut all = vec![("base".to_owned(), base())];
    let mut add = |what: String, change: &dyn Fn(&mut Record)| {
        let mut record = base();
        change(&mut record);
        all.push((what, record));
    };
    // A new input does not compile here until it has variants, or a reason why it does not distinguish cases.
    let Inputs {
        testbed: _,
        ends: _,
        // A testbed of one name has one description in a run.
        testbed_spec: _,
        workload: _,
        // The workload has a checksum of these.
        recording: _,
        recorded_channels: _,
        size_bytes: _,
        reply_bytes: _,
        wait: _,
        access: _,
        placement: _,
        // Chosen for the placement when the run starts.
        cpus: _,
        load: _,
        beside: _,
        socket_buffer_bytes: _,
        capacity_bytes: _,
        messages: _,
        // Says why `messages` has its value.
        study_messages: _,
        // Trials of different durations are pooled, with a remark: see below.
        warmup_ms: _,
        measure_ms: _,
        // What is recorded besides, and judged afterwards.
        packet_series_ms: _,
        require: _,
        // Vary between the trials of a case.
        trial: _,
        trials: _,
        order: _,
        seed: _,
    } = base().inputs;
    for mechanism in ["fifo", "my-spin"] {
        add(format!("mechanism {mechanism}"), &|r| r.mechanism = mechanism.to_owned());
    }
    add("my-spin, spinning".to_owned(), &|r| {
        r.mechanism = "my-spin".to_owned();
        r.inputs.wait = Wait::Spin;
    });
    add("host".to_owned(), &|r| r.host = "elsewhere".to_owned());
    for (testbed, ends, host) in [
        ("net", Ends::Between, "a to b"),
        ("net", Ends::Within, "a"),
        ("net", Ends::Between, "a to c"),
        ("other", Ends::Between, "a to b"),
    ] {
        add(format!("testbed {testbed} {ends:?} {host}"), &|r| {
            (r.inputs.testbed, r.inputs.ends) = (Some(testbed.to_owned()), ends);
            r.host = host.to_owned();
        });
    }
    for workload in workloads() {
        add(format!("{workload:?}"), &|r| r.inputs.workload = workload);
    }
    for size_bytes in [65, 1024, 1025, 1 << 20, (1 << 20) + 1] {
        add(format!("size {size_bytes}"), &|r| r.inputs.size_bytes = size_bytes);
    }
    for bytes in [64, 1000, 1 << 20] {
        add(format!("reply {bytes}"), &|r| r.inputs.reply_bytes = Some(bytes));
        add(format!("buffer {bytes}"), &|r| r.inputs.socket_buffer_bytes = Some(bytes));
        add(format!("capacity {bytes}"), &|r| r.inputs.capacity_bytes = Some(bytes));
        add(format!("messages {bytes}"), &|r| r.inputs.messages = Some(bytes));
    }
    for wait in waits() {
        add(format!("{wait:?}"), &|r| r.inputs.wait = wait);
    }
    add("in place".to_owned(), &|r| r.inputs.access = Access::InPlace);
    for placement in placements() {
        add(format!("{placement:?}"), &|r| r.inputs.placement = placement);
    }
    for (cpu, memory, io) in [(1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)] {
        add(format!("load {cpu} {memory} {io}"), &|r| r.inputs.load = Load { cpu, memory, io });
    }
    for beside in besides() {
        add(format!("beside {beside:?}"), &|r| r.inputs.beside = beside.clone());
    }
    all
}

/// Other workloads than a round trip, with two values of each parameter.
fn workloads() -> Vec<Workload> {
    // A new workload does not compile here.
    match Workload::PingPong {
        Workload::PingPong
        | Workload::Throughput
        | Workload::Exchange
        | Workload::Requests { period_ns: _ }
        | Workload::Pairs { pairs: _ }
        | Workload::FanIn { senders: _, receiver_us: _, period_us: _ }
        | Workload::FanOut { receivers: _, period_us: _ }
        | Workload::Clients { clients: _, in_flight: _, period_ns: _ }
        | Workload::Replay { recording: _, channel: _, channels: _, speed_percent: _, shape: _ }
        | Workload::Paced { burst_bytes: _, period_us: _ } => {}
    }
    let replay = |recording, channel, speed_percent| Workload::Replay {
        recording,
        channel,
        channels: 1,
        speed_percent,
        shape: ReplayShape::Exchanges,
    };
    vec![
        replay(1, 1, 100),
        replay(2, 1, 100),
        replay(1, 2, 100),
        replay(1, 1, 0),
        Workload::Throughput,
        Workload::Exchange,
        Workload::Requests { period_ns: 1_000_000 },
        Workload::Requests { period_ns: 1_000_001 },
        Workload::Pairs { pairs: 2 },
        Workload::Pairs { pairs: 3 },
        Workload::FanIn { senders: 2, receiver_us: 0, period_us: 0 },
        Workload::FanIn { senders: 3, receiver_us: 0, period_us: 0 },
        Workload::FanIn { senders: 2, receiver_us: 5, period_us: 0 },
        Workload::FanIn { senders: 2, receiver_us: 0, period_us: 900 },
        Workload::FanIn { senders: 2, receiver_us: 5, period_us: 900 },
        Workload::FanIn { senders: 2, receiver_us: 5, period_us: 901 },
        Workload::FanOut { receivers: 2, period_us: 0 },
        Workload::FanOut { receivers: 3, period_us: 0 },
        Workload::FanOut { receivers: 3, period_us: 900 },
        Workload::Clients { clients: 2, in_flight: 1, period_ns: 0 },
        Workload::Clients { clients: 3, in_flight: 1, period_ns: 0 },
        Workload::Clients { clients: 3, in_flight: 2, period_ns: 0 },
        Workload::Clients { clients: 3, in_flight: 1, period_ns: 900_000 },
        Workload::Clients { clients: 3, in_flight: 2, period_ns: 900_000 },
        Workload::Clients { clients: 3, in_flight: 1, period_ns: 900_001 },
        Workload::Paced { burst_bytes: 64, period_us: 1_234 },
        Workload::Paced { burst_bytes: 64, period_us: 1_235 },
        Workload::Paced { burst_bytes: 128, period_us: 1_234 },
    ]
}

fn waits() -> [Wait; 3] {
    [Wait::Spin, Wait::Hybrid { spin_us: 20 }, Wait::Hybrid { spin_us: 50 }]
}

/// All placements except that of the base.
fn placements() -> Vec<Placement> {
    let all = [
        Placement::SameCore,
        Placement::SmtSibling,
        Placement::SharedCache,
        Placement::OtherCore,
        Placement::CrossSocket,
        Placement::Cpus { a: 0, b: 1 },
        Placement::Cpus { a: 1, b: 0 },
        Placement::Unpinned,
    ];
    all.into_iter().filter(|placement| *placement != base().inputs.placement).collect()
}

fn besides() -> Vec<Vec<Beside>> {
    let plain = Beside {
        mechanism: "pipe".to_owned(),
        workload: Workload::Throughput,
        size_bytes: 64,
        wait: Wait::Block,
        placement: base().inputs.placement,
        cpus: Vec::new(),
    };
    let mut all = vec![vec![plain.clone()], vec![plain.clone(), plain.clone()]];
    all.push(vec![Beside { mechanism: "fifo".to_owned(), ..plain.clone() }]);
    all.push(vec![Beside { workload: Workload::PingPong, ..plain.clone() }]);
    all.push(vec![Beside { size_bytes: 65, ..plain.clone() }]);
    all.extend(waits().map(|wait| vec![Beside { wait, ..plain.clone() }]));
    all.extend(
        placements().into_iter().map(|placement| vec![Beside { placement, ..plain.clone() }]),
    );
    all
}

/// The names under which a report shows the cases of these records.
fn names(records: &[Record]) -> Vec<String> {
    let summary = Summary::of(records);
    let name = |case: &crossway_report::summary::Case| {
        format!(
            "{} | {} | {} B | {}",
            summary.contenders[case.contender].label(),
            workload_name(case.workload, case.size_bytes),
            case.size_bytes,
            summary.settings[case.setting].label()
        )
    };
    summary.cases.iter().map(name).collect()
}

/// The exported inputs of a record.
fn exported(record: &Record) -> Vec<String> {
    let inputs = [
        "mechanism",
        "host",
        "testbed",
        "ends",
        "workload",
        "size_bytes",
        "reply_bytes",
        "wait",
        "access",
        "placement",
        "load",
        "beside",
        "socket_buffer_bytes",
        "capacity_bytes",
        "messages",
    ];
    let column = |name: &str| COLUMNS.iter().find(|c| c.name == name).expect(name);
    inputs.iter().map(|name| format!("{:?}", (column(name).value)(record))).collect()
}

#[test]
fn cases_that_differ_in_any_input_are_neither_pooled_nor_given_one_name() {
    let all = variants();
    assert!(all.len() > 70, "only {} variants", all.len());
    let mut found = Vec::new();
    for (at, (a, first)) in all.iter().enumerate() {
        for (b, second) in &all[at + 1..] {
            let both = [first.clone(), second.clone()];
            let names = names(&both);
            let wrong = if group(&both).len() != 2 {
                "pooled by rank, compare and export"
            } else if CaseKey::of(first).label() == CaseKey::of(second).label() {
                "one name in rank and compare"
            } else if names.len() != 2 {
                "pooled by the report"
            } else if names[0] == names[1] {
                "one name in the report"
            } else if exported(first) == exported(second) {
                "one set of inputs in the export"
            } else {
                continue;
            };
            found.push(format!("{a} and {b}: {wrong}: {}", names.join(" // ")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn trials_by_time_and_by_number_are_not_one_figure() {
    let mut records = Vec::new();
    for (messages, msgs_per_s) in [(None, 656e3), (Some(10_000), 1.79e6)] {
        for trial in 0..5 {
            let ask = Ask::idle(Workload::Throughput, 64);
            let mut record =
                super::synthetic::trial(&MADE[0], &ask, trial, 5, trial, &mut Noise::new(3));
            (record.status, record.reason) = (Status::Ok, None);
            record.inputs.messages = messages;
            record.latency_ns.retain(|l| l.span == Span::OneWay);
            record.throughput.as_mut().expect("a rate").msgs_per_s = msgs_per_s;
            records.push(record);
        }
    }
    let summary = Summary::of(&records);
    let mut rates: Vec<(u64, usize)> = summary
        .cases
        .iter()
        .filter_map(|case| case.msgs_per_s.map(|rate| (rate.value as u64, rate.n)))
        .collect();
    rates.sort_unstable();
    assert_eq!(rates, [(656_000, 5), (1_790_000, 5)]);
}

#[test]
fn trials_of_different_durations_are_pooled_only_with_a_remark() {
    let records = |durations: [u64; 2]| -> Vec<Record> {
        durations
            .into_iter()
            .map(|measure_ms| {
                let mut record = base();
                record.inputs.measure_ms = measure_ms;
                record
            })
            .collect()
    };
    assert_eq!(pooled(&group(&records([600, 600]))), None);
    let mixed = records([20, 600]);
    let remark = pooled(&group(&mixed)).expect("a remark");
    assert!(remark.contains("in 1 of 1 cases (20 ms after"), "{remark}");
    assert_eq!(crossway_records::rank::rank(&mixed).warnings, std::slice::from_ref(&remark));
    let run: Run = run_of(vec![mixed]);
    assert!(run.notices.contains(&remark), "{:?}", run.notices);
}
