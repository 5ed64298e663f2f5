//! Cases, the cells of a plan's cross product: expands a plan into cases and finds out which of them cannot be
//! measured.

mod beside;

use std::collections::HashSet;
use std::sync::Arc;

use crossway_mech::{Access, Boundaries, Caps, Wait};
use crossway_sys::Obstacle;
use crossway_sys::topology::Topology;

use crate::catalogue::{self, NodeKind, Transport};
use crate::pattern;
use crate::placement;
use crate::plan::{Group, PlacementAxis, Plan};
use crate::replay::Replay;
use crossway_loops::payload::SEQUENCED_SIZE;
use crossway_records::inputs::{Ends, Inputs, Load, Placement, Workload};
use crossway_records::testbed::{Site, TestbedKind, Tipc};

/// A case: a mechanism with fully resolved inputs, measured in several trials.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The plan's group that the case belongs to.
    pub group: String,
    /// A readable id, identical in every run with the same inputs.
    pub id: String,
    /// The mechanism's id.
    pub mechanism: &'static str,
    /// The inputs, with `trial` and `order` still 0.
    pub inputs: Inputs,
    /// The recording, if the workload replays one.
    pub replay: Option<Arc<Replay>>,
    /// The reason why the case cannot be measured, if that is known before the run; `None` if it can be measured.
    pub excluded: Option<Obstacle>,
}

impl Case {
    /// `group/id`: the text that filters match.
    pub fn full_id(&self) -> String {
        format!("{}/{}", self.group, self.id)
    }
}

/// Expands the cross products of all groups, in the plan's order, and keeps the cases that match a filter. Without
/// filters, keeps all cases. Each case occurs once, even if several values of an axis mean the same, such as `natural`
/// and `block`: records are identified by group and case, so a second one would repeat the trials of the first.
pub fn expand(plan: &Plan, topology: &Topology, filters: &[String]) -> Vec<Case> {
    let mut cases = Vec::new();
    for group in &plan.groups {
        for site in sites(group, plan) {
            expand_group(group, &site, plan.seed, topology, &mut cases);
        }
    }
    let mut seen = HashSet::new();
    cases.retain(|case| {
        let id = case.full_id();
        let wanted = filters.is_empty() || filters.iter().any(|f| pattern::matches_within(f, &id));
        wanted && seen.insert(id)
    });
    cases
}

/// The places where a group's cases run: this machine, or each testbed with the requested ends.
fn sites(group: &Group, plan: &Plan) -> Vec<Site> {
    let mut sites = Vec::new();
    for name in &group.testbeds {
        let Some(name) = name else {
            sites.push(Site::Here);
            continue;
        };
        let Some(testbed) = plan.testbeds.iter().find(|t| t.name == *name) else { continue };
        for &ends in &group.ends {
            sites.extend(testbed.sites(ends));
        }
    }
    sites
}

/// The placements of a group on this machine or on a testbed. On a testbed, roles are not pinned by default, because
/// the cores of its hosts are not known until it is up.
fn placements(group: &Group, site: &Site, topology: &Topology) -> Vec<Placement> {
    let unasked = match site {
        Site::Here => Placement::OtherCore,
        Site::On { .. } => Placement::Unpinned,
    };
    let unasked = [PlacementAxis::One(unasked)];
    let axis = group.placements.as_deref().unwrap_or(&unasked);
    axis.iter().flat_map(|&axis| placement::expand(axis, topology)).collect()
}

/// Combines every request size with every reply size; by default the reply has the request's size.
fn sizes(group: &Group) -> impl Iterator<Item = (u64, Option<u64>)> {
    group.sizes.iter().flat_map(|&size| {
        group.replies.iter().map(move |reply| (size, reply.filter(|reply| *reply != size)))
    })
}

fn expand_group(group: &Group, site: &Site, seed: u64, topology: &Topology, cases: &mut Vec<Case>) {
    for &load in &group.loads {
        for placement in placements(group, site, topology) {
            for &workload in &group.workloads {
                let replay = group.replays.iter().find(|replay| replay.workload == workload);
                let sizes: Vec<_> = match replay {
                    Some(replay) => vec![replay.sizes()],
                    None => sizes(group).collect(),
                };
                for (size_bytes, reply_bytes) in sizes {
                    for &mechanism in &group.mechanisms {
                        let Some(entry) = catalogue::find(mechanism) else { continue };
                        let caps = entry.caps();
                        let base = Inputs {
                            testbed: site.testbed().map(|t| t.name.clone()),
                            ends: site.ends(),
                            testbed_spec: site.testbed().cloned(),
                            workload,
                            recording: replay.map(|replay| replay.file.clone()),
                            recorded_channels: replay
                                .map(|replay| replay.numbers())
                                .filter(|numbers| numbers.len() > 1)
                                .unwrap_or_default(),
                            size_bytes,
                            reply_bytes,
                            wait: Wait::Block,
                            access: Access::Copy,
                            placement,
                            cpus: Vec::new(),
                            load,
                            beside: Vec::new(),
                            socket_buffer_bytes: None,
                            capacity_bytes: None,
                            messages: group.messages,
                            study_messages: group.study_messages,
                            packet_series_ms: group.packet_series_ms,
                            warmup_ms: group.warmup_ms,
                            measure_ms: group.measure_ms,
                            require: group.require.clone(),
                            trial: 0,
                            trials: group.trials,
                            order: 0,
                            seed,
                        };
                        expand_ends(group, (mechanism, &caps), (&base, replay), topology, cases);
                    }
                }
            }
        }
    }
}

/// Expands the remaining lists of a group for one mechanism: ways of waiting, concurrent workloads, access, socket
/// buffers and capacities.
fn expand_ends(
    group: &Group,
    (mechanism, caps): (&'static str, &Caps),
    (base, replay): (&Inputs, Option<&Arc<Replay>>),
    topology: &Topology,
    cases: &mut Vec<Case>,
) {
    for (wait, axis) in group.waits.iter().flat_map(|w| group.besides.iter().map(move |b| (w, b))) {
        for &access in &group.accesses {
            for &socket_buffer_bytes in &group.socket_buffers {
                for &capacity_bytes in &group.capacities {
                    let wait = wait.unwrap_or(natural_wait(caps));
                    let mut inputs = Inputs {
                        wait,
                        access,
                        socket_buffer_bytes,
                        capacity_bytes,
                        ..base.clone()
                    };
                    let mut excluded = impossible(mechanism, &inputs, caps)
                        .or_else(|| impossible_there(mechanism, &inputs, caps));
                    if inputs.testbed.is_none() {
                        match placement::resolve(inputs.placement, wait, caps.can_block, topology) {
                            Ok(cpus) => inputs.cpus = cpus,
                            Err(why) => excluded = excluded.or(Some(why)),
                        }
                    }
                    let (besides, obstacle) = beside::resolve(axis, mechanism, &inputs, topology);
                    inputs.beside = besides;
                    excluded = excluded.or(obstacle).or_else(|| replay?.impossible(&inputs));
                    let group = group.name.clone();
                    let id = id(mechanism, &inputs);
                    let replay = replay.cloned();
                    cases.push(Case { group, id, mechanism, inputs, replay, excluded });
                }
            }
        }
    }
}

/// The reason why a case cannot run on its testbed; `None` if it can, or has none.
fn impossible_there(mechanism: &str, inputs: &Inputs, caps: &Caps) -> Option<Obstacle> {
    let testbed = inputs.testbed_spec.as_ref()?;
    let no =
        |why: &str, remedy: &str| Some(Obstacle { why: why.to_owned(), remedy: remedy.to_owned() });
    if catalogue::is_contender(mechanism) {
        return no(
            "contenders run only on this machine, not on testbeds",
            "set testbed = \"local\"",
        );
    }
    if testbed.kind == TestbedKind::Hosts && testbed.hosts.is_empty() {
        let why = format!("the testbed '{}' has no hosts", testbed.name);
        return no(&why, "name two on the command line: --hosts 'ssh a,ssh b'");
    }
    if !inputs.load.is_idle() {
        return no("background load runs on this machine only", "set load = \"idle\" on a testbed");
    }
    if testbed.kind == TestbedKind::Containers {
        return impossible_contained(mechanism, inputs);
    }
    if inputs.ends == Ends::Within {
        return None;
    }
    if testbed.kind == TestbedKind::Hosts && testbed.hosts.len() < 2 {
        return no("two hosts are needed", "name two: --hosts 'ssh a,ssh b'");
    }
    // Either TIPC will do for a link.
    let by_tipcd =
        crossway_records::family::carrier(mechanism).is_some_and(|carrier| match carrier.node {
            Some(NodeKind::Tipcd) => true,
            _ => carrier.transport == Transport::Tipc && !testbed.tipc.contains(&Tipc::Kernel),
        });
    if by_tipcd && testbed.kind != TestbedKind::Hosts && !testbed.tipc.contains(&Tipc::Node) {
        return no("no tipcd connects the testbed's hosts", "set tipc = [\"node\"] in the testbed");
    }
    if !caps.crosses_hosts {
        return no("the mechanism does not work between hosts", "set ends = \"within\"");
    }
    match inputs.placement {
        Placement::Unpinned | Placement::Cpus { .. } => None,
        _ => no(
            "two hosts share no cores",
            "set placement = \"unpinned\" or { cpus = { a = 0, b = 1 } }: CPU a is on the first host, CPU b on \
             the second",
        ),
    }
}

/// The reason why a case cannot run in containers, whatever they share; `None` if it can.
fn impossible_contained(mechanism: &str, inputs: &Inputs) -> Option<Obstacle> {
    let no =
        |why: &str, remedy: &str| Some(Obstacle { why: why.to_owned(), remedy: remedy.to_owned() });
    if inputs.ends == Ends::Within {
        return no(
            "two ends in one container would give the same figures as without a container",
            "set testbed = \"local\"",
        );
    }
    if crossway_records::family::carrier(mechanism).is_some_and(|carrier| carrier.node.is_some()) {
        return no(
            "its daemon does not run in containers",
            "set kind = \"netlab\" and tipc = [\"node\"] in the testbed",
        );
    }
    None
}

/// The default way of waiting: blocking if the mechanism supports it, otherwise spinning.
pub fn natural_wait(caps: &Caps) -> Wait {
    if caps.can_block { Wait::Block } else { Wait::Spin }
}

/// The reason why a case is impossible on any machine; `None` if there is none.
fn impossible(mechanism: &str, inputs: &Inputs, caps: &Caps) -> Option<Obstacle> {
    let no = |why: String, remedy: &str| Some(Obstacle { why, remedy: remedy.to_owned() });
    let facts = inputs.workload.facts();
    if catalogue::is_contender(mechanism) {
        if !facts.contenders {
            let why = format!(
                "a contender that is a program does not support the workload '{}'",
                inputs.workload.word()
            );
            return no(why, "set workload = \"throughput\" or \"ping-pong\"");
        }
        if inputs.reply_bytes.is_some() {
            return no(
                "the replies of a contender that is a program always have the request's size"
                    .to_owned(),
                "omit reply_bytes",
            );
        }
        if matches!(inputs.wait, Wait::Hybrid { .. }) {
            return no(
                "a contender that is a program can only block or spin".to_owned(),
                "set wait = \"block\"",
            );
        }
    }
    let spin = match inputs.placement {
        Placement::SameCore => "set wait = \"spin\", and place the roles on two cores",
        _ => "set wait = \"spin\"",
    };
    match inputs.wait {
        Wait::Block | Wait::Hybrid { .. } if !caps.can_block => {
            return no("the mechanism can only spin".to_owned(), spin);
        }
        Wait::Spin | Wait::Hybrid { .. } if !caps.can_spin => {
            return no("the mechanism cannot spin".to_owned(), "set wait = \"block\"");
        }
        _ => {}
    }
    if inputs.access == Access::InPlace && !caps.in_place {
        return no(
            "the mechanism does not support writing in place".to_owned(),
            "set access = \"copy\"",
        );
    }
    if let Some(max) = caps.max_message
        && inputs.largest_bytes() > max as u64
    {
        let larger = catalogue::find(mechanism)
            .and_then(|entry| entry.remedy_for_size(inputs.largest_bytes() as usize));
        let remedy = larger.unwrap_or_else(|| "use a smaller size".to_owned());
        return no(format!("its largest message here is {max} bytes"), &remedy);
    }
    if inputs.size_bytes == 0 && (caps.boundaries == Boundaries::Stream || !caps.carries_empty) {
        return no(
            "the mechanism cannot carry empty messages".to_owned(),
            "use a size of at least 1 byte",
        );
    }
    if inputs.reply_bytes.is_some() && !facts.sizes_replies() {
        let why = "only round trips can have replies of another size".to_owned();
        return no(why, "set `workload` to ping-pong or requests, or omit `reply_bytes`");
    }
    if inputs.workload == Workload::Exchange && !caps.reconnects {
        let why = "the mechanism cannot reconnect its channel for each exchange";
        return no(why.to_owned(), "set workload = \"ping-pong\"");
    }
    if matches!(inputs.workload, Workload::Replay { .. }) {
        if inputs.access == Access::InPlace {
            let why = "a replay copies its messages".to_owned();
            return no(why, "set access = \"copy\"");
        }
        if caps.reliability == crossway_mech::Reliability::Lossy {
            let why = "the mechanism may lose a message, for which the other end of a replay would wait forever";
            return no(why.to_owned(), "use a reliable mechanism");
        }
    }
    if inputs.workload.ends_with_mark() && inputs.size_bytes < SEQUENCED_SIZE as u64 {
        let why = format!("each message needs a sequence number of {SEQUENCED_SIZE} bytes");
        return no(why, "use a size of at least 8 bytes");
    }
    if inputs.workload.ends_with_mark() && caps.reliability == crossway_mech::Reliability::Lossy {
        let why = "the mechanism may lose the message that ends the workload, and the receiver would then wait forever";
        return no(why.to_owned(), "use a reliable mechanism");
    }
    None
}

/// Builds the readable id of a case; inputs at their defaults are omitted.
fn id(mechanism: &str, inputs: &Inputs) -> String {
    let mut parts = vec![
        mechanism.to_owned(),
        inputs.workload.word(),
        inputs.size_bytes.to_string(),
        match inputs.wait {
            Wait::Block => "block".to_owned(),
            Wait::Spin => "spin".to_owned(),
            Wait::Hybrid { spin_us } => format!("hybrid{spin_us}"),
        },
        inputs.placement.word(),
    ];
    if let Some(bytes) = inputs.reply_bytes {
        parts.push(format!("reply{bytes}"));
    }
    if inputs.access == Access::InPlace {
        parts.push("in-place".to_owned());
    }
    if let Some(bytes) = inputs.socket_buffer_bytes {
        parts.push(format!("sockbuf{bytes}"));
    }
    if let Some(bytes) = inputs.capacity_bytes {
        parts.push(format!("capacity{bytes}"));
    }
    if !inputs.load.is_idle() {
        let Load { cpu, memory, io } = inputs.load;
        parts.push(format!("load-c{cpu}m{memory}i{io}"));
    }
    parts.extend(inputs.beside.iter().map(|beside| format!("beside-{}", beside.word())));
    if let Some(testbed) = &inputs.testbed_spec {
        parts.push(testbed.name.clone());
        if inputs.ends == Ends::Within {
            parts.push("within".to_owned());
        }
        if testbed.kind == TestbedKind::Hosts && !testbed.hosts.is_empty() {
            parts.push(testbed.label());
        }
    }
    parts.join("/")
}
