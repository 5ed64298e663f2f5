//! Checks, before anything is measured, for conditions that would distort the figures; each finding includes a remedy.

mod activity;

use std::path::Path;

pub use activity::Activity;
use serde::{Deserialize, Serialize};

use crate::env::Environment;
use crossway_records::records_io::{self, ReadError};

/// A warning is given if other processes use more than this fraction of a CPU's time.
const BUSY_SHARE: f64 = 0.2;
/// A warning is given if the hypervisor takes more than this fraction of the CPUs' time.
const STEAL_SHARE: f64 = 0.01;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something that a reader of the figures should know.
    Note,
    /// A condition that distorts the figures.
    Warning,
}

/// A condition that affects the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// Subject of the finding, one of a fixed set of words: `governor`, `load`, `steal` ...
    pub about: String,
    /// The condition and its effect on the figures, in words.
    pub what: String,
    /// Remedy: the command or step to take next.
    pub next_step: String,
    /// Whether the check before a continuation of the run found it, not the check before the start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
}

impl Finding {
    /// Returns whether other programs or guests take CPU time from the trials, so that they last longer than estimated.
    pub fn takes_cpu_time(&self) -> bool {
        ["load", "busy-cpu", "smt-sibling", "steal"].contains(&self.about.as_str())
    }
}

/// The warnings of the check that preceded the run to which these records belong; empty if no check is stored.
///
/// # Errors
/// The file exists but cannot be read or parsed.
pub fn warnings_beside(records: &Path) -> Result<Vec<Finding>, ReadError> {
    let found = records_io::read_beside::<Vec<Finding>>(records, records_io::PREFLIGHT)?;
    Ok(found.into_iter().flatten().filter(|f| f.severity == Severity::Warning).collect())
}

/// What a run needs from the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Logical CPUs to which roles will be pinned; empty if none are pinned.
    pub cpus: Vec<u32>,
    /// Number of roles that run at the same time.
    pub roles: usize,
    /// Whether any role spins and therefore needs a CPU to itself.
    pub spins: bool,
}

/// What was found so far.
#[derive(Default)]
struct Found(Vec<Finding>);

impl Found {
    fn note(&mut self, about: &str, what: impl Into<String>, next_step: &str) {
        self.add(Severity::Note, about, what.into(), next_step);
    }

    fn warn(&mut self, about: &str, what: impl Into<String>, next_step: &str) {
        self.add(Severity::Warning, about, what.into(), next_step);
    }

    fn add(&mut self, severity: Severity, about: &str, what: String, next_step: &str) {
        let (about, next_step) = (about.to_owned(), next_step.to_owned());
        self.0.push(Finding { severity, about, what, next_step, continued: false });
    }
}

/// Checks for everything that would distort figures. Returns the findings, the most severe first.
pub fn check(env: &Environment, activity: &Activity, need: &Need) -> Vec<Finding> {
    let mut found = Found::default();
    if env.build.profile != "release" {
        let what = "this is a development build: the measuring loops are not optimised";
        found.warn("build", what, "`cargo build --release`");
    }
    check_speed(env, &mut found);
    check_competition(env, activity, need, &mut found);
    check_room(env, need, &mut found);
    check_platform(env, &mut found);
    found.0.sort_by_key(|f| std::cmp::Reverse(f.severity));
    found.0
}

/// Whether the speed of the CPUs is constant.
fn check_speed(env: &Environment, found: &mut Found) {
    let governors = env.frequency.governors.iter().map(String::as_str);
    let slow: Vec<&str> = governors.filter(|governor| *governor != "performance").collect();
    if !slow.is_empty() {
        let slow = slow.join(", ");
        let what = format!("the frequency governor is {slow}: the CPUs' speed depends on the load");
        found.warn("governor", what, "sudo cpupower frequency-set -g performance");
    }
    if env.frequency.turbo == Some(true) {
        let next_step = if env.frequency.driver.as_deref() == Some("intel_pstate") {
            "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
        } else {
            "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost"
        };
        let what = "turbo is on: a core's speed depends on temperature and on the other cores";
        found.note("turbo", what, next_step);
    }
}

/// Whether other programs or guests use the CPUs.
fn check_competition(env: &Environment, activity: &Activity, need: &Need, found: &mut Found) {
    for (cpu, share) in busy_neighbours(env, activity, need) {
        let what = format!(
            "cpu {cpu}, a hardware thread on the same core as a role, is {:.0} % busy",
            share * 100.0
        );
        let next_step = "stop what runs there, choose another placement, or turn SMT off: \
                         echo off | sudo tee /sys/devices/system/cpu/smt/control";
        found.warn("smt-sibling", what, next_step);
    }
    let busy: Vec<(u32, f64)> = need
        .cpus
        .iter()
        .map(|&cpu| (cpu, activity.busy_share(cpu)))
        .filter(|(_, share)| *share > BUSY_SHARE)
        .collect();
    if busy.is_empty() {
        check_load(env, activity, found);
    } else {
        // The load would be the same work, said once more.
        let most = busy.iter().fold(0.0, |most: f64, (_, share)| most.max(*share));
        let which = match busy[..] {
            [(cpu, _)] => format!("cpu {cpu}, where a role will run, is"),
            [(a, _), (b, _)] => format!("cpus {a} and {b}, where roles will run, are up to"),
            _ => format!("{} of the CPUs where roles will run are up to", busy.len()),
        };
        let what = format!("{which} {:.0} % busy with other programs", most * 100.0);
        let next_step = "find out with `top -1` what runs there; stop it or wait";
        found.warn("busy-cpu", what, next_step);
    }
    let steal = activity.steal_share();
    if steal > STEAL_SHARE {
        let what = format!(
            "the hypervisor gives {:.1} % of the CPUs' time to other guests",
            steal * 100.0
        );
        found.warn("steal", what, "run at another time, or on a dedicated host");
    }
}

/// Whether the machine has more work than CPUs, which then reaches the roles' CPUs sooner or later.
fn check_load(env: &Environment, activity: &Activity, found: &mut Found) {
    if let Some(load) = env.load {
        let per_cpu = load.one_min / env.topology.cpus.len().max(1) as f64;
        // The average covers the last minute, and so the run before this one: it is no proof of work that goes on.
        if per_cpu > BUSY_SHARE && activity.busiest_share() > BUSY_SHARE {
            let what = format!(
                "the load average is {:.2} ({per_cpu:.2} per CPU): other programs compete for the CPUs",
                load.one_min
            );
            let next_step = "find out with `top -o %CPU` what is running; stop it or wait";
            found.warn("load", what, next_step);
        }
    }
}

/// Whether the roles have as many CPUs as they need, and the power to run at full speed.
fn check_room(env: &Environment, need: &Need, found: &mut Found) {
    if let Some(quota) = env.cgroup.cpu_quota {
        let wanted = need.roles.max(1) as f64;
        if quota < wanted + 0.5 {
            let what = format!(
                "the cgroup is limited to {quota:.2} CPUs, but {wanted:.0} roles run at the same time: \
                 they will be throttled"
            );
            let next_step = "raise cpu.max of the cgroup, or `docker run --cpus`";
            found.warn("cgroup-quota", what, next_step);
        }
    }
    if env.power.on_battery == Some(true) {
        let what = "this machine runs on battery and may slow its CPUs down to save power";
        found.warn("battery", what, "connect the machine to mains power");
    }
    let allowed = env.topology.allowed().len();
    if allowed < 2 {
        let what = format!(
            "only {allowed} CPU can be used: both roles share it, and spinning roles cannot run"
        );
        let next_step =
            "widen the affinity (taskset) or the cgroup's cpuset, or use a machine with more CPUs";
        found.warn("cpus", what, next_step);
    } else if need.spins && need.roles >= allowed {
        let what = format!(
            "{} roles, some of which spin, occupy all {allowed} CPUs: every other process interrupts them",
            need.roles
        );
        found.note("cpus", what, "expect outliers, or use a machine with more CPUs");
    }
}

/// Whether the machine's clock, processor, memory and topology are those that figures need.
fn check_platform(env: &Environment, found: &mut Found) {
    let source = env.clock.source.as_deref();
    if let Some(source) = source.filter(|s| !["tsc", "arch_sys_counter", "kvm-clock"].contains(s)) {
        let what = format!("the clock source is {source}: reading the clock is a slow system call");
        let next_step =
            "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
        found.warn("clock", what, next_step);
    }
    if env.virtualisation.is_emulated() {
        let what = "this guest's processor is emulated: everything takes 3 to 20 times as long, and not equally so";
        let next_step = "compare times only with those of other emulated guests of this machine";
        found.warn("emulated", what, next_step);
    } else if let Some(hypervisor) = &env.virtualisation.hypervisor {
        let what = format!(
            "this is a virtual machine ({hypervisor}): its CPUs may move between cores of the host; \
             the cache-line round trips before and after each trial show whether they did"
        );
        found.note("virtual", what, "compare figures only within one run, or use a dedicated host");
    }
    if env.memory.available_bytes.is_some_and(|b| b < 256 << 20) {
        let what = "less than 256 MiB of memory is free: figures may include swapping";
        found.warn("memory", what, "stop programs that use much memory");
    }
    if let Some(gap) = env.topology.gaps.first() {
        let what = format!("the CPU topology is not fully known: {gap}");
        let next_step = "specify the CPUs in the plan (placement = { cpus = { a = 0, b = 1 } })";
        found.note("topology", what, next_step);
    }
}

/// Busy hardware threads that no role uses, but that are on the same cores as roles, each with its busy fraction.
fn busy_neighbours(env: &Environment, activity: &Activity, need: &Need) -> Vec<(u32, f64)> {
    let mut found: Vec<(u32, f64)> = need
        .cpus
        .iter()
        .filter_map(|cpu| env.topology.cpu(*cpu))
        .flat_map(|cpu| cpu.siblings.iter().copied())
        .filter(|sibling| !need.cpus.contains(sibling))
        .map(|sibling| (sibling, activity.busy_share(sibling)))
        .filter(|(_, share)| *share > BUSY_SHARE)
        .collect();
    found.dedup_by_key(|(cpu, _)| *cpu);
    found
}

#[cfg(test)]
mod tests {
    use crossway_sys::procfs::{CpuTimes, LoadAverage};

    use super::*;

    /// A fingerprint of this machine in which every value that is checked is harmless.
    fn quiet() -> Environment {
        let mut env = Environment::take().expect("/proc");
        env.build.profile = "release".to_owned();
        env.frequency = Default::default();
        env.load = Some(LoadAverage { one_min: 0.0, five_min: 0.0, fifteen_min: 0.0, runnable: 1 });
        env.cgroup = Default::default();
        env.power = Default::default();
        env.clock.source = Some("tsc".to_owned());
        env.virtualisation = Default::default();
        env.memory.available_bytes = Some(8 << 30);
        env.topology.gaps.clear();
        for (id, cpu) in env.topology.cpus.iter_mut().enumerate() {
            (cpu.id, cpu.allowed, cpu.siblings) = (id as u32, true, vec![id as u32]);
        }
        let mut more = env.topology.cpus[0].clone();
        while env.topology.cpus.len() < 4 {
            more.id = env.topology.cpus.len() as u32;
            more.siblings = vec![more.id];
            env.topology.cpus.push(more.clone());
        }
        env
    }

    fn about(found: &[Finding]) -> Vec<&str> {
        found.iter().map(|f| f.about.as_str()).collect()
    }

    fn need() -> Need {
        Need { cpus: vec![0, 1], roles: 2, spins: false }
    }

    #[test]
    fn a_quiet_machine_has_nothing_to_tell() {
        assert_eq!(check(&quiet(), &Activity::default(), &need()), []);
    }

    #[test]
    fn each_condition_is_reported_with_a_next_step() {
        let mut env = quiet();
        env.build.profile = "debug".to_owned();
        env.frequency.governors = ["powersave".to_owned()].into();
        env.frequency.turbo = Some(true);
        env.load = Some(LoadAverage { one_min: 9.0, five_min: 0.0, fifteen_min: 0.0, runnable: 1 });
        env.cgroup.cpu_quota = Some(1.0);
        env.power.on_battery = Some(true);
        env.clock.source = Some("hpet".to_owned());
        env.virtualisation.hypervisor = Some("KVM".to_owned());
        env.memory.available_bytes = Some(1 << 20);
        env.topology.gaps.push("cpu0: its caches are not listed".to_owned());
        let times = CpuTimes { user_ns: 99, idle_ns: 1, ..CpuTimes::default() };
        let mut activity = Activity { span_ns: 100, ..Activity::default() };
        activity.passed.per_cpu = [(3, times)].into();
        let found = check(&env, &activity, &need());
        let mut names = about(&found);
        names.sort_unstable();
        let wanted = [
            "battery",
            "build",
            "cgroup-quota",
            "clock",
            "governor",
            "load",
            "memory",
            "topology",
            "turbo",
            "virtual",
        ];
        assert_eq!(names, wanted);
        assert!(found.iter().all(|f| !f.next_step.is_empty()));
        assert!(found.is_sorted_by_key(|f| std::cmp::Reverse(f.severity)), "most severe first");
    }

    #[test]
    fn the_load_average_of_work_that_has_ended_is_no_warning() {
        let mut env = quiet();
        env.load = Some(LoadAverage { one_min: 9.0, five_min: 0.0, fifteen_min: 0.0, runnable: 1 });
        assert_eq!(check(&env, &Activity::default(), &need()), []);
    }

    #[test]
    fn a_busy_sibling_and_a_busy_core_are_distinguished() {
        let mut env = quiet();
        env.topology.cpus[0].siblings = vec![0, 2];
        env.topology.cpus[2].siblings = vec![0, 2];
        let times = |user_ns| CpuTimes { user_ns, idle_ns: 100 - user_ns, ..CpuTimes::default() };
        let mut activity = Activity { span_ns: 100, ..Activity::default() };
        activity.passed.per_cpu =
            [(0, times(5)), (1, times(90)), (2, times(60)), (3, times(99))].into();
        let found = check(&env, &activity, &need());
        assert_eq!(about(&found), ["smt-sibling", "busy-cpu"]);
        assert!(found.iter().all(Finding::takes_cpu_time));
        assert!(found[0].what.contains("cpu 2") && found[1].what.contains("cpu 1"));
    }

    #[test]
    fn work_on_the_roles_own_cpus_is_said_once() {
        let mut env = quiet();
        env.load = Some(LoadAverage { one_min: 9.0, five_min: 0.0, fifteen_min: 0.0, runnable: 1 });
        let times = |user_ns| CpuTimes { user_ns, idle_ns: 100 - user_ns, ..CpuTimes::default() };
        let mut activity = Activity { span_ns: 100, ..Activity::default() };
        activity.passed.per_cpu = [(0, times(80)), (1, times(100))].into();
        let found = check(&env, &activity, &Need { cpus: vec![0, 1], ..need() });
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!(found.about, "busy-cpu");
        assert!(found.what.starts_with("cpus 0 and 1, where"), "{}", found.what);
        assert!(found.what.contains("up to 100 % busy"), "{}", found.what);
    }

    #[test]
    fn stolen_time_is_reported() {
        let mut activity = Activity::default();
        activity.passed.total = CpuTimes { steal_ns: 5, idle_ns: 95, ..CpuTimes::default() };
        assert_eq!(about(&check(&quiet(), &activity, &need())), ["steal"]);
    }

    #[test]
    fn too_few_cpus_are_reported() {
        let mut env = quiet();
        let spinning = Need { spins: true, roles: 4, cpus: vec![] };
        assert_eq!(about(&check(&env, &Activity::default(), &spinning)), ["cpus"]);
        env.topology.cpus.truncate(1);
        let found =
            check(&env, &Activity::default(), &Need { cpus: vec![], roles: 2, spins: false });
        assert_eq!(about(&found), ["cpus"]);
        assert_eq!(found[0].severity, Severity::Warning);
    }
}
