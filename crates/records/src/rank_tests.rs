//! Tests of rankings.

use super::*;
use crate::inputs::{Load, Workload};
use crate::record::{RoleMeters, Span};
use crate::samples;

fn five(middle: u64) -> [u64; 5] {
    [middle, middle + 2, middle - 2, middle + 1, middle - 1]
}

fn places_of(entries: &[Entry]) -> Vec<(usize, &str)> {
    entries.iter().map(|e| (e.rank.unwrap_or(0), e.mechanism.as_str())).collect()
}

#[test]
fn fewer_than_five_trials_have_no_place_and_no_interval() {
    let mut records = samples::trials("pipe", 64, &five(1000), 400.0);
    records.extend(samples::trials("fifo", 64, &five(500)[..4], 300.0));
    let ranked = rank(&records);
    let by_speed = &ranked.rankings[0].by_speed;
    assert_eq!(places_of(by_speed), [(1, "pipe"), (0, "fifo")]);
    assert_eq!((by_speed[1].rank, by_speed[1].figure.estimate.interval()), (None, None));
    records.retain(|r| r.inputs.trial < 2);
    let ranked = rank(&records);
    assert!(ranked.rankings[0].by_speed.iter().all(|e| e.rank.is_none()));
}

#[test]
fn overlapping_intervals_share_a_place_and_the_next_place_is_skipped() {
    let mut records = samples::trials("fifo", 64, &five(1001), 300.0);
    records.extend(samples::trials("pipe", 64, &five(1000), 400.0));
    records.extend(samples::trials("tcp", 64, &five(5000), 100.0));
    let ranked = rank(&records);
    assert_eq!(ranked.rankings.len(), 1);
    let ranking = &ranked.rankings[0];
    assert_eq!(ranking.speed, Figure::Latency(Span::RoundTrip, Percentile::P50));
    assert_eq!(places_of(&ranking.by_speed), [(1, "pipe"), (1, "fifo"), (3, "tcp")]);
    // The order by CPU time is different.
    assert_eq!(places_of(&ranking.by_bits_per_cpu_s), [(1, "tcp"), (2, "fifo"), (3, "pipe")]);
}

#[test]
fn a_tie_with_the_best_holds_beyond_one_that_is_clearly_worse() {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("fifo", 64, &five(1100), 1.0));
    records.extend(samples::trials("tcp", 64, &[990, 1150, 1200, 1250, 1300], 1.0));
    records.extend(samples::trials("udp", 64, &five(9000), 1.0));
    let ranking = rank(&records).rankings.remove(0);
    assert_eq!(places_of(&ranking.by_speed), [(1, "pipe"), (1, "tcp"), (3, "fifo"), (4, "udp")]);
}

#[test]
fn spinning_and_blocking_never_share_a_ranking() {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("tcp", 64, &five(3000), 1.0));
    for (name, middle) in [("shm-spin", 100), ("shm-futex", 110)] {
        let mut spinning = samples::trials(name, 64, &five(middle), 1.0);
        spinning.iter_mut().for_each(|r| r.inputs.wait = Wait::Spin);
        records.extend(spinning);
    }
    let ranked = rank(&records);
    let classes: Vec<WaitClass> = ranked.rankings.iter().map(|r| r.wait_class).collect();
    assert_eq!(classes, [WaitClass::Blocking, WaitClass::Spinning]);
    assert!(ranked.rankings.iter().all(|r| r.by_speed.len() == 2));
}

#[test]
fn a_setting_whose_trials_have_no_figure_is_no_ranking() {
    let mut records = samples::trials("pipe", 64, &five(1000), 400.0);
    records.extend(samples::trials("fifo", 64, &five(500), 300.0));
    for record in &mut records {
        record.latency_ns.clear();
        record.cost = None;
        record.nulls.insert("latency_ns".to_owned(), "two clocks".to_owned());
    }
    let ranked = rank(&records);
    assert!(ranked.rankings.is_empty(), "{ranked:?}");
    assert_eq!(ranked.without_figures.len(), 1);
    assert_eq!(ranked.without_figures[0].why.as_deref(), Some("two clocks"));
}

#[test]
fn a_setting_with_one_mechanism_is_no_ranking() {
    let ranked = rank(&samples::trials("pipe", 64, &five(1000), 1.0));
    assert_eq!((ranked.rankings.len(), ranked.alone.len()), (0, 1));
    assert_eq!(ranked.alone[0].mechanism, "pipe");
}

#[test]
fn settings_with_degraded_trials_only_are_counted() {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("pipe", 4096, &five(1000), 1.0));
    records[5..].iter_mut().for_each(|record| record.status = Status::Degraded);
    records.extend(samples::trials("tcp", 4096, &five(1000), 1.0));
    // The other mechanism has good trials there.
    assert_eq!(rank(&records).degraded, Vec::<String>::new());
    records.truncate(10);
    let degraded = rank(&records).degraded;
    assert_eq!(degraded.len(), 1);
    assert!(degraded[0].contains("4096 B") || degraded[0].contains("4 KiB"), "{degraded:?}");
}

#[test]
fn a_change_of_places_under_load_is_found() {
    let busy = Load { cpu: 2, memory: 0, io: 0 };
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("tcp", 64, &five(2000), 1.0));
    records.extend(samples::loaded(samples::trials("pipe", 64, &five(9000), 1.0), busy));
    records.extend(samples::loaded(samples::trials("tcp", 64, &five(4000), 1.0), busy));
    let reversals = rank(&records).reversals;
    assert_eq!(reversals.len(), 1, "{reversals:?}");
    assert_eq!(
        (reversals[0].better_idle.as_str(), reversals[0].better_loaded.as_str()),
        ("pipe", "tcp")
    );
    assert_eq!((reversals[0].load.as_str(), reversals[0].by), ("cpu-2", By::Speed));
}

#[test]
fn ties_are_no_reversal() {
    let busy = Load { cpu: 2, memory: 0, io: 0 };
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("tcp", 64, &five(1001), 1.0));
    records.extend(samples::loaded(samples::trials("pipe", 64, &five(9000), 1.0), busy));
    records.extend(samples::loaded(samples::trials("tcp", 64, &five(4000), 1.0), busy));
    assert_eq!(rank(&records).reversals, []);
}

#[test]
fn trials_on_moved_cores_are_marked() {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("fifo", 64, &five(1100), 1.0));
    records.extend(samples::trials("tcp", 64, &five(2000), 1.0));
    records[12].calibration.cache_line_after_ns = Some(700.0);
    let ranked = rank(&records);
    let marked: Vec<&str> = ranked.rankings[0]
        .by_speed
        .iter()
        .filter(|e| e.cores_moved)
        .map(|e| e.mechanism.as_str())
        .collect();
    assert_eq!(marked, ["tcp"]);
}

#[test]
fn cores_that_moved_between_trials_are_marked() {
    let marked = |moved: usize| {
        let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
        records.extend(samples::trials("fifo", 64, &five(1100), 1.0));
        for (at, record) in records.iter_mut().enumerate() {
            // As many trials of both mechanisms, so that the medians are equal.
            let lines = Some(if at % 5 < moved { 480.0 } else { 90.0 });
            record.calibration.cache_line_before_ns = lines;
            record.calibration.cache_line_after_ns = lines;
        }
        rank(&records).rankings[0].by_speed.iter().filter(|e| e.cores_moved).count()
    };
    assert_eq!([0, 1, 2, 3, 5].map(marked), [0, 2, 2, 2, 0]);
}

#[test]
fn a_median_is_not_ranked_as_a_percentile_that_some_trials_lack() {
    let paced = |mechanism, middle| {
        let mut records = samples::trials(mechanism, 64, &five(middle), 1.0);
        for record in &mut records {
            record.inputs.workload = Workload::Paced { burst_bytes: 64, period_us: 1000 };
            record.latency_ns.iter_mut().for_each(|latency| {
                latency.span = Span::OneWay;
                latency.p99 = Some(10 * latency.p50);
            });
        }
        records
    };
    let mut records = paced("pipe", 1000);
    records.extend(paced("tcp", 2000));
    let ranking = rank(&records).rankings.remove(0);
    let figure =
        |ranking: &Ranking| (ranking.speed.key(), ranking.by_speed[0].figure.estimate.value);
    assert_eq!(figure(&ranking), ("one-way-p99-ns".to_owned(), 10_000.0));
    records[7].latency_ns.iter_mut().for_each(|latency| latency.p99 = None);
    let ranking = rank(&records).rankings.remove(0);
    assert_eq!(figure(&ranking), ("one-way-p50-ns".to_owned(), 1000.0));
    // A trial that does not count does not decide by what the others are ranked.
    records[7].status = Status::Degraded;
    let ranking = rank(&records).rankings.remove(0);
    assert_eq!(figure(&ranking), ("one-way-p99-ns".to_owned(), 10_000.0));
}

#[test]
fn exchanges_between_hosts_are_ranked_without_their_end() {
    let mut records = samples::exchanges("tcp", &five(1000));
    records.extend(samples::exchanges("tipc-kernel-stream", &five(2000)));
    let ranked = |records: &[Record]| {
        let ranking = rank(records).rankings.remove(0);
        (ranking.speed.key(), ranking.by_speed[0].figure.estimate.value)
    };
    assert_eq!(ranked(&records), ("whole-exchange-ns".to_owned(), 6000.0));
    records.iter_mut().for_each(|record| record.latency_ns.retain(|l| l.span != Span::TearDown));
    assert_eq!(ranked(&records), ("whole-exchange-ns".to_owned(), 4000.0));
}

#[test]
fn a_mechanism_with_degraded_trials_only_is_named_in_its_setting() {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("fifo", 64, &five(1100), 1.0));
    let mut degraded = samples::trials("tcp", 64, &five(2000), 1.0);
    degraded.iter_mut().for_each(|record| record.status = Status::Degraded);
    records.extend(degraded);
    let ranked = rank(&records);
    assert_eq!(ranked.rankings[0].degraded, ["tcp"]);
    assert_eq!(ranked.degraded, Vec::<String>::new());
    let alone = rank(records.iter().filter(|r| r.mechanism != "fifo")).alone;
    assert_eq!(
        (alone[0].mechanism.as_str(), &alone[0].degraded[..]),
        ("pipe", &["tcp".to_owned()][..])
    );
}

/// Trials of two mechanisms that block and of one whose ends hardly slept.
fn with_a_busy_one() -> Vec<Record> {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("tcp", 64, &five(3000), 1.0));
    records.extend(samples::trials("posix-shm", 64, &five(900), 1.0));
    for r in &mut records {
        let switches = if r.mechanism == "posix-shm" { 10 } else { 2000 };
        let role = RoleMeters { switches_voluntary: switches, ..r.roles[0].clone() };
        r.roles = vec![role];
    }
    records
}

#[test]
fn ends_that_hardly_slept_are_a_class_of_their_own() {
    let mut records = with_a_busy_one();
    let ranked = rank(&records);
    assert_eq!(places_of(&ranked.rankings[0].by_speed), [(1, "pipe"), (2, "tcp")]);
    let alone = &ranked.alone[0];
    assert_eq!((alone.mechanism.as_str(), alone.wait_class), ("posix-shm", WaitClass::Busy));
    assert!(alone.setting.ends_with(", busy"), "{}", alone.setting);
    // It slept in most trials: the median trial decides.
    for r in records.iter_mut().filter(|r| r.inputs.trial > 1) {
        r.roles[0].switches_voluntary = 2000;
    }
    assert_eq!(places_of(&rank(&records).rankings[0].by_speed)[0], (1, "posix-shm"));
}

#[test]
fn lost_messages_are_stated() {
    let mut records = with_a_busy_one();
    for r in &mut records {
        r.inputs.workload = Workload::Throughput;
        r.latency_ns.clear();
        let lost = if r.mechanism == "posix-shm" { 470 } else { 0 };
        r.counts.as_mut().expect("counts").received = 1000 - lost;
    }
    // A receiver of a stream need not sleep, so all three are ranked together.
    let entries = rank(&records).rankings.remove(0).by_speed;
    assert_eq!(entries.len(), 3);
    for entry in &entries {
        let lost = (entry.mechanism == "posix-shm").then_some(0.47);
        assert_eq!(entry.lost_share, lost, "{entry:?}");
    }
}

#[test]
fn a_mechanism_with_two_regimes_has_no_rank() {
    let mut records = samples::trials("pipe", 64, &five(1000), 1.0);
    records.extend(samples::trials("tcp", 64, &five(3000), 1.0));
    records.extend(samples::trials("uring-tcp", 64, &[180, 5_300, 9_300, 38_000, 73_700], 1.0));
    let ranked = rank(&records);
    assert_eq!(places_of(&ranked.rankings[0].by_speed), [(1, "pipe"), (2, "tcp")]);
    assert_eq!(places_of(&ranked.rankings[0].by_bits_per_cpu_s).len(), 2);
    let [two] = &ranked.two_regimes[..] else { panic!("{:?}", ranked.two_regimes) };
    assert_eq!((two.mechanism.as_str(), &two.setting), ("uring-tcp", &ranked.rankings[0].setting));
    let of = |r: &crate::regimes::Regime| (r.trials, r.min, r.max);
    assert_eq!(of(&two.regimes.low), (3, 180.0, 9_300.0));
    assert_eq!(of(&two.regimes.high), (2, 38_000.0, 73_700.0));
}

#[test]
fn a_figure_beyond_its_limit_is_marked() {
    let mut records = samples::trials("pipe", 64, &five(21_000), 1.0);
    records.extend(samples::trials("sysv-shm", 64, &five(16_500), 1.0));
    records.iter_mut().for_each(|r| r.calibration.blocking_exchange_ns = Some(20_000.0));
    let beyond = |records: &[Record]| -> Vec<String> {
        let entries = rank(records).rankings.remove(0).by_speed;
        entries.into_iter().filter(|e| e.beyond_limit).map(|e| e.mechanism).collect()
    };
    assert_eq!(beyond(&records), ["sysv-shm"]);
    records.iter_mut().for_each(|r| r.calibration.blocking_exchange_ns = Some(16_900.0));
    assert_eq!(beyond(&records), [""; 0], "by less than 3 %");
    // The limit of ends that spin is the cache line, here 100 ns.
    records.iter_mut().for_each(|r| r.inputs.wait = Wait::Spin);
    assert_eq!(beyond(&records), [""; 0]);
    // A stream is bound by copies: a pipe by two, shared memory by one, or by two if they are faster.
    for r in &mut records {
        r.inputs.workload = Workload::Throughput;
        r.calibration.one_copy_bytes_per_s = Some(9e9);
        r.calibration.two_copies_bytes_per_s = Some(5e9);
        r.throughput.as_mut().expect("throughput").bytes_per_s = 6e9;
    }
    assert_eq!(beyond(&records), ["pipe"]);
    records.iter_mut().for_each(|r| r.calibration.one_copy_bytes_per_s = Some(4e9));
    assert_eq!(beyond(&records).len(), 2);
    // Without an interval nothing is certain.
    assert_eq!(beyond(&records[1..9]), [""; 0]);
}

#[test]
fn rates_of_a_paced_ranking_are_stated() {
    let paced = |mechanism, reached| {
        let mut records = samples::trials(mechanism, 64, &five(1000), 1.0);
        for record in &mut records {
            record.inputs.workload = Workload::Requests { period_ns: 1_000_000 };
            record.inputs.reply_bytes = Some(2048);
            record.pacing = Some(samples::pacing(1_000.0 * 2048.0 * 8.0, reached / 1_000.0));
        }
        records
    };
    let mut records = paced("pipe", 1_000.0);
    records.extend(paced("tcp", 992.0));
    let entries = rank(&records).rankings.remove(0).by_speed;
    let rates: Vec<_> = entries
        .iter()
        .filter_map(|e| e.rates)
        .map(|r| (r.offered_msgs_per_s, r.achieved_msgs_per_s))
        .collect();
    assert_eq!(rates, [(1_000.0, 1_000.0), (1_000.0, 992.0)]);
}
