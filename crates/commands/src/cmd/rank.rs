//! `crossway rank`.

use std::path::PathBuf;
use std::process::ExitCode;

use crossway_lab::other_work::disturbances;
use crossway_records::awake::busy_explained;
use crossway_records::rank::{
    By, Entry, MOVED, Ranking, TwoRegimes, WaitClass, contender, moved_explained, rank,
};
use crossway_records::records_io::read_records;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::interval_name;
use crossway_report::blocks::{BEYOND, BEYOND_MEANS, SIZES_ARE_REQUESTS, regimes_in_words};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::{Quantity, count};

use super::Run;
use crate::args::{self, Filters, RUN};
use crate::table::{Align, Grid, Tone};
use crate::ui::Ui;

/// Rank the mechanisms of a run by speed and by CPU time, separately for each setting
///
/// Mechanisms that spin, that block, and that may block but hardly slept (busy) are never ranked together. Mechanisms
/// share a rank if their confidence intervals overlap that of the best of them.
#[derive(clap::Args)]
pub(crate) struct Rank {
    /// Run to rank: its folder, its results.jsonl, its name, or `latest` [default: latest]
    #[arg(value_name = RUN, add = args::known_runs())]
    run: Option<PathBuf>,
    #[command(flatten)]
    filters: Filters,
    /// Order of the rows
    #[arg(long, value_enum, default_value_t = Sort::Speed)]
    sort: Sort,
    /// Print Markdown tables
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print the rankings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// Fastest first
    Speed,
    /// Most bits per CPU-second first
    Cpu,
    /// By name
    Name,
}

/// Note on mechanisms that have no rank.
const ALL_DEGRADED: &str = "not ranked, because all trials are degraded, or most missed their rate";

/// Unit of rates.
const UNIT: &str = "msg/s";

/// Width of the output in columns below which the interval of the CPU time is omitted.
const WIDE: u16 = 92;

impl Run for Rank {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let path = args::run_or_latest(self.run.as_deref(), ui)?;
        let mut loaded = read_records(&path)?;
        // Of the whole run, as in its report.
        let disturbed = disturbances("this run", &path, &loaded.records)?;
        loaded.records.retain(|r| self.filters.let_through(&r.group, &r.case));
        if loaded.records.is_empty() && !self.filters.filters.is_empty() {
            return Err(self.filters.nothing_left(&path));
        }
        let mut rankings = rank(&loaded.records);
        rankings.rankings.sort_by_cached_key(setting_order);
        if self.json {
            ui.print_json(&rankings)?;
            return Ok(ExitCode::SUCCESS);
        }
        for warning in &loaded.warnings {
            ui.print_noted("33", "warning", warning);
        }
        for found in disturbed.iter().chain(&rankings.warnings) {
            ui.print_noted("33", "warning", found);
        }
        for ranking in &rankings.rankings {
            let grid = self.grid(ranking, ui);
            let rates = rates(ranking);
            if self.markdown {
                let rates = rates.map_or(String::new(), |rates| format!("{rates}\n\n"));
                println!("### {}\n\n{rates}{}", title(ranking), grid.markdown());
            } else {
                println!("{}", ui.paint("1", &wrap_indented(&title(ranking), ui.width, 0, 2)));
                if let Some(rates) = rates {
                    ui.print_wrapped(0, &rates);
                }
                println!("{}\n", grid.text(ui));
            }
            for entry in &ranking.by_speed {
                if let Some(share) = entry.lost_share {
                    let text = format!(
                        "{} lost {} of its messages in \"{}\"; its speed counts only what arrived",
                        name(entry),
                        Quantity::Share.show(share),
                        ranking.setting
                    );
                    ui.print_noted("1", "note", &text);
                    println!();
                }
            }
            if let Some(text) = left_out(&ranking.degraded, &ranking.setting) {
                ui.print_noted("1", "note", &text);
                println!();
            }
            for two in rankings.two_regimes.iter().filter(|two| two.setting == ranking.setting) {
                ui.print_noted("1", "two regimes", &in_words(two));
                println!();
            }
        }
        let unranked = |two: &&TwoRegimes| {
            !rankings.rankings.iter().any(|ranking| ranking.setting == two.setting)
        };
        for two in rankings.two_regimes.iter().filter(unranked) {
            let text = format!("{} in \"{}\"", in_words(two), two.setting);
            ui.print_noted("1", "two regimes", &text);
        }
        if rankings.rankings.is_empty() {
            println!(
                "No two mechanisms have good trials in the same setting: there is nothing to rank."
            );
        } else if let [first, ..] = &rankings.alone[..] {
            let n = rankings.alone.len();
            let text = format!(
                "{} only one mechanism, for example {} in \"{}\", so nothing is ranked there",
                count(n, "further setting has", "further settings have"),
                first.mechanism,
                first.setting
            );
            ui.print_noted("1", "note", &text);
        }
        for text in rankings.alone.iter().filter_map(|one| left_out(&one.degraded, &one.setting)) {
            ui.print_noted("1", "note", &text);
        }
        if let [first, ..] = &rankings.degraded[..] {
            let n = rankings.degraded.len();
            let text = format!(
                "{} no trials that count, because all are degraded, or most missed their rate, for example \"{first}\"; \
                 `crossway report` has the reasons",
                count(n, "setting has", "settings have")
            );
            ui.print_noted("1", "note", &text);
        }
        if let [first, ..] = &rankings.without_figures[..] {
            let n = rankings.without_figures.len();
            let why = first.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let text = format!(
                "{} no figure to rank by, for example \"{}\"{why}",
                count(n, "setting has", "settings have"),
                first.setting
            );
            ui.print_noted("1", "note", &text);
        }
        for reversal in &rankings.reversals {
            let by = match reversal.by {
                By::Speed => "speed",
                By::BitsPerCpuS => "bits per CPU-second",
            };
            let text = format!(
                "{}: {} is ahead without load, but {} is ahead under load {} (ranked by {by})",
                reversal.setting, reversal.better_idle, reversal.better_loaded, reversal.load
            );
            ui.print_noted("1", "reversal", &text);
        }
        let shared = |r: &Ranking| {
            r.by_speed.windows(2).any(|two| two[0].rank.is_some() && two[0].rank == two[1].rank)
        };
        if rankings.rankings.iter().any(shared) {
            ui.print_noted(
                "1",
                "rank",
                "mechanisms whose intervals overlap that of the first at a place share the place, so one with a wide \
                 interval can stand before one with a better median",
            );
        }
        let has_size = |r: &Ranking| {
            let given = |input| r.inputs.get(input).is_some_and(|bytes| bytes != "default");
            given("socket-buffer") || given("capacity")
        };
        if rankings.rankings.iter().any(has_size) {
            ui.print_noted("1", "note", SIZES_ARE_REQUESTS);
        }
        if rankings.rankings.iter().any(|r| r.by_speed.iter().any(|e| e.cores_moved)) {
            ui.print_wrapped(0, &moved_explained());
        }
        let classes = rankings.rankings.iter().map(|r| r.wait_class);
        let mut classes = classes.chain(rankings.alone.iter().map(|one| one.wait_class));
        if classes.any(|class| class == WaitClass::Busy) {
            ui.print_wrapped(0, &busy_explained());
        }
        if rankings.rankings.iter().any(|r| r.by_speed.iter().any(|e| e.beyond_limit)) {
            ui.print_noted("1", &BEYOND.to_string(), BEYOND_MEANS);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the sort key of a ranking: workload, message size, setting.
fn setting_order(ranking: &Ranking) -> (String, u64, String) {
    let input = |name: &str| ranking.inputs.get(name).cloned().unwrap_or_default();
    (input("workload"), input("size").parse().unwrap_or(u64::MAX), ranking.setting.clone())
}

/// Describes a mechanism that works in one of two ways.
fn in_words(two: &TwoRegimes) -> String {
    format!("{}, so it has no rank: {}", two.mechanism, regimes_in_words(&two.regimes))
}

fn title(ranking: &Ranking) -> String {
    format!("{}: {}", ranking.setting, ranking.speed.title())
}

/// Returns the offered rate of a ranking and the range of the achieved ones: `offered 1.00 k msg/s; achieved 99.2 % (tcp)
/// to 100 %`; `None` unless messages are sent at a fixed rate.
fn rates(ranking: &Ranking) -> Option<String> {
    let shares = || ranking.by_speed.iter().filter_map(|e| Some((name(e), e.rates?.share())));
    let offered = ranking.by_speed.iter().find_map(|e| e.rates)?.offered_msgs_per_s;
    let (slowest, least) = shares().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (_, most) = shares().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let [least, most] = [least, most].map(|share| Quantity::Share.show(share));
    let achieved = if least == most { most } else { format!("{least} ({slowest}) to {most}") };
    let below = ranking.by_speed.iter().filter(|e| e.below_rate > 0);
    let below: Vec<String> = below
        .map(|e| format!("{} in {} of {}", name(e), e.below_rate, e.figure.estimate.n))
        .collect();
    let missed = match below.is_empty() {
        true => String::new(),
        false => format!("; trials that missed the rate, included: {}", below.join(", ")),
    };
    Some(format!("offered {}; achieved {achieved}{missed}", Quantity::MessageRate.show(offered)))
}

impl Rank {
    fn grid(&self, ranking: &Ranking, ui: &Ui) -> Grid {
        let quantity = Quantity::of(ranking.speed);
        let entries = || ranking.by_speed.iter().chain(&ranking.by_bits_per_cpu_s);
        let interval = interval_name(entries().map(|entry| entry.figure.estimate.n));
        let wide = self.markdown || ui.width >= WIDE;
        let mut heads = vec![
            ("rank", Align::Right),
            ("mechanism", Align::Left),
            (if quantity == Quantity::MessageRate { UNIT } else { "speed" }, Align::Right),
            (&interval, Align::Right),
            ("CPU rank", Align::Right),
            ("per CPU-s", Align::Right),
        ];
        if wide {
            heads.push((&interval, Align::Right));
        }
        let mut grid = Grid::new(heads);
        for (speed, cpu) in self.rows(ranking) {
            let Some(either) = speed.or(cpu) else { continue };
            let mark = if either.beyond_limit { BEYOND.to_string() } else { String::new() };
            let moved = if either.cores_moved { format!(" ({MOVED})") } else { String::new() };
            let tone = |entry: Option<&Entry>| match entry {
                Some(entry) if entry.rank == Some(1) => Tone::Good,
                _ => Tone::Plain,
            };
            let cells = |entry: Option<&Entry>, quantity: Quantity| {
                let Some(entry) = entry else { return ["–"; 3].map(str::to_owned) };
                let figure = &entry.figure.estimate;
                let texts = [
                    entry.rank.map_or("–".to_owned(), |rank| rank.to_string()),
                    quantity.show(figure.value),
                    figure.interval().map_or(count(figure.n, "trial", "trials"), |(low, high)| {
                        quantity.show_interval(figure.value, low, high)
                    }),
                ];
                // The head of the column has the unit, so that an interval fits one line.
                texts.map(|text| text.replace(&format!(" {UNIT}"), ""))
            };
            let [place, value, interval] = cells(speed, quantity);
            let mut row = vec![
                (place, tone(speed)),
                (format!("{}{mark}{moved}", name(either)), tone(speed)),
                (value, Tone::Plain),
                (interval, Tone::Plain),
            ];
            let [place, value, interval] = cells(cpu, Quantity::BitRate);
            row.extend([(place, tone(cpu)), (value.replace("bit/s", "bit"), Tone::Plain)]);
            if wide {
                row.push((interval.replace("bit/s", "bit"), Tone::Plain));
            }
            grid.toned_row(row);
        }
        grid
    }

    /// Returns each mechanism's entries in the rankings by speed and by CPU time, `None` where it has no entry, in the
    /// order given by `--sort`.
    fn rows<'a>(&self, ranking: &'a Ranking) -> Vec<(Option<&'a Entry>, Option<&'a Entry>)> {
        let same = |a: &Entry, b: &Entry| a.mechanism == b.mechanism && a.wait == b.wait;
        let partner = |of: &'a [Entry], like: &Entry| of.iter().find(|e| same(e, like));
        let (speed, cpu) = (&ranking.by_speed[..], &ranking.by_bits_per_cpu_s[..]);
        let mut rows: Vec<_> = speed.iter().map(|e| (Some(e), partner(cpu, e))).collect();
        rows.extend(cpu.iter().filter(|e| partner(speed, e).is_none()).map(|e| (None, Some(e))));
        match self.sort {
            Sort::Speed => {}
            Sort::Cpu => {
                let at = |e: &Entry| cpu.iter().position(|other| same(e, other));
                rows.sort_small_by_key(|(speed, cpu)| {
                    speed.or(*cpu).and_then(at).unwrap_or(usize::MAX)
                });
            }
            Sort::Name => rows.sort_small_by_key(|(speed, cpu)| speed.or(*cpu).map(name)),
        }
        rows
    }
}

fn name(entry: &Entry) -> String {
    contender(&entry.mechanism, &entry.wait)
}

/// Returns the note on the mechanisms that a ranking omits because all their trials in its setting are degraded; `None`
/// if there are no such mechanisms.
fn left_out(mechanisms: &[String], setting: &str) -> Option<String> {
    let names = mechanisms.join(", ");
    (!mechanisms.is_empty())
        .then(|| format!("{names}: {ALL_DEGRADED} in \"{setting}\"; `crossway report` says why"))
}
