//! Estimates how long a run will take.

use crossway_records::inputs::{Extent, Inputs};

/// Time for starting, verifying and closing a trial on this machine, milliseconds.
const OVERHEAD_MS: u64 = 28;
/// Time for starting, verifying and closing a trial between hosts, where each step crosses a link, milliseconds.
const OVERHEAD_REMOTE_MS: u64 = 200;
/// Time for determining the machine's description and limits, once per run, milliseconds.
pub const START_MS: u64 = 2_000;
/// Longest run without a [`warning`], milliseconds.
const LONG_MS: u64 = 4 * 3_600_000;

/// Estimated duration of a trial with these inputs, milliseconds. The warm-up ends when two windows agree; this is
/// assumed to happen after half of the maximum warm-up time. The warm-up of a paced or timed workload always takes the
/// maximum. A paced trial is assumed to achieve its rate. A trial with a fixed number of messages takes as long as its
/// pacing or the rate of its link requires; on a link without a limited rate, nothing is added.
pub fn trial_ms(inputs: &Inputs) -> u64 {
    let overhead = if inputs.testbed.is_some() { OVERHEAD_REMOTE_MS } else { OVERHEAD_MS };
    let measured = match inputs.messages {
        None => inputs.measure_ms,
        Some(messages) => messages_ms(inputs, messages),
    };
    let warmup = match inputs.workload.facts().extent {
        Extent::Messages => inputs.warmup_ms / 2,
        Extent::Instants { .. } | Extent::Time | Extent::Recorded => inputs.warmup_ms,
    };
    overhead + warmup + measured
}

fn messages_ms(inputs: &Inputs, messages: u64) -> u64 {
    let bytes = messages.saturating_mul(inputs.size_bytes.max(1));
    if let Extent::Instants { period_ns, burst_bytes } = inputs.workload.facts().extent {
        let instants = burst_bytes.map_or(messages, |burst| bytes.div_ceil(burst.max(1)));
        return instants.saturating_mul(period_ns) / 1_000_000;
    }
    let rate = inputs.testbed_spec.as_ref().and_then(|testbed| testbed.rate);
    rate.map_or(0, |rate| bytes.saturating_mul(8_000) / rate.bits_per_s.max(1))
}

/// How long a run takes and how to shorten it, if it takes so long that hardly anybody wants it unawares.
pub fn warning(run_ms: u64) -> Option<String> {
    (run_ms > LONG_MS).then(|| {
        format!(
            "the run takes about {}: select cases with --filter, or shorten the trials with --trials, --measure-ms or a \
             smaller --scale; an interrupted run can be continued with --resume",
            human(run_ms)
        )
    })
}

/// Formats a duration in milliseconds: `52 s`, `4 min`, `6.5 h`.
pub fn human(ms: u64) -> String {
    match ms.div_ceil(1_000) {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s.div_ceil(60)),
        s => format!("{:.1} h", s as f64 / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_people_would_use() {
        for (ms, text) in [(0, "0 s"), (400, "1 s"), (119_000, "119 s"), (130_000, "3 min")] {
            assert_eq!(human(ms), text);
        }
        assert_eq!(human(23_400_000), "6.5 h");
    }

    #[test]
    fn only_a_run_of_hours_is_warned_of() {
        assert_eq!(warning(LONG_MS), None);
        let told = warning(27 * 3_600_000).unwrap();
        assert!(told.starts_with("the run takes about 27.0 h: select cases"), "{told}");
    }
}
