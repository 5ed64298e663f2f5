//! The cost of a trial: CPU time per message of the roles, of processes that serve them, and of the hosts.

use crossway_mech::Wait;

use crossway_records::record::{Cost, Counts, Record};

/// If CPU time advances in steps of at least this size, the kernel counts it by timer ticks.
const TICK_NS: f64 = 500_000.0;

/// CPU time of fewer ticks than this is not reported: the error is a few per cent at this number of ticks, and larger
/// with fewer.
const TICKS_PER_COST: f64 = 50.0;

/// A spinning end uses CPU time in each period of a paced stream, but its last period is not measured: it ends with the
/// last message. With fewer periods than this, the error exceeds 2 %.
const PERIODS_PER_COST: u64 = 50;

pub(super) fn per_second(amount: f64, wall_ns: u64) -> f64 {
    if wall_ns == 0 { 0.0 } else { amount * 1e9 / wall_ns as f64 }
}

/// The cost of a trial, or why it cannot be stated.
pub(super) fn cost(record: &Record, counts: &Counts) -> Result<Cost, String> {
    if counts.received == 0 {
        return Err("no message arrived".to_owned());
    }
    let Some(servers_ns) = record.servers.iter().map(|s| s.cpu_ns).sum::<Option<u64>>() else {
        return Err(
            "the CPU time of a server between the ends, such as a tipcd, could not be read"
                .to_owned(),
        );
    };
    let roles_ns: u64 = record.roles.iter().map(|r| r.user_ns + r.system_ns).sum();
    let cpu_ns = roles_ns + servers_ns;
    if let Some(step_ns) = record.calibration.cpu_clock_step_ns
        && step_ns >= TICK_NS
        && (cpu_ns as f64) < TICKS_PER_COST * step_ns
    {
        let (step_ms, used) = (step_ns / 1e6, cpu_ns as f64 / step_ns);
        return Err(format!(
            "this kernel counts CPU time in steps of {step_ms:.0} ms, and the measured processes used only {used:.0} \
             of these; at least {TICKS_PER_COST:.0} are needed for an accurate figure; raise measure_ms"
        ));
    }
    let schedules = record.inputs.workload.schedules();
    let send_times = record.pacing.map(|pacing| pacing.bursts / schedules);
    if let Some(send_times) = send_times.filter(|times| *times < PERIODS_PER_COST)
        && record.inputs.wait != Wait::Block
    {
        return Err(format!(
            "only {send_times} send times: an end that spins uses CPU time until the next message is due, but after the last one \
             this is not measured; at least {PERIODS_PER_COST} send times are needed for an accurate figure; measure \
             longer"
        ));
    }
    let messages = counts.received as f64;
    Ok(Cost {
        cpu_ns_per_msg: cpu_ns as f64 / messages,
        bits_per_cpu_s: per_second((counts.bytes * 8) as f64, cpu_ns),
        host_ns_per_msg: (!record.host_cpu.is_empty()).then(|| {
            record.host_cpu.iter().map(|host| host.busy_ns).sum::<u64>() as f64 / messages
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::record::ServerMeters;

    #[test]
    fn what_a_third_process_does_is_a_part_of_the_cost() {
        let mut record =
            crossway_records::samples::ping_pong("tipc-node-stream", 64, 0, 5000, 1000.0);
        let counts = record.counts.unwrap();
        let roles_alone = cost(&record, &counts).unwrap().cpu_ns_per_msg;
        let server = |pid, cpu_ns| ServerMeters { host: "local".to_owned(), pid, cpu_ns };
        record.servers =
            vec![server(7, Some(1_000 * counts.received)), server(8, Some(500 * counts.received))];
        let with_servers = cost(&record, &counts).unwrap().cpu_ns_per_msg;
        assert!((with_servers - roles_alone - 1_500.0).abs() < 1e-6, "{with_servers}");
        record.servers[1].cpu_ns = None;
        assert!(cost(&record, &counts).unwrap_err().contains("could not be read"));
    }

    #[test]
    fn a_spinning_end_has_no_cost_without_its_last_period_unless_that_is_a_small_part() {
        let mut record = crossway_records::samples::ping_pong("shm-spin", 64, 0, 5000, 1000.0);
        let counts = record.counts.unwrap();
        for (bursts, wait, stated) in
            [(49, Wait::Spin, false), (50, Wait::Spin, true), (2, Wait::Block, true)]
        {
            let pacing = crossway_records::samples::pacing(1e6, 1.0);
            record.pacing = Some(crossway_records::record::Pacing { bursts, ..pacing });
            record.inputs.wait = wait;
            assert_eq!(cost(&record, &counts).is_ok(), stated, "{bursts} {wait:?}");
        }
    }

    #[test]
    fn cpu_time_of_a_few_ticks_is_no_cost() {
        let mut record = crossway_records::samples::ping_pong("pipe", 64, 0, 5000, 1000.0);
        let counts = record.counts.unwrap();
        let role = record.roles[0].clone();
        record.roles = vec![role];
        record.roles[0].user_ns = 20_000_000;
        record.roles[0].system_ns = 10_000_000;
        let per_message = 30e6 / counts.received as f64;
        for exact in [None, Some(150.0), Some(400_000.0)] {
            record.calibration.cpu_clock_step_ns = exact;
            assert_eq!(cost(&record, &counts).unwrap().cpu_ns_per_msg, per_message);
        }
        record.calibration.cpu_clock_step_ns = Some(10e6);
        let why = cost(&record, &counts).unwrap_err();
        assert!(
            why.contains("steps of 10 ms, and the measured processes used only 3 of these"),
            "{why}"
        );
        record.roles[0].user_ns = 490_000_000;
        assert!(cost(&record, &counts).is_ok());
    }
}
