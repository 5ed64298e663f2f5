//! How much the CPUs of this machine work.

use std::time::{Duration, Instant};

use crossway_sys::procfs::HostCpu;

/// CPU activity over a short time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// CPU times during the sample. `/proc/stat` counts in clock ticks, so short samples are coarse.
    pub passed: HostCpu,
    /// Duration of the sample, nanoseconds.
    pub span_ns: u64,
}

impl Activity {
    /// Samples the activity for `duration`; 200 ms are 20 ticks.
    pub fn sample(duration: Duration) -> Activity {
        let (begun, before) = (Instant::now(), HostCpu::now().unwrap_or_default());
        std::thread::sleep(duration);
        let passed = HostCpu::now().unwrap_or_default().since(&before);
        Activity { passed, span_ns: begun.elapsed().as_nanos() as u64 }
    }

    pub(super) fn busy_share(&self, cpu: u32) -> f64 {
        let Some(times) = self.passed.per_cpu.get(&cpu) else { return 0.0 };
        times.busy_within(self.span_ns) as f64 / (self.span_ns as f64).max(1.0)
    }

    /// The share of their time for which the busiest CPU worked.
    pub(super) fn busiest_share(&self) -> f64 {
        self.passed.per_cpu.keys().map(|cpu| self.busy_share(*cpu)).fold(0.0, f64::max)
    }

    pub(super) fn steal_share(&self) -> f64 {
        self.passed.total.steal_ns as f64 / (self.passed.total.total_ns() as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_sampled() {
        let activity = Activity::sample(Duration::from_millis(30));
        assert!(!activity.passed.per_cpu.is_empty());
    }
}
