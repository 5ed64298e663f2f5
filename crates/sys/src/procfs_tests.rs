//! Tests with sample texts from kernels, and with this machine's own files.

use super::*;

const STAT: &str = "\
cpu  100 20 50 1000 30 4 6 7 0 0
cpu0 60 20 30 500 10 2 4 3 0 0
cpu1 40 0 20 500 20 2 2 4 0 0
intr 5 0 0
ctxt 99
";

#[test]
fn cpu_times_are_read_in_nanoseconds() {
    let host = parse_stat(STAT, 100).expect("a cpu line");
    let tick = 10_000_000;
    assert_eq!(host.total.user_ns, 120 * tick);
    assert_eq!(host.total.busy_within(2000 * tick), (2000 - 1000 - 30 - 7) * tick);
    assert_eq!(host.total.busy_within(tick), 0);
    assert_eq!(host.total.total_ns(), (120 + 50 + 4 + 6 + 1000 + 30 + 7) * tick);
    assert_eq!(host.per_cpu.len(), 2);
    assert_eq!(host.per_cpu[&1].steal_ns, 4 * tick);
}

#[test]
fn differences_never_go_below_zero() {
    let early = parse_stat(STAT, 100).expect("a cpu line");
    let late = parse_stat("cpu  110 20 55 1010 29 4 9 7\ncpu2 1 0 0 0\n", 100).expect("a cpu line");
    let passed = late.since(&early);
    let tick = 10_000_000;
    assert_eq!(passed.total.user_ns, 10 * tick);
    assert_eq!(passed.total.iowait_ns, 0);
    assert_eq!(passed.total.softirq_ns, 3 * tick);
    assert_eq!(passed.per_cpu[&2].user_ns, tick);
}

#[test]
fn a_text_without_cpu_times_is_none() {
    assert_eq!(parse_stat("intr 1 2 3\n", 100), None);
    assert_eq!(parse_stat("", 100), None);
}

#[test]
fn interface_counters_are_read_whatever_the_name() {
    let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   10    2    0    3    0     0          0         0     40    5    0    6    0     0       0          0
eth0:1: 1234567890123 7 0 0 0 0 0 0 8 9 0 0 0 0 0 0
";
    let found = parse_net_dev(text);
    assert_eq!(found.len(), 2);
    let lo = &found["lo"];
    assert_eq!((lo.rx_bytes, lo.rx_packets, lo.rx_dropped), (10, 2, 3));
    assert_eq!((lo.tx_bytes, lo.tx_packets, lo.tx_dropped), (40, 5, 6));
    assert_eq!(found["eth0:1"].rx_bytes, 1_234_567_890_123);
}

#[test]
fn load_average_is_read() {
    let load = parse_loadavg("0.08 0.30 0.24 2/95 19039\n").expect("five fields");
    assert_eq!(
        (load.one_min, load.five_min, load.fifteen_min, load.runnable),
        (0.08, 0.30, 0.24, 2)
    );
    assert_eq!(parse_loadavg("nonsense"), None);
}

#[test]
fn this_machine_can_be_read() {
    let before = HostCpu::now().expect("/proc/stat");
    assert!(!before.per_cpu.is_empty());
    assert!(before.total.total_ns() > 0);
    assert!(load_average().expect("/proc/loadavg").one_min >= 0.0);
    assert!(interfaces().expect("/proc/net/dev").values().all(|c| c.tx_packets <= c.tx_bytes));
    let begin = std::time::Instant::now();
    loop {
        // The kernel updates the figures when the task leaves the CPU.
        std::thread::sleep(std::time::Duration::from_millis(1));
        match task_schedule(None) {
            Ok(own) if own.run_ns > 0 && own.slices > 0 => break,
            // Some kernels count by ticks, so run until one occurs.
            Ok(own) => assert!(begin.elapsed().as_secs() < 120, "{own:?}"),
            Err(e) => {
                eprintln!("SKIP task_schedule: {e}; needs a kernel with CONFIG_SCHED_INFO");
                break;
            }
        }
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 5 {}
    }
}
