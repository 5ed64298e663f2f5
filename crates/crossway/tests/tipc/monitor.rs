//! `crossway tipc link monitor` with nodes that form a ring.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Site, WATCHDOG, host};

#[test]
fn the_monitored_nodes_are_shown_and_the_threshold_is_set() {
    let hosts = [80, 81, 82, 83].map(host);
    let sites: Vec<Site> = (0..4)
        .map(|n| {
            let others = hosts.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, h)| h.as_str());
            let bearer = format!("udp:{},{}", hosts[n], others.collect::<Vec<_>>().join(","));
            Site::with(&[&bearer, "--id", &format!("ring{n}")])
        })
        .collect();
    sites[0].linked_to(&["ring1", "ring2", "ring3"]);
    let one = &sites[0];
    assert_eq!(one.text(&["link", "monitor", "get", "threshold"]), "32\n");
    let summary = one.text(&["link", "monitor", "summary"]);
    assert!(
        summary.contains("    cluster_size 4\n    domain_size 1\n    algorithm full-mesh\n"),
        "{summary}"
    );
    for site in &sites {
        assert_eq!(site.text(&["link", "monitor", "set", "threshold", "3"]), "");
    }
    assert_eq!(one.json(&["link", "monitor", "get", "threshold"])["threshold"], 3);
    let begin = Instant::now();
    loop {
        let list = one.json(&["link", "mon", "list"]);
        let nodes = list[0]["nodes"].as_array().unwrap();
        let told = |n: &&Value| n["applied_node_status"] == serde_json::json!(["U"]);
        let indirect = nodes.iter().filter(|n| n["monitored"] == "indirect").count();
        if nodes.len() == 4 && nodes.iter().filter(told).count() == 4 && indirect == 1 {
            assert!(
                nodes.iter().all(|n| n["status"] == "up" && n["generation"].as_u64() > Some(0))
            );
            break;
        }
        assert!(begin.elapsed() < WATCHDOG, "{list}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(one.json(&["link", "monitor", "summary"])[0]["algorithm"], "overlapping-ring");
    let text = one.text(&["link", "monitor", "list"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (6, "bearer udp:udp0"));
    assert!(lines[1].starts_with("node          status monitored generation"), "{text}");
    assert!(lines[2..].iter().all(|l| l.ends_with(" U []")), "{text}");
    let error = one.error(&["link", "monitor", "set", "threshold", "4096"]);
    assert!(error.contains("between 0 and 4095 nodes"), "{error}");
}
