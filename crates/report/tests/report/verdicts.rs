//! What the verdict claims: winners, ties, the price of spinning, and nothing based on too few trials.

use super::page::page;
use super::*;

#[test]
fn a_clear_winner_is_named_with_the_factor_that_the_intervals_allow() {
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("shm-futex", Wait::Block, &FAST),
    ]);
    let verdict = run.verdict();
    assert_eq!(
        verdict.headline,
        "For 64-byte messages, shm-futex has the shortest round trip of 2 blocking mechanisms: 10 µs."
    );
    assert_eq!(
        verdict.detail,
        "Median round trip: 10.0 µs (median of 5 trials, 93 % interval 10.0–10.1 µs); pipe takes 1.98 to 2.04 times as \
         long."
    );
    assert_eq!(verdict.sentences, [""; 0], "each fact once");
}

#[test]
fn overlapping_intervals_are_a_tie_and_said_to_be_one() {
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &[10_000, 10_500, 11_000, 10_200, 10_300]),
        round_trips("fifo", Wait::Block, &[10_100, 10_600, 10_900, 10_400, 10_050]),
        round_trips("tcp", Wait::Block, &SLOW),
    ]);
    let verdict = run.verdict();
    assert_eq!(
        verdict.headline,
        "For 64-byte messages, pipe and fifo share the shortest round trip of blocking mechanisms: 10 µs."
    );
    assert_eq!(
        verdict.detail,
        "The 93 % interval of fifo overlaps that of pipe, and together they span 10.0–11.0 µs."
    );
}

#[test]
fn a_tie_claims_an_overlap_with_the_best_only() {
    // The intervals of fifo and uds-stream both overlap that of pipe, but not each other.
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &[10_000, 15_000, 20_000, 12_000, 18_000]),
        round_trips("fifo", Wait::Block, &[15_100, 15_200, 15_300, 15_400, 15_500]),
        round_trips("uds-stream", Wait::Block, &[19_000, 20_000, 21_000, 22_000, 23_000]),
    ]);
    let verdict = run.verdict();
    assert_eq!(
        verdict.headline,
        "For 64-byte messages, 3 blocking mechanisms share the shortest round trip: 15 µs (pipe)."
    );
    assert!(
        verdict.detail.contains("intervals of fifo and uds-stream overlap that of pipe, and"),
        "{verdict:?}"
    );
}

/// Turns round trips into a stream.
fn streams(mut records: Vec<Record>) -> Vec<Record> {
    for record in &mut records {
        record.case = format!("{}/stream", record.case);
        record.inputs.workload = Workload::Throughput;
        record.latency_ns.clear();
    }
    records
}

#[test]
fn each_tie_is_said_once_and_in_few_words() {
    let names = ["pipe", "fifo", "tcp", "udp", "posix-mq", "uds-stream", "uds-dgram", "vmsplice"];
    let mut parts = Vec::new();
    for mechanism in names {
        parts.push(round_trips(mechanism, Wait::Block, &SLOW));
        parts.push(streams(round_trips(mechanism, Wait::Block, &SLOW)));
    }
    let verdict = run_of(parts).verdict();
    let equal: Vec<&String> =
        verdict.sentences.iter().filter(|text| text.contains("are equal")).collect();
    assert!(equal[0].starts_with("Throughput of 64-byte messages: "), "{verdict:?}");
    assert!(equal[1].starts_with("CPU time per message of 64-byte messages: "), "{verdict:?}");
    assert_eq!(equal.len(), 2, "the headline has the third: {verdict:?}");
    for sentence in &verdict.sentences {
        assert!(sentence.split_whitespace().count() <= 40, "{sentence}");
    }
}

#[test]
fn a_headline_has_at_most_25_words_and_figures_of_two_digits() {
    let tied = [23_111, 30_222, 40_333, 50_444, 53_755];
    let all = ["tipc-node-seqpacket", "uds-seqpacket", "fifo", "pipe", "tcp", "udp", "posix-mq"];
    let waits = [Wait::Block, Wait::Hybrid { spin_us: 20 }, Wait::Spin];
    let workloads = [
        Workload::PingPong,
        Workload::Throughput,
        Workload::Paced { burst_bytes: 64, period_us: 1_000 },
        Workload::Requests { period_ns: 33_333_333 },
        Workload::Exchange,
    ];
    for n in 1..=all.len() {
        for (wait, workload) in waits.iter().flat_map(|w| workloads.iter().map(move |l| (w, l))) {
            let parts = all[..n].iter().map(|mechanism| {
                let mut records = round_trips(mechanism, *wait, &tied);
                records.iter_mut().for_each(|record| record.inputs.workload = *workload);
                records
            });
            let headline = run_of(parts.collect()).verdict().headline;
            let words = headline.split_whitespace().count();
            assert!(words <= 25, "{words}: {headline}");
            assert!(headline.matches(". ").count() == 0, "one sentence: {headline}");
            assert!(!headline.contains("40.3"), "{headline}");
        }
    }
}

#[test]
fn spinning_never_ranks_against_blocking_and_its_price_is_named() {
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("shm-futex", Wait::Block, &FAST),
        round_trips("shm-spin", Wait::Spin, &[250, 251, 249, 252, 250]),
    ]);
    let verdict = run.verdict();
    assert!(verdict.headline.contains("shm-futex has the shortest"), "{verdict:?}");
    let spins = &verdict.sentences[0];
    assert!(spins.contains("shm-spin answers 39.6 to 40.6 times as fast as shm-futex"), "{spins}");
    assert!(spins.contains("each end keeps a core busy while it waits"), "{spins}");
    let useless = run_of(vec![
        round_trips("shm-futex", Wait::Block, &FAST),
        round_trips("shm-futex", Wait::Spin, &SLOW),
    ]);
    // Only what was compared is spoken of.
    let told = "Spinning gains nothing in the median round trip of 64-byte messages: ";
    assert!(useless.verdict().sentences[0].starts_with(told), "{:?}", useless.verdict());
    let unclear = run_of(vec![
        round_trips("shm-futex", Wait::Block, &SLOW),
        round_trips("shm-futex", Wait::Spin, &SLOW),
    ]);
    let told = "Spinning gains nothing certain in the median round trip of 64-byte messages: ";
    assert!(unclear.verdict().sentences[0].starts_with(told), "{:?}", unclear.verdict());
}

#[test]
fn fewer_than_five_trials_have_no_winner_no_interval_and_no_noise() {
    // Three sizes, so that a line is fitted to each mechanism.
    let few = |trials: usize| {
        let parts = [
            ("pipe", Wait::Block, &SLOW[..trials]),
            ("shm-futex", Wait::Block, &FAST[..trials]),
            ("shm-spin", Wait::Spin, &[250, 251, 249, 252, 250][..trials]),
        ];
        let of_size = |size_bytes: u64| {
            parts.into_iter().map(move |(id, wait, p50s_ns)| {
                let mut records = round_trips(id, wait, p50s_ns);
                for record in &mut records {
                    record.case = format!("{}/{size_bytes}", record.case);
                    record.inputs.size_bytes = size_bytes;
                    record.latency_ns[0].p50 += size_bytes;
                }
                records
            })
        };
        run_of([64, 1024, 4096].into_iter().flat_map(of_size).collect())
    };
    // What the page shows and embeds, without its own script and style sheet.
    let shown = |run: &Run| {
        [
            include_str!("../../vendor/plotly-cartesian.min.js"),
            include_str!("../../assets/page.js"),
            include_str!("../../assets/page.css"),
        ]
        .into_iter()
        .fold(page(run), |page, part| {
            assert!(page.contains(part));
            page.replace(part, "")
        })
    };
    const CLAIMS: [&str; 11] = [
        "95 %",
        "93 %",
        "±",
        "times as fast",
        "has the shortest",
        "best in its class",
        "error bar",
        "oise",
        "is called equal",
        " *\n",
        "**10.",
    ];
    for trials in 1..=4 {
        let run = few(trials);
        let verdict = run.verdict();
        assert!(verdict.headline.starts_with("Too few trials to name a winner"), "{verdict:?}");
        let page = shown(&run);
        assert!(page.contains("<section id=\"fits\""), "lines are fitted");
        for text in [
            verdict.sentences.join("\n"),
            terminal::terminal(&run, false, 100),
            terminal::markdown(&run),
            page,
        ] {
            for word in CLAIMS {
                let at = text.find(word).map(|at| &text[..at + word.len()]);
                assert!(at.is_none(), "{word} ends {}", at.unwrap_or_default());
            }
        }
        let fits = sections::all(&run, &Shapes::of(&run));
        let fits = fits.iter().find(|section| section.id == "fits").expect("lines are fitted");
        let notes: Vec<_> = fits.tables[0].rows.iter().map(|row| &row.cells[1].note).collect();
        let n = if trials == 1 { "1 trial".to_owned() } else { format!("{trials} trials") };
        assert_eq!(notes, [&Some(n.clone()), &Some(n.clone()), &Some(n)]);
    }
    // With five trials, there is all of it.
    let page = shown(&few(5));
    for word in
        ["93 % interval", "best in its class", "error bar", "“Noise” is", "small print are 95 %"]
    {
        assert!(page.contains(word), "{word}");
    }
    // A contender with too few trials does not prevent a ranking of the others, and is named.
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("shm-futex", Wait::Block, &FAST[..4]),
    ]);
    let verdict = run.verdict();
    assert!(verdict.headline.contains("only pipe has enough good trials"), "{verdict:?}");
    let told = "shm-futex has fewer than five good trials of a case";
    assert!(verdict.sentences.iter().any(|s| s.contains(told)), "{verdict:?}");
    // If others are ranked, its figure is marked, because it may be better than theirs.
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("fifo", Wait::Block, &SLOW),
        round_trips("shm-futex", Wait::Block, &FAST[..4]),
    ]);
    let detail = run.verdict().detail;
    let told = "shm-futex has a better median, but is not ranked: fewer than five trials are good.";
    assert!(detail.ends_with(told), "{detail}");
    let text = terminal::terminal(&run, false, 120);
    assert!(text.contains("shm-futex (few trials)"), "{text}");
    let told = "\nfew trials: fewer than five good trials, and therefore not ranked: 4 good trials of shm-futex\n";
    assert!(text.contains(told), "{text}");
    // Figures of few trials are marked even if none is ranked.
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW[..4]),
        round_trips("shm-futex", Wait::Block, &FAST[..2]),
    ]);
    for text in [terminal::terminal(&run, false, 100), terminal::markdown(&run)] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("2 good trials of shm-futex; 4 good trials of pipe"), "{text}");
    }
    // If the marked figures of a mechanism are from different numbers of trials, each number has its columns.
    let mut streams = round_trips("pipe", Wait::Block, &SLOW[..2]);
    for record in &mut streams {
        record.case = "synthetic/pipe/stream".to_owned();
        record.inputs.workload = Workload::Throughput;
        record.latency_ns.clear();
    }
    let run = run_of(vec![round_trips("pipe", Wait::Block, &SLOW[..1]), streams]);
    let text = terminal::markdown(&run).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1 good trial of pipe (Round trip p50"), "{text}");
    assert!(text.contains("2 good trials of pipe (Throughput, "), "{text}");
}

#[test]
fn a_mechanism_that_may_block_but_hardly_slept_is_never_the_best_of_those_that_block() {
    let slept = round_trips("pipe", Wait::Block, &SLOW);
    let mut awake = round_trips("sysv-shm", Wait::Block, &FAST);
    for role in awake.iter_mut().flat_map(|record| &mut record.roles) {
        role.switches_voluntary = 3;
    }
    let run = run_of(vec![slept, awake, round_trips("shm-spin", Wait::Spin, &[250; 5])]);
    let verdict = run.verdict();
    assert!(verdict.headline.contains("pipe") && !verdict.headline.contains("shm"), "{verdict:?}");
    let told =
        "Busy, sysv-shm takes less (10 µs), but its ends slept in fewer than one of ten waits";
    assert!(verdict.sentences.iter().any(|s| s.starts_with(told)), "{verdict:?}");
    let text = terminal::terminal(&run, false, 100);
    let of = |name: &str| text.lines().position(|line| line.starts_with(name));
    assert!(of("pipe").is_some() && of("pipe") < of("busy:"), "{text}");
    assert!(of("busy:") < of("sysv-shm") && of("sysv-shm") < of("spinning:"), "{text}");
    assert!(of("spinning:") < of("shm-spin"), "{text}");
    assert!(text.contains("\nbusy: its ends may block, but slept"), "{text}");
    assert!(terminal::markdown(&run).contains("| busy |"));
    let html = page(&run);
    let card = html.split_once(r#"<table class="answers">"#).expect("a card").1;
    let (card, _) = card.split_once("</table>").expect("its end");
    assert!(card.contains("Busy: owns two cores"), "{card}");
}

#[test]
fn a_class_without_a_best_mechanism_says_why() {
    let at = |size: u64, mut records: Vec<Record>| {
        for record in &mut records {
            record.case = format!("{}/{size}", record.case);
            record.inputs.size_bytes = size;
        }
        records
    };
    let mut two = round_trips("shm-spin", Wait::Spin, &[400, 410, 420, 4_000, 4_100]);
    for role in two[3..].iter_mut().flat_map(|record| &mut record.roles) {
        role.switches_voluntary *= 10;
    }
    let mut degraded = round_trips("shm-spin", Wait::Spin, &[250; 5]);
    degraded.iter_mut().for_each(|record| record.status = Status::Degraded);
    let mut parts: Vec<Vec<Record>> =
        [64, 256, 1024, 16384].map(|size| at(size, round_trips("pipe", Wait::Block, &SLOW))).into();
    parts.push(at(64, round_trips("shm-spin", Wait::Spin, &[250, 251, 249, 252, 250])));
    parts.push(at(256, two));
    parts.push(at(1024, round_trips("shm-spin", Wait::Spin, &[250; 3])));
    parts.push(at(16384, degraded));
    let html = page(&run_of(parts));
    let card = html.split_once(r#"<table class="answers">"#).expect("a card").1;
    let (card, _) = card.split_once("</table>").expect("its end");
    let told: Vec<&str> = card
        .split(r#"<span class="none">"#)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("</span>")?.0))
        .collect();
    assert_eq!(told, ["two regimes", "few trials", "degraded"], "{card}");
}

#[test]
fn a_case_with_two_regimes_is_shown_with_both_and_ranked_nowhere() {
    let mut two = round_trips("linx-shm", Wait::Block, &[4_000, 4_100, 4_200, 40_000, 41_000]);
    for role in two[3..].iter_mut().flat_map(|record| &mut record.roles) {
        role.switches_voluntary *= 10;
    }
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("tcp", Wait::Block, &[30_000; 5]),
        two,
    ]);
    let verdict = run.verdict();
    assert!(verdict.headline.contains("pipe has the shortest"), "{verdict:?}");
    let told = "Two regimes, so neither a single figure nor a rank: linx-shm (round trip, 64 B).";
    assert!(verdict.sentences.iter().any(|s| s == told), "{verdict:?}");
    for text in [terminal::terminal(&run, false, 200), terminal::markdown(&run), page(&run)] {
        assert!(text.contains("two regimes: linx-shm, 4.00–4.20 µs (3 trials) or 40.0–41.0 µs (2"));
        assert!(text.contains("4.00–41.0 µs"), "{text}");
        assert!(text.contains("times per message, so it is not ranked"), "{text}");
    }
}

#[test]
fn no_table_has_more_than_two_kinds_of_marks() {
    let asks = [64, 4096].map(|size| Ask::idle(Workload::PingPong, size));
    let mut records = synthetic::run(&MADE, &asks, 5, 22);
    for (at, record) in records.iter_mut().enumerate() {
        record.calibration.cache_line_before_ns = Some(if at % 7 == 0 { 900.0 } else { 90.0 });
        record.calibration.blocking_exchange_ns = Some(1e6);
        if at % 3 == 0 {
            record.roles.iter_mut().for_each(|role| role.switches_voluntary = 0);
        }
    }
    let run = Run::of_records(Path::new("run"), records);
    let (blocks, _) = crossway_report::blocks::blocks(&run.summary, 12);
    for sheet in blocks.iter().flat_map(|block| &block.sheets) {
        let cells = sheet.rows.iter().flat_map(|row| &row.cells);
        let kinds: std::collections::BTreeSet<char> =
            cells.flat_map(|cell| cell.marks.chars()).collect();
        assert!(kinds.len() <= 2, "{kinds:?} in {}", sheet.title);
    }
}
