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
        "For 64-byte messages with both ends blocking, shm-futex has the shortest round trip: 10.0 µs (10.0–10.1 µs)."
    );
    assert_eq!(
        verdict.sentences[0],
        "For 64-byte messages with both ends blocking, shm-futex has the shortest median round trip: 10.0 µs (median \
         of 5 trials, 95 % interval 10.0–10.1 µs); pipe takes 1.98 to 2.04 times as long."
    );
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
        "For 64-byte messages with both ends blocking, pipe and fifo share the shortest round trip: their intervals \
         overlap and together span 10.0–11.0 µs."
    );
    assert_eq!(
        verdict.sentences[0],
        "For 64-byte messages with both ends blocking, this run cannot tell which of pipe and fifo has the shortest \
         median round trip: their intervals overlap that of the best one, pipe: 10.3 µs (median of 5 trials, 95 % \
         interval 10.0–11.0 µs)."
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
    assert_eq!(
        run.verdict().sentences[0],
        "For 64-byte messages with both ends blocking, this run cannot tell which of the 3 contenders has the shortest \
         median round trip: their intervals overlap that of the best one, pipe: 15.0 µs (median of 5 trials, 95 % \
         interval 10.0–20.0 µs)."
    );
}

#[test]
fn spinning_never_ranks_against_blocking_and_its_price_is_named() {
    let run = run_of(vec![
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("shm-futex", Wait::Block, &FAST),
        round_trips("shm-spin", Wait::Spin, &[250, 251, 249, 252, 250]),
    ]);
    let verdict = run.verdict();
    assert_eq!(
        verdict.headline,
        "For 64-byte messages with both ends blocking, shm-futex has the shortest round trip: 10.0 µs (10.0–10.1 µs); \
         shm-spin, at 249–252 ns, is 39.6 to 40.6 times as fast, but spins: each end keeps a core busy."
    );
    assert!(verdict.sentences[0].contains("; pipe takes"), "{}", verdict.sentences[0]);
    assert!(verdict.sentences[1].contains("each end keeps a core busy while it waits"));
    let useless = run_of(vec![
        round_trips("shm-futex", Wait::Block, &FAST),
        round_trips("shm-futex", Wait::Spin, &SLOW),
    ]);
    assert!(useless.verdict().sentences[1].starts_with("Spinning gains nothing here"));
}

#[test]
fn a_factor_over_several_mechanisms_comes_from_all_their_intervals() {
    // Four mechanisms that overlap from 23 to 53.7 µs against 200 ns: 115 to 268.5 times.
    let tied = [23_000, 30_000, 40_000, 50_000, 53_700];
    let mut parts: Vec<Vec<Record>> =
        ["pipe", "fifo", "tcp", "udp"].map(|id| round_trips(id, Wait::Block, &tied)).into();
    parts.push(round_trips("shm-spin", Wait::Spin, &[200; 5]));
    let headline = run_of(parts).verdict().headline;
    assert_eq!(
        headline,
        "For 64-byte messages with both ends blocking, 4 mechanisms share the shortest round trip: their intervals \
         overlap that of fifo and together span 23.0–53.7 µs; shm-spin, at 200 ns, is 115 to 269 times as fast, but \
         spins: each end keeps a core busy."
    );
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
        "95&nbsp;%",
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
        ["95&nbsp;%", "best in its class", "error bar", "“Noise” is", "small print are 95 %"]
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
    let headline = run.verdict().headline;
    let told = "shm-futex has a better median, but is not ranked: fewer than five trials are good.";
    assert!(headline.ends_with(told), "{headline}");
    let text = terminal::terminal(&run, false, 100);
    assert!(text.contains("10.0 µs ‡"), "{text}");
    let told =
        "\n‡ fewer than five good trials, and therefore not ranked: 4 good trials of shm-futex\n";
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
fn a_blocking_mechanism_that_does_not_sleep_is_marked() {
    let slept = round_trips("pipe", Wait::Block, &SLOW);
    let mut awake = round_trips("sysv-shm", Wait::Block, &FAST);
    for role in awake.iter_mut().flat_map(|record| &mut record.roles) {
        role.switches_voluntary = 3;
    }
    let run = run_of(vec![slept, awake, round_trips("shm-spin", Wait::Spin, &[250; 5])]);
    let verdict = run.verdict();
    let told = "¶ sysv-shm may block, but its ends slept in fewer than one of ten waits";
    assert!(verdict.sentences.iter().any(|s| s.starts_with(told)), "{verdict:?}");
    let text = terminal::terminal(&run, false, 100);
    let marked: Vec<&str> = text.lines().filter(|line| line.contains('¶')).collect();
    assert!(marked.iter().any(|line| line.trim_start().starts_with("sysv-shm")), "{text}");
    assert!(
        !marked.iter().any(|line| line.contains("pipe") || line.contains("shm-spin")),
        "{text}"
    );
    assert!(text.contains("\n¶ its ends may block, but slept"), "{text}");
    // The page shows the mark also with the figure in the card above the tables.
    let html = page(&run);
    let card = html.split_once(r#"<table class="answers">"#).expect("a card").1;
    let (card, below) = card.split_once("</table>").expect("its end");
    assert!(card.contains("10.0 µs ¶</span>"), "{card}");
    assert!(below.trim_start().starts_with(r#"<p class="small">¶ its ends may block"#), "{below}");
}
