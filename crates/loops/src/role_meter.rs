//! Resources used by a role during a window.

use std::sync::OnceLock;

use crossway_mech::mechanisms::tipc_node;
use crossway_sys::perf;
use crossway_sys::usage::{Usage, process_cpu_ns};

use crate::{Counters, Outcome, ServerUse};

/// The hardware counters of this process. They count only threads that start after the counters were opened, so a role
/// opens them before it does anything else.
static COUNTERS: OnceLock<Result<perf::Counters, String>> = OnceLock::new();

/// Opens the hardware counters, if there are any.
pub fn open_counters() {
    COUNTERS.get_or_init(|| perf::Counters::start().map_err(|e| format!("{e}; {}", e.remedy())));
}

fn count() -> Result<perf::Counted, String> {
    match COUNTERS.get() {
        Some(Ok(counters)) => counters.read().map_err(|e| e.to_string()),
        Some(Err(why)) => Err(why.clone()),
        None => Err("the hardware counters were not opened".to_owned()),
    }
}

/// The running meters of a role.
pub(crate) struct RoleMeter {
    usage: Usage,
    /// The process id of the server between the ends, such as a `tipcd`, and its CPU time at the start in nanoseconds
    /// (`None` if that could not be read); `None` without a server.
    server: Option<(u32, Option<u64>)>,
    counted: Result<perf::Counted, String>,
}

impl RoleMeter {
    /// Takes the first readings. The window should begin immediately afterwards.
    pub(crate) fn start() -> Self {
        let server = tipc_node::served_by().map(|pid| (pid, process_cpu_ns(pid)));
        RoleMeter { counted: count(), server, usage: Usage::now() }
    }

    /// Takes the second readings and adds the differences to the outcome.
    pub(crate) fn stop(self, outcome: &mut Outcome) {
        let used = Usage::now().since(&self.usage);
        outcome.server = self.server.map(|(pid, before)| ServerUse {
            pid,
            cpu_ns: before
                .zip(process_cpu_ns(pid))
                .map(|(before, after)| after.saturating_sub(before)),
        });
        outcome.counters = match (self.counted, count()) {
            (Ok(before), Ok(after)) => Counters {
                cycles: Some(after.cycles.saturating_sub(before.cycles)),
                instructions: Some(after.instructions.saturating_sub(before.instructions)),
                cache_misses: Some(after.cache_misses.saturating_sub(before.cache_misses)),
                missing: None,
            },
            (Err(why), _) | (_, Err(why)) => Counters { missing: Some(why), ..Default::default() },
        };
        outcome.user_ns = used.user_ns();
        outcome.system_ns = used.system_ns;
        outcome.switches_voluntary = used.switches_voluntary;
        outcome.switches_involuntary = used.switches_involuntary;
        outcome.faults_minor = used.faults_minor;
        outcome.faults_major = used.faults_major;
    }
}
