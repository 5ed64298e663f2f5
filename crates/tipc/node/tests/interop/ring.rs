//! Tests how a kernel and five nodes in user space monitor each other. They are more than the monitor's threshold, so
//! each monitors only some nodes, and relies on the reports of others for the rest.

use std::time::{Duration, Instant, SystemTime};

use crossway_netlab::{Guest, GuestSpec, HostSpec, Lab, Link, NetError, Topology};
use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{BearerId, NodeId};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::{Config, Event};

use super::{Site, UserSide};

const USERS: usize = 5;
/// Size of each node's domain in a cluster of six nodes.
const DOMAIN: usize = 2;
/// Line printed by the nodes in user space when they see the expected state.
const WHOLE: &str = "the ring is whole";
const PATIENCE: Duration = Duration::from_secs(240);

/// A line of the kernel's list of monitored nodes.
#[derive(Debug)]
struct Line {
    up: bool,
    direct: bool,
    generation: u32,
    /// One letter for each member of the node's domain that matches this node's ring, without the commas.
    applied: String,
    rest: String,
}

fn list(site: &Site) -> Vec<Line> {
    let text = site.guest_does(&["tipc", "link", "monitor", "list"]);
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, status @ ("up" | "down"), monitored, generation, rest @ ..] = &words[..] else {
            return None;
        };
        Some(Line {
            up: *status == "up",
            direct: *monitored == "direct",
            generation: generation.parse().expect("a number"),
            applied: rest.first().map(|s| s.replace(',', "")).unwrap_or_default(),
            rest: rest.get(1..).unwrap_or_default().concat(),
        })
    };
    text.lines().filter_map(line).collect()
}

fn await_list(site: &Site, what: &str, right: impl Fn(&[Line]) -> bool) {
    let began = Instant::now();
    loop {
        let lines = list(site);
        if right(&lines) {
            eprintln!("  {what}: {lines:?}");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "never {what}: {lines:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub(crate) fn watched_together() -> Result<(), NetError> {
    let name = &format!("cwtr{:x}", std::process::id() % 0x1_0000);
    let names: Vec<String> = (0..USERS).map(|n| format!("user{n}")).collect();
    let mut topology = Topology::of(&[], Link::default());
    topology.name = Some(name.to_owned());
    topology.hosts = names.iter().map(|n| HostSpec::namespace(n)).collect();
    topology.hosts.push(HostSpec::tap("kernel"));
    let lab = Lab::up(&topology)?;
    let guest = Guest::boot(&GuestSpec::usual(name)?, Some((lab.network(), "kernel")))?;
    let site = Site { guest, lab };
    site.guest_does(&["tipc", "link", "monitor", "set", "threshold", "2"]);
    let kernel = site.lab.host("kernel")?.ipv4.to_string();
    site.guest_does(&["tipc", "bearer", "enable", "media", "udp", "name", "U", "localip", &kernel]);
    let mut users: Vec<UserSide> = Vec::new();
    for name in &names {
        let host = site.lab.host(name)?;
        let id = NodeId::from_text(name).expect("legal");
        users.push(site.program_on(name, "ring", &format!("udp:{}", host.ipv4), id));
    }
    // A kernel applies a record when it arrives, and again only to close predecessors of a new node: one may remain partly applied. It
    // computes its own domain when a node comes up that it heads, and not when the cluster grows elsewhere: its own domain may remain
    // smaller.
    let members = |l: &Line| l.applied.len() + l.rest.matches(':').count();
    let applies = |l: &&Line| l.applied == "U".repeat(members(l)) && l.rest == "[]";
    await_list(&site, "all six up, each with its domain", |lines| {
        let whole = lines.iter().filter(|l| members(l) == DOMAIN).count();
        lines.len() == USERS + 1
            && lines.iter().all(|l| l.up && l.generation > 0 && (1..=DOMAIN).contains(&members(l)))
            && whole >= USERS
            && lines.iter().filter(applies).count() >= USERS
            && lines.iter().any(|l| !l.direct)
    });
    let summary = site.guest_does(&["tipc", "link", "monitor", "summary"]);
    assert!(summary.contains("overlapping-ring"), "{summary}");
    // No node mistakes silence for a loss, and every node detects the one that is really lost. The other nodes check this at the end.
    std::thread::sleep(Duration::from_secs(6));
    users[2].kill();
    await_list(
        &site,
        "one node down and reported by the nodes that monitor it, the others up",
        |lines| {
            let tell = |l: &&Line| l.up && format!("{}{}", l.applied, l.rest).contains('D');
            lines.iter().filter(|l| !l.up).count() == 1
                && (DOMAIN - 1..=DOMAIN).contains(&lines.iter().filter(tell).count())
        },
    );
    drop(users);
    Ok(())
}

/// Runs a node that always monitors. Fails if the node loses other nodes more than `USERS` times in all, if the ring
/// was never whole, or if a monitor record was invalid.
pub(crate) fn run(bearer: &str, id: NodeId) {
    let birth = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cfg = Config { id: Some(id), seed: birth.as_nanos() as u64, ..Config::default() };
    let mut runner = Runner::new(cfg).expect("epoll");
    runner.node().set_monitor_threshold(2).expect("legal");
    let spec: BearerSpec = bearer.parse().expect("a bearer");
    runner.enable(&spec, "ring").expect("the bearer opens");
    let stdin = std::io::stdin();
    let (mut lost, mut whole) = (0, false);
    runner.watch(&stdin).expect("a pipe");
    loop {
        let ended = runner.turn(Duration::from_secs(1)).expect("a turn");
        while let Some(event) = runner.poll_event() {
            lost += u32::from(matches!(event, Event::PeerDown { .. }));
        }
        let members = runner.node().monitored(BearerId(0));
        // The kernel's own domain may be smaller, see above.
        let of = |len: usize| members.iter().filter(|m| m.up && m.applied.len() >= len).count();
        if !whole && of(1) == USERS + 1 && of(DOMAIN) >= USERS && members.iter().any(|m| !m.direct)
        {
            whole = true;
            eprintln!("  {id}: {WHOLE}");
        }
        if ended {
            break;
        }
    }
    let members = runner.node().monitored(BearerId(0));
    assert!(whole, "the ring was never whole: {members:?}");
    // Nodes that end before this one are lost in an orderly way: by then, only the killed one is lost otherwise.
    assert!(lost <= USERS as u32, "{lost} losses");
    assert_eq!(runner.node().drops().get(DropReason::BadMonitorRecord), 0);
    runner.stop();
}
