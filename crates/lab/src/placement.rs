//! Placement of a case's roles: resolves the requested placement to logical CPUs.

use crossway_mech::Wait;
use crossway_sys::Obstacle;
use crossway_sys::topology::{Relation, Topology};

use crate::plan::PlacementAxis;
use crossway_records::inputs::Placement;

/// Why a case cannot run, with the remedy if one can follow it in a question of `crossway advise`, which lacks most of a
/// plan's keys. A remedy that is another value of a plan's key begins with `set` and the key.
pub fn for_question(obstacle: &Obstacle) -> String {
    let Obstacle { why, remedy } = obstacle;
    let key = remedy.strip_prefix("set ");
    if key.is_some_and(|key| !key.starts_with("placement ")) {
        return why.clone();
    }
    format!("{why}; remedy: {remedy}")
}

/// Expands a value of the placement axis to placements on this machine.
pub fn expand(axis: PlacementAxis, topology: &Topology) -> Vec<Placement> {
    match axis {
        PlacementAxis::One(placement) => vec![placement],
        PlacementAxis::EveryPair | PlacementAxis::EveryPairAndSelf => {
            let with_self = axis == PlacementAxis::EveryPairAndSelf;
            let allowed = topology.allowed();
            let pairs = allowed.iter().flat_map(|&a| allowed.iter().map(move |&b| (a, b)));
            let wanted = pairs.filter(|(a, b)| with_self || a != b);
            wanted.map(|(a, b)| Placement::Cpus { a, b }).collect()
        }
    }
}

/// Resolves a placement to the logical CPUs of the first and the second role; empty if roles are not pinned. The remedies
/// depend on whether the mechanism can block.
pub fn resolve(
    placement: Placement,
    wait: Wait,
    can_block: bool,
    topology: &Topology,
) -> Result<Vec<u32>, Obstacle> {
    let allowed = topology.allowed();
    let find = |wanted: fn(&Relation) -> bool, why: &str, remedy: &str| {
        topology
            .find_pair(wanted)
            .map(|(a, b)| vec![a, b])
            .ok_or_else(|| Obstacle::new(why, remedy))
    };
    let cpus = match placement {
        Placement::Unpinned => Vec::new(),
        Placement::SameCore => {
            // The last one: interrupts and daemons tend to use the first.
            let cpu = allowed.last().copied();
            cpu.map(|cpu| vec![cpu, cpu]).ok_or_else(|| {
                Obstacle::new(
                    "this process may not use any CPU",
                    "allow it at least one CPU (taskset, cgroup cpuset)",
                )
            })?
        }
        Placement::SmtSibling => find(
            |r| !r.same_cpu && r.same_core == Some(true),
            "no core here has two hardware threads",
            "run on a machine with SMT enabled",
        )?,
        Placement::SharedCache => find(
            |r| !r.same_cpu && r.same_core != Some(true) && r.shares_last_level == Some(true),
            "no two cores here share the last-level cache",
            "run on a machine whose cores share a cache",
        )?,
        Placement::OtherCore => other_core(topology)?,
        Placement::CrossSocket => find(
            |r| r.same_socket == Some(false),
            "all CPUs allowed here are on one socket",
            "run on a machine with two sockets",
        )?,
        Placement::Cpus { a, b } => {
            for cpu in [a, b] {
                if !allowed.contains(&cpu) {
                    let here = crossway_sys::topology::format_cpu_list(&allowed);
                    let why =
                        format!("CPU {cpu} does not exist or is not allowed; allowed: {here}");
                    return Err(Obstacle::new(why, "choose CPUs that are allowed"));
                }
            }
            vec![a, b]
        }
    };
    refuse_spinning_alone(&cpus, wait, can_block, allowed.len())?;
    Ok(cpus)
}

/// Rejects two spinning ends on one core, where each could only wait for the end of the other's time slice (item E18 of
/// Enea's study).
fn refuse_spinning_alone(
    cpus: &[u32],
    wait: Wait,
    can_block: bool,
    allowed: usize,
) -> Result<(), Obstacle> {
    let one_core = match cpus {
        [a, b] => a == b,
        _ => allowed < 2,
    };
    if wait == Wait::Spin && one_core {
        return Err(Obstacle::new(
            "a spinning end would use up the time slice that its peer on the same core needs",
            match can_block {
                true => "set wait = \"block\" or \"hybrid\", or place the roles on two cores",
                false => "place the roles on two cores: this mechanism can only spin",
            },
        ));
    }
    Ok(())
}

/// Two cores of one socket, preferably without a shared last-level cache; otherwise any two cores.
fn other_core(topology: &Topology) -> Result<Vec<u32>, Obstacle> {
    let apart = |r: &Relation| !r.same_cpu && r.same_core != Some(true);
    topology
        .find_pair(|r| {
            apart(r) && r.same_socket != Some(false) && r.shares_last_level == Some(false)
        })
        .or_else(|| topology.find_pair(|r| apart(r) && r.same_socket != Some(false)))
        .or_else(|| topology.find_pair(apart))
        .map(|(a, b)| vec![a, b])
        .ok_or_else(|| {
            Obstacle::new(
                "this process may use only one core",
                "set placement = \"same-core\", or allow two cores (taskset, cgroup cpuset)",
            )
        })
}
