//! One trial of an invented mechanism.

use std::collections::BTreeMap;

use crossway_records::inputs::{Inputs, Placement, Wait, Workload};
use crossway_records::record::{
    Calibration, Cost, Counts, Fairness, IfaceMeters, Latency, Lateness, Pacing, Packets, Record,
    RoleMeters, Span, Status, Throughput,
};

use super::{Ask, Made, Noise};

fn latency(span: Span, p50: f64, n: u64, noise: &mut Noise) -> Latency {
    let at = |factor: f64| (p50 * factor) as u64;
    let tail = noise.around(0.3);
    Latency {
        span,
        n,
        min: at(0.8),
        mean: p50 * 1.06,
        p50: at(1.0),
        p90: at(1.12),
        p99: (n >= 1_000).then(|| at(1.5 * tail)),
        p999: (n >= 10_000).then(|| at(3.0 * tail)),
        p9999: (n >= 100_000).then(|| at(9.0 * tail)),
        max: at(40.0 * tail),
        batch: 1,
        histogram: None,
    }
}

/// Returns the record of a trial.
pub(crate) fn trial(
    made: &Made,
    ask: &Ask,
    trial: u32,
    trials: u32,
    order: u32,
    noise: &mut Noise,
) -> Record {
    let size = ask.size_bytes as f64;
    let apart: f64 = match ask.placement {
        Placement::Cpus { a, b } if a == b => 0.7,
        Placement::Cpus { a, b } if a / 2 == b / 2 => 0.6,
        Placement::Cpus { a, b } if a / 4 == b / 4 => 1.0,
        Placement::Cpus { .. } => 1.7,
        Placement::SameCore => 0.7,
        Placement::CrossSocket => 1.8,
        _ => 1.0,
    };
    let loaded = if ask.load.is_idle() { 1.0 } else { made.suffers };
    let buffer = ask.socket_buffer_bytes.map_or(1.0, |w| {
        let fits = w as f64 / size.max(1.0);
        if fits >= 2.0 { 1.0 } else { 2.6 - 0.7 * fits.max(0.2) }
    });
    let shaky = noise.around(0.05) * if noise.next() > 0.97 { 1.4 } else { 1.0 };
    let message_ns =
        (made.message_ns + made.byte_ns * size) * apart.sqrt() * loaded * buffer * shaky;
    let round_trip_ns = (made.round_trip_ns + 2.0 * made.byte_ns * size) * apart * loaded * shaky;
    let spins = matches!(made.wait, Wait::Spin);
    let wall_ns = 200e6;
    let roles_n = match ask.workload {
        Workload::FanIn { senders, .. } => senders,
        Workload::FanOut { receivers, .. } => receivers,
        Workload::Pairs { pairs } => pairs,
        _ => 1,
    };
    let (messages, latencies) = match ask.workload {
        Workload::PingPong => {
            let n = wall_ns / round_trip_ns;
            (n, vec![latency(Span::RoundTrip, round_trip_ns, n as u64, noise)])
        }
        Workload::Paced { burst_bytes, period_us } => {
            let n =
                (wall_ns * 10.0 / (period_us as f64 * 1e3) * (burst_bytes as f64 / size)).max(1.0);
            let wake = round_trip_ns / 2.0 * (1.0 + (period_us as f64 / 1000.0).ln_1p() * 0.4);
            (n, vec![latency(Span::OneWay, wake, n as u64, noise)])
        }
        Workload::Exchange => (
            3_000.0,
            vec![
                latency(Span::SetUp, made.round_trip_ns * 1.8 * shaky, 3_000, noise),
                latency(Span::Exchange, round_trip_ns, 3_000, noise),
                latency(Span::TearDown, made.round_trip_ns * 0.6 * shaky, 3_000, noise),
            ],
        ),
        _ => (wall_ns / message_ns * f64::from(roles_n).sqrt(), Vec::new()),
    };
    let per_message_ns = wall_ns / messages;
    let cpu_ns_per_msg = if spins {
        2.0 * per_message_ns
    } else {
        (match ask.workload {
            Workload::PingPong => made.round_trip_ns * 0.55 + 2.0 * made.byte_ns * size,
            _ => 1.5 * message_ns,
        }) * noise.around(0.04)
    };
    let network = ["tcp", "tcp-nodelay", "udp", "mptcp", "uring-tcp"].contains(&made.id);
    let packets = messages
        * match made.id {
            "tcp" | "uring-tcp" | "mptcp" => (size / 40_000.0).max(0.05) * 1.5,
            _ => (size / 65_000.0).ceil().max(1.0),
        };
    let role_names: Vec<String> = match ask.workload {
        Workload::PingPong | Workload::Exchange => vec!["client".into(), "server".into()],
        Workload::FanIn { senders, .. } => {
            (0..senders).map(|i| format!("sender-{i}")).chain(["receiver".to_owned()]).collect()
        }
        _ => vec!["sender".into(), "receiver".into()],
    };
    let cpu_each = (cpu_ns_per_msg * messages / role_names.len() as f64) as u64;
    let roles = role_names
        .into_iter()
        .enumerate()
        .map(|(at, role)| RoleMeters {
            role,
            host: "local".to_owned(),
            cpu: Some(at as u32),
            user_ns: cpu_each / 4,
            system_ns: cpu_each / 4 * 3,
            switches_voluntary: if spins { 0 } else { messages as u64 },
            switches_involuntary: 3,
            faults_minor: 2,
            faults_major: 0,
            cycles: None,
            instructions: None,
            cache_misses: None,
            messages: messages as u64,
            longest_wait_ns: None,
        })
        .collect();
    let fairness = (roles_n > 1).then(|| {
        let skew = if made.id.starts_with("uds") { 0.5 } else { 0.05 };
        let raw: Vec<f64> =
            (0..roles_n).map(|i| 1.0 + skew * f64::from(i) + 0.05 * noise.next()).collect();
        let sum: f64 = raw.iter().sum();
        let shares: Vec<f64> = raw.iter().map(|s| s / sum).collect();
        let jain = crossway_records::stats::jain(&shares).expect("shares are positive");
        Fairness {
            shares,
            jain,
            longest_wait_ns: (message_ns * 400.0 * (1.0 + skew)) as u64,
            sleeps_per_msg: Some(0.4),
            wasted_wakeups_per_msg: Some(0.1),
        }
    });
    let pacing = match ask.workload {
        Workload::Paced { burst_bytes, period_us } => {
            let intended = burst_bytes as f64 * 8e6 / period_us as f64;
            let bursts = (wall_ns * 10.0 / (period_us as f64 * 1e3)) as u64;
            Some(Pacing {
                bursts,
                late_bursts: (bursts as f64 * 0.01 * noise.next()) as u64,
                drift_ns: 12_000,
                intended_bits_per_s: intended,
                reached_bits_per_s: intended * 0.9997,
                lateness_ns: Some(Lateness { n: bursts, p50: 4_000, p99: None, max: 90_000 }),
            })
        }
        _ => None,
    };
    let wait_name = match made.wait {
        Wait::Block => "block",
        Wait::Spin => "spin",
        Wait::Hybrid { .. } => "hybrid",
    };
    let degraded = noise.next() > 0.985;
    let inputs = Inputs {
        placement: ask.placement,
        cpus: vec![0, 1],
        load: ask.load,
        socket_buffer_bytes: ask.socket_buffer_bytes,
        warmup_ms: 100,
        measure_ms: 200,
        trial,
        trials,
        order,
        seed: 7,
        ..Inputs::of(ask.workload, ask.size_bytes, made.wait)
    };
    Record {
        run: "2026-01-02T03:04:05Z-synthetic".to_owned(),
        plan: "synthetic".to_owned(),
        group: "synthetic".to_owned(),
        case: format!("synthetic/{}/{wait_name}/{}", made.id, ask.name()),
        mechanism_version: Some("synthetic".to_owned()),
        status: if degraded { Status::Degraded } else { Status::Ok },
        reason: degraded.then(|| "the virtual CPUs moved during the trial (synthetic)".to_owned()),
        remedy: degraded.then(|| "measure again (synthetic)".to_owned()),
        started_unix_ms: 1_767_323_045_000 + u64::from(order) * 250,
        counts: Some(Counts {
            sent: messages as u64,
            received: messages as u64,
            bytes: (messages * size) as u64,
            out_of_order: 0,
            corrupt: 0,
            warmup: 500,
        }),
        throughput: Some(Throughput {
            wall_ns: wall_ns as u64,
            msgs_per_s: 1e9 / per_message_ns,
            bytes_per_s: 1e9 / per_message_ns * size,
            sender_wall_ns: None,
        }),
        latency_ns: latencies,
        pacing,
        roles,
        cost: Some(Cost {
            cpu_ns_per_msg,
            bits_per_cpu_s: size * 8.0 * 1e9 / cpu_ns_per_msg,
            host_ns_per_msg: Some(cpu_ns_per_msg * 1.2),
        }),
        net: if network {
            vec![IfaceMeters {
                host: "local".to_owned(),
                name: "lo".to_owned(),
                tx_packets: packets as u64,
                rx_packets: packets as u64,
                tx_bytes: (messages * size * 1.03) as u64,
                rx_bytes: (messages * size * 1.03) as u64,
                tx_dropped: Some(0),
                rx_dropped: Some(0),
            }]
        } else {
            Vec::new()
        },
        packets: network.then(|| Packets {
            per_msg: packets / messages,
            msgs_per_packet: messages / packets,
            reverse_per_forward: None,
        }),
        fairness,
        calibration: Calibration {
            clock_read_ns: 21.0,
            clock_step_ns: 1.0,
            empty_loop_ns: 1.3,
            cpu_clock_step_ns: Some(100.0),
            cache_line_before_ns: Some(96.0 * noise.around(0.1)),
            cache_line_after_ns: Some(97.0 * noise.around(0.1)),
            ..Calibration::default()
        },
        nulls: BTreeMap::from([(
            "roles.cycles".to_owned(),
            "no hardware counters in this synthetic machine".to_owned(),
        )]),
        ..Record::of(made.id, inputs)
    }
}
