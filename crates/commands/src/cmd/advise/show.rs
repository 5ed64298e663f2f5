//! Prints the answer of `crossway advise` to the terminal.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use crossway_advise::ready::READY;
use crossway_advise::{Advice, Flip, Question};
use crossway_mech::Meeting;
use crossway_records::awake::busy_explained;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::Estimate;
use crossway_records::stats::interval_name;
use crossway_report::advice::{
    AMONG_EQUALS, best_of, caveat, confidence, looking, no_confidence, not_pursued, shortlist,
    standing, verdict,
};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::{Quantity, count};

use crate::table::{Align, Grid};
use crate::ui::Ui;

/// Maximum number of warnings on the first screen.
const WARNINGS_SHOWN: usize = 2;
/// Number of rows in the table of figures, unless `--explain` is given. The table has more rows if the choice, its
/// equals and the runner-up need more.
const COMPARED_SHOWN: usize = 4;

/// Lists the ready-made questions.
pub(super) fn ready(json: bool, ui: &Ui) -> anyhow::Result<ExitCode> {
    let mut known = Vec::new();
    for (name, text) in READY {
        let about = Question::parse(name, name, text)?.about.unwrap_or_default();
        known.push(serde_json::json!({ "name": name, "about": about }));
        if !json {
            println!("{name:<16} {about}");
        }
    }
    if json {
        ui.print_json(&known)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "\n`crossway advise NAME` answers one of these questions; `crossway advise NAME --print` prints the question's \
         file."
    );
    Ok(ExitCode::SUCCESS)
}

fn ns(figure: &Estimate) -> String {
    Quantity::Duration.show(figure.value)
}

/// Formats nanoseconds with two significant digits, as on the first screen.
fn brief(ns: f64) -> String {
    Quantity::Duration.show_two(ns)
}

/// The interval of a figure, `22 to 28 µs, `; empty if both ends look like its middle.
fn between(figure: &Estimate) -> String {
    let (low, high) = (brief(figure.low), brief(figure.high));
    if low == high && low == brief(figure.value) {
        return String::new();
    }
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {high}, "),
        _ => format!("{low} to {high}, "),
    }
}

/// Column in which the text of a row begins, after its label.
const TEXT_AT: usize = 13;

/// Prints a row of the answer: a label, and a text that is wrapped beside it.
fn row(label: &str, text: &str, ui: &Ui) {
    let text = wrap_indented(text, ui.width, TEXT_AT, TEXT_AT);
    println!("  {} {text}", ui.paint("2", &format!("{label:<width$}", width = TEXT_AT - 3)));
}

/// Prints the question and its wishes.
pub(super) fn question(question: &Question, ui: &Ui) {
    let question_line = format!("Question: {}", question.sentence());
    let mut text = wrap_indented(&question_line, ui.width, 0, 2);
    let wishes = Advice::wishes(question);
    if !wishes.is_empty() {
        text.push_str("\n  ");
        text.push_str(&wrap_indented(&wishes.join(", "), ui.width, 2, 4));
    }
    // If nobody reads it, measuring goes on, and the exit status is that of the answer.
    let _ = writeln!(std::io::stdout(), "{text}\n");
}

/// Prints the answer on one screen, and with `explain` everything that it rests on.
pub(super) fn print(advice: &Advice, explain: bool, ui: &Ui) {
    match (&advice.choice, &advice.abstained) {
        (Some(choice), _) => print_choice(advice, choice, ui),
        (None, Some(why)) => {
            ui.print_noted("1", "No choice:", &format!("{why}."));
            if !explain {
                print_compared(advice, explain, ui);
                println!();
            }
        }
        (None, None) => println!("No choice."),
    }
    if !advice.ruled_out.is_empty() {
        row("Ruled out", &ruled_out(advice), ui);
    }
    print_warnings(advice, explain, ui);
    if explain {
        print_all(advice, ui);
    } else {
        let how = match advice.open_requirements.is_empty() {
            true => "",
            false => "how to find out what is unknown, ",
        };
        ui.print_wrapped(
            0,
            &format!("\n`--explain` adds {how}all candidates, why others were ruled out, notes, and the commands to repeat it."),
        );
    }
}

/// Prints what the first screen leaves out.
fn print_all(advice: &Advice, ui: &Ui) {
    if advice.choice.is_some() {
        print_basis(advice, ui);
    }
    print_compared(advice, true, ui);
    if !advice.flips.is_empty() {
        println!("\nWhat would change the answer (measured):");
        for flip in &advice.flips {
            let then = flip.outcome(advice.choice.as_deref());
            let costs: Vec<String> =
                flip.costs_ns.iter().map(|(name, f)| format!("{name} {}", ns(f))).collect();
            let costs = match costs.is_empty() {
                true => String::new(),
                false => format!(" ({})", costs.join(", ")),
            };
            ui.print_wrapped(2, &format!("{}: {then}{costs}", flip.variation));
        }
    }
    print_ruled_out(advice, ui);
    if !advice.notes.is_empty() {
        println!("\nNotes:");
        advice.notes.iter().for_each(|note| ui.print_wrapped(2, note));
    }
    if !advice.commands.is_empty() {
        println!("\nTo reproduce the figures:");
        advice.commands.iter().for_each(|command| println!("  {command}"));
    }
}

fn print_choice(advice: &Advice, choice: &str, ui: &Ui) {
    let heading = wrap_indented(&format!("Choose {choice}{}.", caveat(advice)), ui.width, 0, 2);
    println!("{}", ui.paint("1", &heading));
    if let Some(own) = advice.compared.iter().find(|c| c.verdict == "chosen") {
        let cost = &own.cost_ns;
        let trials = count(cost.n, "trial", "trials");
        let cpu = own.cpu_ns.as_ref().filter(|_| !advice.objective.is_cpu());
        let cpu =
            cpu.map_or(String::new(), |cpu| format!("; CPU time per message {}", brief(cpu.value)));
        let figure = format!(
            "{} {} ({}{trials}){cpu}",
            advice.objective_words,
            brief(cost.value),
            between(cost)
        );
        row("Figure", &figure, ui);
        let rate = own.open_rate.iter().map(|_| "the rate: undecided".to_owned());
        let goals = own.goals.iter().map(|goal| {
            let verdict = match goal.met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "undecided",
            };
            format!("{}: {verdict}", goal.goal)
        });
        let goals: Vec<String> = goals.chain(rate).collect();
        if !goals.is_empty() {
            row("Goals", &goals.join("; "), ui);
        }
        if own.kept_awake {
            row("Caution", &format!("{}.", busy_explained()), ui);
        }
    }
    if let Some(why) = standing(advice) {
        let sure = advice.confidence.map_or(String::new(), |share| {
            format!(" ({} sure to be within 5 % of the best of these)", confidence(share))
        });
        // In a sentence of its own, since nothing is known of how near to the best they are.
        let others = not_pursued(advice).map_or(String::new(), |others| format!(" {others}."));
        row("Why", &format!("{why}{sure}.{others}"), ui);
    }
    if !advice.meets.is_empty() {
        let apart = match advice.started_apart {
            true => {
                " The programs were started apart: nothing that needs a common parent was considered."
            }
            false => "",
        };
        row("Needs", &format!("{}.{apart}", Meeting::any_of(&advice.meets)), ui);
    }
    if let Some(other) = &advice.runner_up {
        let figure = advice.compared.iter().find(|c| c.candidate == *other);
        let figure = figure.map_or(String::new(), |c| format!(" ({})", brief(c.cost_ns.value)));
        let when = advice.prefer_runner_up_if.first();
        let when = when.map_or(String::new(), |when| format!(": prefer it if {when}"));
        row("Runner-up", &format!("{other}{figure}{when}."), ui);
    }
    if let Some(looking) = looking(advice) {
        row("Quicker", &format!("{looking}."), ui);
    }
    if !advice.flips.is_empty() {
        row("Changes", &changes(advice), ui);
    }
}

/// Says in which variations of the question another mechanism is better, in words.
fn changes(advice: &Advice) -> String {
    let (changing, others): (Vec<&Flip>, Vec<&Flip>) =
        advice.flips.iter().partition(|flip| flip.differs);
    let mut parts: Vec<String> = changing
        .iter()
        .map(|flip| {
            let then = match (&flip.choice, flip.equal.is_empty()) {
                (Some(other), true) => format!("{other} is better"),
                (Some(other), false) => format!("{other}, {} are better", flip.equal.join(", ")),
                (None, _) => "no candidate meets every requirement".to_owned(),
            };
            format!("{}: {then}", flip.variation)
        })
        .collect();
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|flip| flip.variation.as_str()).collect();
        parts.push(format!("no clear change with {}", names.join("; ")));
    }
    format!("{}.", parts.join(". "))
}

/// Counts the candidates that were ruled out, by kind of reason, the most frequent first.
fn ruled_out(advice: &Advice) -> String {
    let mut kinds: Vec<(String, BTreeSet<&str>)> = Vec::new();
    let mut all = BTreeSet::new();
    for out in &advice.ruled_out {
        let kind = out.objection.brief();
        all.insert(out.candidate.as_str());
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => drop(names.insert(&out.candidate)),
            None => kinds.push((kind, BTreeSet::from([out.candidate.as_str()]))),
        }
    }
    kinds.sort_small_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, names)| format!("{} {kind}", names.len())).collect();
    format!("{}: {}.", count(all.len(), "candidate", "candidates"), kinds.join(", "))
}

/// Prints what may have distorted the figures, each warning once.
fn print_warnings(advice: &Advice, explain: bool, ui: &Ui) {
    let foreign = advice.foreign.then(|| {
        "these figures are from another machine: measure here before you rely on them".to_owned()
    });
    let all: Vec<&String> = foreign.iter().chain(&advice.warnings).collect();
    let shown = if explain { all.len() } else { WARNINGS_SHOWN };
    for warning in all.iter().take(shown) {
        ui.print_noted("33", "warning", warning);
    }
    if all.len() > shown {
        println!("  ... and {}", count(all.len() - shown, "more warning", "more warnings"));
    }
}

/// Prints what the choice rests on, in full.
fn print_basis(advice: &Advice, ui: &Ui) {
    println!("\nThe choice:");
    if let Some(own) = advice.compared.iter().find(|c| c.verdict == "chosen") {
        for goal in &own.goals {
            ui.print_wrapped(2, &format!("{}: {}", goal.goal, goal.words()));
        }
        if let Some(why) = &own.open_rate {
            ui.print_wrapped(2, &format!("rate: {why}"));
        }
    }
    if !advice.equal.is_empty() {
        ui.print_wrapped(2, &format!("Equally good: {}. {AMONG_EQUALS}.", advice.equal.join(", ")));
    }
    match advice.confidence {
        Some(share) => ui.print_wrapped(
            2,
            &format!(
                "Confidence: {} that its true {} is within 5 % of that of {}.",
                confidence(share),
                advice.objective_words,
                best_of(advice)
            ),
        ),
        None => ui.print_wrapped(2, &format!("{}.", no_confidence(advice))),
    }
    if let Some(other) = &advice.runner_up {
        let when = advice.prefer_runner_up_if.join("; or ");
        ui.print_wrapped(2, &format!("Runner-up: {other}. Prefer it if {when}."));
    }
    ui.print_wrapped(2, &format!("Settings: {}.", advice.settings.join("; ")));
}

fn print_compared(advice: &Advice, explain: bool, ui: &Ui) {
    if advice.compared.is_empty() {
        return;
    }
    let some = if explain { "" } else { " (the best)" };
    println!("\nCompared by {}{some}:", advice.objective_words);
    // If CPU time is what is compared, a column of its own would repeat the figures.
    let with_cpu = !advice.objective.is_cpu();
    let cpu_head = with_cpu.then_some(("CPU/message", Align::Right));
    let shown = if explain { advice.compared.len() } else { COMPARED_SHOWN };
    let rows = shortlist(advice, shown);
    let interval = interval_name(rows.iter().map(|c| c.cost_ns.n));
    let heads =
        [("candidate", Align::Left), ("figure", Align::Right), (interval.as_str(), Align::Right)];
    let more = [("trials", Align::Right), ("", Align::Left)];
    let mut grid = Grid::new(heads.into_iter().chain(cpu_head).chain(more));
    for c in &rows {
        let cost = &c.cost_ns;
        let interval = match cost.n < crossway_records::stats::TRIALS_AT_LEAST {
            true => "too few trials".to_owned(),
            false if !explain => format!("{}–{}", brief(cost.low), brief(cost.high)),
            false => Quantity::Duration.show_interval(cost.value, cost.low, cost.high),
        };
        let shown = |figure: &Estimate| if explain { ns(figure) } else { brief(figure.value) };
        let cpu = with_cpu.then(|| c.cpu_ns.as_ref().map_or("-".to_owned(), shown));
        let verdict = match c.verdict == "not pursued" && !c.why.is_empty() {
            true => format!("{} {}", verdict(c), c.why.join("; ")),
            false => verdict(c),
        };
        let figures = [c.candidate.clone(), shown(cost), interval];
        grid.row(figures.into_iter().chain(cpu).chain([cost.n.to_string(), verdict]));
    }
    println!("{}", grid.text(ui));
    if rows.iter().any(|c| c.kept_awake) {
        ui.print_wrapped(0, &busy_explained());
    }
    if explain {
        println!("\nRates and goals:");
        for c in &rows {
            let rate = c.rate_msgs_per_s.as_ref().map(|f| Quantity::MessageRate.show(f.value));
            let open = c.open_rate.as_ref().map(|open| format!("rate {open}"));
            let goals = c.goals.iter().map(|goal| format!("{}: {}", goal.goal, goal.words()));
            let all: Vec<String> = rate.into_iter().chain(open).chain(goals).collect();
            ui.print_wrapped(2, &format!("{}: {}", c.candidate, all.join("; ")));
        }
    }
}

/// Prints the mechanisms that were ruled out, grouped by reason.
fn print_ruled_out(advice: &Advice, ui: &Ui) {
    if advice.ruled_out.is_empty() {
        return;
    }
    println!("\nRuled out:");
    for reason in advice.reasons() {
        let names = reason.candidates.join(", ");
        ui.print_wrapped(2, &format!("{names}: {} [{}]", reason.why, reason.basis));
    }
}

#[cfg(test)]
mod tests {
    use super::{Estimate, between};

    #[test]
    fn an_interval_names_its_unit_once_and_is_left_out_if_it_looks_like_its_middle() {
        let of = |low, median, high| between(&Estimate { n: 5, value: median, low, high });
        assert_eq!(of(22_300.0, 24_000.0, 28_000.0), "22 to 28 µs, ");
        assert_eq!(of(900.0, 1_000.0, 1_200.0), "900 ns to 1.2 µs, ");
        assert_eq!(of(17_600.0, 17_700.0, 18_000.0), "");
    }
}
