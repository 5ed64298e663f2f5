//! The findings of the cluster study by Sun, Jin and Yin.

use super::*;
use crossway_lab::channel::{Checked, Leg, Move, Transport};
use crossway_lab::mpi::{Library, MpiRecord, Way};

fn exchanges(made: &mut Made, ends: Ends, sizes: &[u64], does: impl Fn(u64) -> (Does, Does)) {
    for bytes in sizes {
        let (tcp, tipc) = does(*bytes);
        made.both(Workload::Exchange, ends, *bytes, tcp, tipc);
    }
}

const SMALL: [u64; 5] = [64, 256, 1024, 2048, 4096];

#[test]
fn c1_fits_a_line() {
    let line = |bytes: u64| Does { ns: 100_000.0 + 40.0 * bytes as f64, ..DOES };
    judged("C1", Confirmed, "farthest from its line", |m| {
        exchanges(m, Ends::Between, &SMALL, |b| (line(b), line(b)));
    });
    judged("C1", NotConfirmed, "from its line deviates from it by", |m| {
        let bent = |b: u64| Does { ns: if b == 1024 { 400_000.0 } else { line(b).ns }, ..DOES };
        exchanges(m, Ends::Between, &SMALL, |b| (line(b), bent(b)));
    });
    judged("C1", Undecided, "its trials lie on both sides of the line", |m| {
        exchanges(m, Ends::Between, &SMALL, |b| (line(b), line(b)));
        // The median of one size is a third off the line, but its trials lie on both sides of it.
        let wild = m.records.iter_mut().filter(|r| r.inputs.size_bytes == 1024);
        for (r, factor) in wild.zip([0.6, 0.62, 0.65, 1.3, 1.4].into_iter().cycle()) {
            let throughput = r.throughput.as_mut().expect("timed");
            throughput.msgs_per_s = 1e9 / (line(1024).ns * factor);
        }
    });
    judged("C1", NotMeasurable, "three sizes", |m| {
        exchanges(m, Ends::Between, &SMALL[..2], |b| (line(b), line(b)));
    });
    without_records("C1", "cluster");
}

fn buffers(made: &mut Made, scatter: f64, jump: impl Fn(u64, u64) -> f64) {
    for length in [4096u64, 16_384] {
        for power in 11..=17 {
            let asked = 1u64 << power;
            let does = Does { ns: 30_000.0 / jump(asked, length), scatter, ..DOES };
            for r in made.add("tcp", Workload::Throughput, Ends::Between, length, does) {
                r.inputs.socket_buffer_bytes = Some(asked);
                r.facts.insert("so_sndbuf_bytes".to_owned(), 2 * asked as i64);
            }
        }
    }
}

#[test]
fn c3_looks_for_the_jump_at_w_equal_l() {
    judged("C3", Confirmed, "times that at the next smaller W", |m| {
        buffers(m, 0.02, |w, l| if w < l { 0.4 } else { 1.0 });
    });
    judged("C3", NotConfirmed, "L 4 KiB: the throughput at W = L is 1.0", |m| {
        buffers(m, 0.02, |_, _| 1.0)
    });
    judged("C3", Undecided, "times that at the next smaller", |m| {
        buffers(m, 0.8, |w, l| if w < l { 0.85 } else { 1.0 });
    });
    without_records("C3", "cluster");
    let mut made = Made::new();
    buffers(&mut made, 0.02, |w, l| if w < l { 0.4 } else { 1.0 });
    let told = &made.finding("C3").figures[0].what;
    assert!(
        told.contains(
            "L 4 KiB: throughput at W 4 KiB (actual size 8 KiB), buffer / message = 1.00"
        ),
        "{told}"
    );
}

fn faster(by: impl Fn(u64) -> f64, scatter: f64) -> impl Fn(u64) -> (Does, Does) {
    move |bytes| {
        let tcp = Does { scatter, ..DOES };
        (tcp, Does { ns: tcp.ns / by(bytes), ..tcp })
    }
}

#[test]
fn c4_asks_for_the_lead_its_best_and_its_fall() {
    let falling = |bytes: u64| 2.6 - bytes as f64 / 4096.0;
    judged("C4", Confirmed, "at best more than twice: yes", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(falling, 0.02));
    });
    judged("C4", NotConfirmed, "at least 15 % higher: no", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(|_| 0.9, 0.02));
    });
    judged("C4", Undecided, "undecided", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(|_| 2.0, 0.3));
    });
    without_records("C4", "cluster");
}

#[test]
fn c5_counts_the_packets_of_an_exchange() {
    let with = |tcp: f64, tipc: f64| {
        move |_| {
            let does = |each: f64| Does { packets: (each / 2.0, each / 2.0), ..DOES };
            (does(tcp), does(tipc))
        }
    };
    judged("C5", Confirmed, "TCP takes 9.00 packets, TIPC 4.00", |m| {
        exchanges(m, Ends::Between, &[64], with(9.0, 4.0));
    });
    judged("C5", NotConfirmed, "TIPC 8.00", |m| exchanges(m, Ends::Between, &[64], with(9.0, 8.0)));
    // Seven packets of which two carry the messages are five of a handshake.
    for packets in [7.0, 8.0] {
        judged("C5", NotConfirmed, "including the two that carry the messages", |m| {
            exchanges(m, Ends::Between, &[64], with(packets, 4.0));
        });
    }
    judged("C5", NotMeasurable, "no packets were counted", |m| {
        exchanges(m, Ends::Between, &[64], with(9.0, 4.0));
        m.records.iter_mut().for_each(|r| r.net.clear());
    });
    without_records("C5", "cluster");
}

#[test]
fn c6_takes_the_largest_receive() {
    let largest = |m: &mut Made, bytes: i64| {
        for r in m.add("tcp", Workload::Throughput, Ends::Between, 16_384, DOES) {
            r.facts.insert("largest_recv_bytes".to_owned(), bytes);
        }
    };
    judged("C6", Confirmed, "4344", |m| largest(m, 4344));
    judged("C6", NotConfirmed, "16384", |m| largest(m, 16_384));
    without_records("C6", "cluster");
}

#[test]
fn c7_needs_both_sides_of_tipcs_limit() {
    let refused = |bytes: u64| {
        let why = "its largest message here is 66000 bytes";
        let mut r = synthetic::skipped("tipc-kernel-seqpacket", why, "a smaller size");
        r.inputs.size_bytes = bytes;
        r
    };
    judged("C7 TIPC", Confirmed, "carried 66,000", |m| {
        m.add("tipc-kernel-seqpacket", Workload::Throughput, Ends::Between, 66_000, DOES);
        m.records.push(refused(66_001));
    });
    judged("C7 TIPC", NotConfirmed, "66,001 bytes were carried", |m| {
        m.add("tipc-kernel-seqpacket", Workload::Throughput, Ends::Between, 66_001, DOES);
    });
    judged("C7 TIPC", NotConfirmed, "66,000 bytes were refused", |m| {
        m.records.push(refused(66_000));
    });
    without_records("C7 TIPC", "cluster");
    // A skip for another reason is not a refusal; the reason is shown.
    judged("C7 TIPC", NotMeasurable, "no guest kernel", |m| {
        let mut r = synthetic::skipped(
            "tipc-kernel-stream",
            "no guest kernel",
            "apt-get install user-mode-linux",
        );
        r.inputs.size_bytes = 66_001;
        m.records.push(r);
    });
}

#[test]
fn c7_looks_whether_tcps_bandwidth_goes_on_rising() {
    let rising = |m: &mut Made, by: f64, scatter: f64| {
        for (bytes, ns) in [(16_384, 400_000.0), (65_536, 1_600_000.0 / by)] {
            m.add("tcp", Workload::Exchange, Ends::Between, bytes, Does { ns, scatter, ..DOES });
        }
    };
    judged("C7 TCP", Confirmed, "no longer rises", |m| rising(m, 0.9, 0.02));
    judged("C7 TCP", NotConfirmed, "still rises", |m| rising(m, 1.8, 0.02));
    judged("C7 TCP", Undecided, "do not decide", |m| rising(m, 1.1, 0.6));
    without_records("C7 TCP", "cluster");
}

#[test]
fn c8_wants_twice_within_a_node() {
    judged("C8", Confirmed, "as many exchanges", |m| {
        exchanges(m, Ends::Within, &SMALL, faster(|_| 2.6, 0.02));
    });
    judged("C8", NotConfirmed, "TIPC makes 1.", |m| {
        exchanges(m, Ends::Within, &SMALL, faster(|_| 1.5, 0.02));
    });
    judged("C8", Undecided, "TIPC makes", |m| {
        exchanges(m, Ends::Within, &SMALL, faster(|_| 2.0, 0.5));
    });
    // Exchanges between hosts say nothing about exchanges within one.
    judged("C8", NotMeasurable, "crossway measure cluster", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(|_| 2.6, 0.02));
    });
}

/// Returns a trial in which the listening program moved to the other node and back.
fn moved(trial: u32, to: Transport, lost: u64) -> MoveRecord {
    use Transport::{ShmFutex, UdsSeqpacket};
    let leg = |transport| Leg { transport, messages: 1000, seconds: 0.5 };
    let pause = |from, to, pause_ns| Move { from, to, pause_ns };
    let checked = Checked {
        size_bytes: 64,
        sent: 4000 + lost,
        received: 4000,
        lost,
        seconds: 2.0,
        legs: [ShmFutex, to, UdsSeqpacket, ShmFutex].map(leg).to_vec(),
        moves: vec![
            pause(ShmFutex, to, 3_000_000 + u64::from(trial)),
            pause(to, UdsSeqpacket, 2_000_000),
        ],
        ..Checked::default()
    };
    MoveRecord {
        schema: 1,
        run: "r".to_owned(),
        started_unix_ms: 1,
        trial,
        status: Status::Ok,
        reason: None,
        remedy: None,
        result: Some(checked),
    }
}

#[test]
fn c9_wants_memory_at_home_the_network_away_and_every_message_once() {
    let trials = |n: u32, to, lost| {
        move |m: &mut Made| m.moves = (0..n).map(|t| moved(t, to, lost)).collect()
    };
    let exact = "20000 messages were sent and 20000 came back; 0 lost, 0 duplicated";
    judged("C9", NotConfirmed, exact, trials(5, Transport::Tipc, 0));
    judged("C9", Undecided, "in 4 trials", trials(4, Transport::Tipc, 0));
    // It stayed on shared memory although the peer had left the node, or it lost a message.
    judged("C9", Confirmed, "0 lost", trials(5, Transport::ShmSpin, 0));
    judged("C9", Confirmed, "5 lost", |m| {
        trials(5, Transport::Tipc, 0)(m);
        m.moves[3] = moved(3, Transport::Tipc, 5);
    });
    let without = |status, reason: &str| MoveRecord {
        status,
        reason: Some(reason.to_owned()),
        result: None,
        ..moved(9, Transport::Tipc, 0)
    };
    judged("C9", Undecided, "a trial failed: it got stuck", |m| {
        trials(5, Transport::Tipc, 0)(m);
        m.moves.push(without(Status::Failed, "it got stuck"));
    });
    judged("C9", NotMeasurable, "needs root", |m| {
        m.moves.push(without(Status::Skipped, "creating network namespaces needs root"));
    });
    without_records("C9", "cluster");
}

#[test]
fn c12_wants_a_gain_with_each_library() {
    let both = |open_mpi: f64, mpich: f64| {
        move |m: &mut Made| {
            m.mpi(Library::OpenMpi, open_mpi, 5);
            m.mpi(Library::Mpich, mpich, 5);
        }
    };
    judged("C12", Confirmed, "times as long with Open MPI", both(0.5, 0.8));
    judged("C12", NotConfirmed, "times as long with MPICH", both(0.5, 1.3));
    judged("C12", Undecided, "with Open MPI", |m| m.mpi(Library::OpenMpi, 0.5, 4));
    let failed = MpiRecord {
        schema: 1,
        run: "r".to_owned(),
        started_unix_ms: 1,
        trial: 5,
        library: Some(Library::Mpich),
        way: Some(Way::Tipc),
        status: Status::Failed,
        reason: Some("mpirun did not end".to_owned()),
        remedy: None,
        result: None,
    };
    judged("C12", Undecided, "1 trial failed: mpirun did not end", |m| {
        both(0.5, 0.8)(m);
        m.mpi.push(failed.clone());
    });
    judged("C12", NotMeasurable, "mpirun did not end", |m| m.mpi.push(failed));
    without_records("C12", "cluster");
}

#[test]
fn four_trials_decide_nothing() {
    let mut made = Made::new();
    let line = |bytes: u64| 100_000.0 + 40.0 * bytes as f64;
    let lead = |bytes: u64| 2.6 - bytes as f64 / 4096.0;
    let does = |ns: f64, packets: f64| Does { ns, packets: (packets, packets), ..DOES };
    for ends in [Ends::Between, Ends::Within] {
        exchanges(&mut made, ends, &SMALL, |b| (does(line(b), 4.5), does(line(b) / lead(b), 2.0)));
    }
    // The throughput no longer rises beyond 16 KiB.
    for bytes in [16_384, 65_536] {
        let does = does(line(bytes) * if bytes > 16_384 { 1.2 } else { 1.0 }, 4.5);
        made.both(Workload::Exchange, Ends::Between, bytes, does, does);
    }
    buffers(&mut made, 0.02, |w, l| if w < l { 0.4 } else { 1.0 });
    for r in made.add("tcp", Workload::Throughput, Ends::Between, 16_384, DOES) {
        r.facts.insert("largest_recv_bytes".to_owned(), 4344);
    }
    made.moves = (0..5).map(|t| moved(t, Transport::Tipc, 0)).collect();
    made.mpi(Library::OpenMpi, 0.5, 5);
    let ids = ["C1", "C3", "C4", "C5", "C6", "C7 TCP", "C8", "C9", "C12"];
    decides_only_with_five(&made, &ids, &[]);
    // A buffer at which the throughput is far below the plateau refutes nothing in one trial either.
    let mut late = Made::new();
    buffers(&mut late, 0.02, |w, l| if w <= l { 0.4 } else { 1.0 });
    decides_only_with_five(&late, &["C3"], &[]);
    // TIPC's limit is a fact, and one larger receive refutes that none is larger.
    let mut facts = Made::new();
    facts.add("tipc-kernel-seqpacket", Workload::Throughput, Ends::Between, 66_001, DOES);
    for r in facts.add("tcp", Workload::Throughput, Ends::Between, 16_384, DOES) {
        r.facts.insert("largest_recv_bytes".to_owned(), 16_384);
    }
    decides_only_with_five(&facts, &[], &["C6", "C7 TIPC"]);
}
