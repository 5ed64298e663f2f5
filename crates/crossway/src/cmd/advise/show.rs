//! Prints the answer of `crossway advise` to the terminal.

use std::process::ExitCode;

use crossway_lab::advise::figure::Figure;
use crossway_lab::advise::question::Objective;
use crossway_lab::advise::ready::READY;
use crossway_lab::advise::{Advice, Question};
use crossway_report::advice::{
    AMONG_EQUALS, AWAKE, awake_explained, best_of, caveat, no_confidence, shortlist, verdict,
};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::{Quantity, count};

use crate::table::{Align, Grid};
use crate::ui::Ui;

/// Maximum number of reasons that are listed for ruling out candidates, unless `--explain` is given.
const RULED_OUT_SHOWN: usize = 12;
/// Number of rows in the table of figures, unless `--explain` is given. The table has more rows if the choice, its
/// equals and the runner-up need more.
const COMPARED_SHOWN: usize = 6;

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

fn ns(figure: &Figure) -> String {
    Quantity::Duration.show(figure.median)
}

fn with_interval(figure: &Figure) -> String {
    format!(
        "{} ({} to {}, {})",
        ns(figure),
        Quantity::Duration.show(figure.low),
        Quantity::Duration.show(figure.high),
        count(figure.n, "trial", "trials")
    )
}

pub(super) fn print(advice: &Advice, question: &Question, explain: bool, ui: &Ui) {
    ui.print_wrapped(0, &format!("Question: {}", advice.question));
    let wishes = Advice::wishes(question);
    if !wishes.is_empty() {
        ui.print_wrapped(2, &wishes.join(", "));
    }
    println!();
    for warning in &advice.warnings {
        ui.print_noted("33", "warning", warning);
    }
    if advice.foreign {
        ui.print_noted(
            "33",
            "warning",
            "these figures are from another machine: measure here before you rely on them",
        );
    }
    match (&advice.choice, &advice.abstained) {
        (Some(choice), _) => print_choice(advice, choice, ui),
        (None, Some(why)) => ui.print_noted("1", "No choice:", &format!("{why}.")),
        (None, None) => println!("No choice."),
    }
    print_compared(advice, explain, ui);
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
    print_ruled_out(advice, explain, ui);
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
    let own = advice.compared.iter().find(|c| c.verdict == "chosen");
    let heading = wrap_indented(&format!("Choose {choice}{}.", caveat(advice)), ui.width, 0, 2);
    println!("{}", ui.paint("1", &heading));
    if let Some(own) = own {
        let figure = with_interval(&own.cost_ns);
        ui.print_wrapped(2, &format!("{}: {figure}", advice.objective_words));
        if let Some(cpu) = own.cpu_ns.as_ref().filter(|_| advice.objective != Objective::Cpu) {
            ui.print_wrapped(2, &format!("CPU time of both ends: {} per message", ns(cpu)));
        }
        if own.kept_awake {
            ui.print_wrapped(2, &format!("Caution: {}.", awake_explained()));
        }
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
    if let Some(confidence) = advice.confidence {
        ui.print_wrapped(
            2,
            &format!(
                "Confidence: {} that its true {} is within 5 % of that of {}.",
                crossway_report::advice::confidence(confidence),
                advice.objective_words,
                best_of(advice)
            ),
        );
    } else {
        ui.print_wrapped(2, &format!("{}.", no_confidence(advice)));
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
    println!("\nCompared by {}:", advice.objective_words);
    // If CPU time is what is compared, a column of its own would repeat the figures.
    let with_cpu = advice.objective != Objective::Cpu;
    let cpu_head = with_cpu.then_some(("CPU/message", Align::Right));
    let heads =
        [("candidate", Align::Left), ("figure", Align::Right), ("95 % interval", Align::Right)];
    let more = [("trials", Align::Right), ("", Align::Left)];
    let mut grid = Grid::new(heads.into_iter().chain(cpu_head).chain(more));
    let shown = if explain { advice.compared.len() } else { COMPARED_SHOWN };
    let rows = shortlist(advice, shown);
    for c in &rows {
        let cost = &c.cost_ns;
        let interval = match cost.n < crossway_records::stats::TRIALS_AT_LEAST {
            true => "too few trials".to_owned(),
            false => Quantity::Duration.show_interval(cost.median, cost.low, cost.high),
        };
        let cpu = with_cpu.then(|| c.cpu_ns.as_ref().map_or("-".to_owned(), ns));
        let verdict = match c.verdict == "not pursued" && !c.why.is_empty() {
            true => format!("{} {}", verdict(c), c.why.join("; ")),
            false => verdict(c),
        };
        let figures = [c.candidate.clone(), ns(cost), interval];
        grid.row(figures.into_iter().chain(cpu).chain([cost.n.to_string(), verdict]));
    }
    println!("{}", grid.text(ui));
    if rows.iter().any(|c| c.kept_awake) {
        ui.print_wrapped(0, &format!("{AWAKE} {}", awake_explained()));
    }
    if advice.compared.len() > rows.len() {
        println!("  ... and {} more; --explain shows all", advice.compared.len() - rows.len());
    }
    if explain {
        println!("\nRates and goals:");
        for c in &rows {
            let rate = c.rate_msgs_per_s.as_ref().map(|f| Quantity::MessageRate.show(f.median));
            let open = c.open_rate.as_ref().map(|open| format!("rate {open}"));
            let goals = c.goals.iter().map(|goal| format!("{}: {}", goal.goal, goal.words()));
            let all: Vec<String> = rate.into_iter().chain(open).chain(goals).collect();
            ui.print_wrapped(2, &format!("{}: {}", c.candidate, all.join("; ")));
        }
    }
}

/// Prints the mechanisms that were ruled out, grouped by reason.
fn print_ruled_out(advice: &Advice, explain: bool, ui: &Ui) {
    if advice.ruled_out.is_empty() {
        return;
    }
    let reasons = advice.reasons();
    println!("\nRuled out:");
    let shown = if explain { reasons.len() } else { RULED_OUT_SHOWN };
    for reason in reasons.iter().take(shown) {
        let names = reason.candidates.join(", ");
        ui.print_wrapped(2, &format!("{names}: {} [{}]", reason.why, reason.basis));
    }
    if reasons.len() > shown {
        println!(
            "  ... and {}; --explain shows all",
            count(reasons.len() - shown, "more reason", "more reasons")
        );
    }
}
