//! What can be asked, in one sentence each, and what is refused with what to ask instead.

use super::*;
use crossway_records::inputs::Measure;

fn question(text: &str) -> Question {
    let text = format!("size_bytes = 64\n{text}");
    Question::parse("t", "t.toml", &text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn what_is_not_measured_is_named_with_what_to_ask_instead() {
    for (line, wanted) in [
        ("pattern = \"stream\"\nclients = 8", "only pattern = \"request-reply\" has clients"),
        ("pattern = \"fan-in\"\nin_flight = 4", "only pattern = \"request-reply\" has in_flight"),
        ("clients = 65", "clients"),
        ("clients = 50\nrate_per_s = 0.4", "state at least 0.5 for all together"),
        ("peers = 3", "request-reply has clients"),
        ("pattern = \"fan-out\"\n[goal]\np99_us = 100", "state rate_per_s"),
        ("pattern = \"fan-in\"\n[goal]\np99_us = 100", "state rate_per_s"),
        ("pattern = \"fan-in\"\noptimise = \"latency\"", "state rate_per_s"),
        (
            "pattern = \"fan-in\"\nrate_per_s = 30000\n[goal]\np99_us = 100",
            "5000 messages per second from each sender, 20000 together",
        ),
        (
            "pattern = \"fan-out\"\nrate_per_s = 30000\n[goal]\np99_us = 100",
            "5000 messages per second to each receiver, 20000 together",
        ),
        ("shares = \"ipc\"", "programs that were started apart"),
        ("started = \"apart\"\nshares = \"ipc\"", "where = \"other-container\""),
        ("where = \"other-host\"\nstarted = \"apart\"", "never have a common parent"),
        ("now = \"tpc\"", "there is no mechanism 'tpc'"),
    ] {
        let text = format!("size_bytes = 64\n{line}");
        let said = Question::parse("t", "t.toml", &text).expect_err("no question").to_string();
        assert!(said.contains(wanted), "{said}");
    }
    assert_eq!(question("").sizes[0].bytes, 64);
    let of = |size: &str| Question::parse("t", "t", &format!("size_bytes = \"{size}\"")).unwrap();
    assert_eq!(of("2MB").sizes[0].bytes, 2_000_000);
    assert_eq!(of("2 MiB").sizes[0].bytes, 2 << 20);
}

#[test]
fn several_clients_and_requests_in_flight_have_a_latency() {
    let pool = question("clients = 4\nin_flight = 8\nreply_bytes = 1024\n[goal]\np99_us = 2000");
    assert_eq!(pool.workload(64), Workload::Clients { clients: 4, in_flight: 8, period_ns: 0 });
    let sentence = pool.sentence();
    assert!(
        sentence.starts_with(
            "4 clients of one server, requests of 64 B, replies of 1 KiB, 8 in flight each, as fast as possible"
        ),
        "{sentence}"
    );
    assert!(sentence.ends_with("p99 at most 2000 us"), "{sentence}");
    assert!(pool.objective.is_cpu() && pool.is_shared());
    let one = question("in_flight = 16");
    assert_eq!(one.workload(64), Workload::Clients { clients: 1, in_flight: 16, period_ns: 0 });
    assert!(one.sentence().starts_with("requests of 64 B, 16 in flight, as fast"));
    let rated = question("clients = 2\nin_flight = 2\nrate_per_s = 1000");
    let each = Workload::Clients { clients: 2, in_flight: 2, period_ns: 2_000_000 };
    assert_eq!((rated.workload(64), rated.rate_at_full_speed()), (each, None));
    let sentence = rated.sentence();
    assert!(
        sentence.contains(
            "at most 2 in flight each, 1000 per second from all clients together (500 from each), "
        ),
        "{sentence}"
    );
    let alone = question("in_flight = 4\nrate_per_s = 1000");
    assert_eq!(
        alone.workload(64),
        Workload::Clients { clients: 1, in_flight: 4, period_ns: 1_000_000 }
    );
    let sentence = alone.sentence();
    assert!(sentence.contains("at most 4 in flight, 1000 per second, same-host"), "{sentence}");
    for same in ["clients = 1", "in_flight = 1", "clients = 1\nin_flight = 1"] {
        assert_eq!(question(same).workload(64), Workload::PingPong);
    }
}

#[test]
fn several_clients_with_a_rate_have_a_schedule_each() {
    let goal = question("clients = 8\nrate_per_s = 40000\n[goal]\np99_us = 200");
    let each = Workload::Clients { clients: 8, in_flight: 1, period_ns: 200_000 };
    assert_eq!(goal.workload(64), each);
    assert_eq!(goal.rate_at_full_speed(), None);
    let sentence = goal.sentence();
    assert!(
        sentence.contains("40000 per second from all clients together (5000 from each), "),
        "{sentence}"
    );
    assert!(goal.objective.is_cpu());
    let without_goal = question("clients = 8\nrate_per_s = 40000");
    assert_eq!(without_goal.objective, Figure::ROUND_TRIP);
}

#[test]
fn a_fan_in_has_a_latency_at_a_rate() {
    let fan = "pattern = \"fan-in\"\nrate_per_s = 2000\n";
    for asks in ["optimise = \"latency\"", "[goal]\np99_us = 1000"] {
        let sensors = question(&format!("{fan}{asks}"));
        let each = Workload::FanIn { senders: 4, receiver_us: 0, period_us: 2000 };
        assert_eq!(sensors.workload(64), each);
        assert_eq!(sensors.rate_at_full_speed(), None);
        let sentence = sensors.sentence();
        assert!(
            sentence.contains("2000 per second from all senders together (500 from each), "),
            "{sentence}"
        );
    }
    let latency = question(&format!("{fan}optimise = \"latency\""));
    assert_eq!(latency.objective, Figure::latency(Measure::OneWay, latency.percentile()).unwrap());
    let full_speed = Workload::FanIn { senders: 4, receiver_us: 0, period_us: 0 };
    assert_eq!(question(fan).workload(64), full_speed);
}

#[test]
fn a_fan_out_has_a_latency_at_a_rate() {
    let fan = "pattern = \"fan-out\"\nrate_per_s = 2000\n";
    for asks in ["optimise = \"latency\"", "[goal]\np99_us = 1000"] {
        let ticker = question(&format!("{fan}{asks}"));
        assert_eq!(ticker.workload(64), Workload::FanOut { receivers: 4, period_us: 2000 });
        assert_eq!(ticker.rate_at_full_speed(), None);
        let sentence = ticker.sentence();
        assert!(
            sentence
                .contains("to 4 receivers, 2000 per second received by all receivers together, "),
            "{sentence}"
        );
    }
    // Without a word about latency, it is measured at full speed, as before.
    assert_eq!(question(fan).workload(64), Workload::FanOut { receivers: 4, period_us: 0 });
    let plain = question("pattern = \"fan-out\"");
    assert_eq!(plain.objective, Figure::MessageRate);
}
