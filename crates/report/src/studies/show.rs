//! Shows the studies' findings ("Study says / measured here") on the page, on the terminal, as Markdown and as JSON.

use std::fmt::Write as _;

use crossway_lab::catalogue;
use crossway_lab::plan::MOST_TRIALS;
use crossway_records::stats::TRIALS_AT_LEAST;
use serde::Serialize;
use serde_json::{Value, json as value};

use super::enea::is_way;
use super::{Figure, Finding, Study, Verdict};
use crate::run::Run;
use crate::sheet::interval_note;

/// Returns a sentence that compares the numbers of messages per trial with the study's; `None` if the plan does not
/// state the numbers.
fn scale(run: &Run) -> Option<String> {
    let mut scales: Vec<(u64, u64)> = run
        .records
        .iter()
        .filter_map(|r| Some((r.inputs.messages?, r.inputs.study_messages?)))
        .collect();
    scales.sort_unstable_by_key(|(here, study)| (*study, *here));
    scales.dedup();
    if scales.is_empty() {
        return None;
    }
    let told: Vec<String> = scales
        .iter()
        .map(|(here, study)| {
            format!("{} instead of the study's {}", grouped(*here), grouped(*study))
        })
        .collect();
    Some(format!(
        "Messages per trial: {}. The plan's other groups set the duration of a trial, or a number of messages of their \
         own. To use the study's numbers, add `--scale 1`, or set `scale = 1` in the plan.",
        told.join(", ")
    ))
}

/// Formats a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Makes a sentence of a text: capitalises the first letter, unless the text begins with the id of a mechanism or a
/// study's name for one, and ends it with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let first = text.split([' ', ':', ',', ';']).next().unwrap_or_default();
    if first.contains(['-', '_']) || is_way(first) || catalogue::find(first).is_some() {
        return format!("{text}.");
    }
    let mut letters = text.chars();
    let first = letters.next().map_or(String::new(), |c| c.to_uppercase().to_string());
    format!("{first}{}.", letters.as_str())
}

/// A finding as the page shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Card {
    /// Number and title of the finding.
    pub head: String,
    /// What the study says.
    pub says: &'static str,
    /// Where the run measured the finding; empty if it did not.
    pub place: String,
    /// The measured figures: name, value, interval.
    pub measured: Vec<(String, String, String)>,
    /// The verdict's human-readable name, and its class in the style sheet.
    pub verdict: (&'static str, &'static str),
    /// The reason for the verdict.
    pub why: String,
    /// The rule by which the claim was judged.
    pub rule: &'static str,
}

/// A study as the page shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Anchor on the page.
    pub id: String,
    /// Title of the study.
    pub title: &'static str,
    /// Paragraphs before the findings.
    pub paragraphs: Vec<String>,
    /// The findings, one card each.
    pub cards: Vec<Card>,
}

fn shown(figure: &Figure) -> (String, String, String) {
    (
        figure.what.clone(),
        figure.quantity.show(figure.value.value),
        interval_note(figure.quantity, &figure.value),
    )
}

/// Returns the reason for the verdict and, for an undecided one, what would decide it.
fn why(study: &Study, finding: &Finding) -> String {
    let why = sentence(&finding.why);
    let least = TRIALS_AT_LEAST as u32;
    // So few trials do not show that this number would decide the claim.
    if finding.verdict == Verdict::Undecided
        && finding.lacks_trials()
        && finding.trials_needed.is_none_or(|n| n <= study.trials.max(least))
    {
        let more = if study.trials < least { least } else { 2 * study.trials };
        let lost = if study.trials < least {
            ""
        } else {
            " Some of the plan's trials are missing or degraded: resume the run if it was interrupted."
        };
        return format!(
            "{why} At least {least} trials per case are needed, and more may be.{lost} To measure more: \
             `crossway measure {} --trials {more}`",
            study.plan
        );
    }
    match (finding.verdict, finding.trials_needed) {
        (Verdict::Undecided, Some(n)) if n <= study.trials => format!(
            "{why} The plan's {} trials per case may decide it, but some are missing or degraded. Resume the run if \
             it was interrupted, or measure more trials: `crossway measure {} --trials {}`",
            study.trials,
            study.plan,
            2 * study.trials
        ),
        (Verdict::Undecided, Some(n)) if n > MOST_TRIALS => format!(
            "{why} About {n} trials per case would decide it, more than the {MOST_TRIALS} that a run can have."
        ),
        (Verdict::Undecided, Some(n)) => format!(
            "{why} About {n} trials per case would decide it: `crossway measure {} --trials {n}` (`--dry-run` says how long \
             that takes)",
            study.plan
        ),
        (Verdict::Undecided, None) if finding.on_bound => format!(
            "{why} The median lies so close to the bound that no practical number of trials would decide it."
        ),
        _ => why,
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Confirmed => "yes",
        Verdict::NotConfirmed => "no",
        Verdict::Undecided | Verdict::NotMeasurable => "open",
    }
}

/// Formats the number of findings by verdict; verdicts without findings are left out.
fn counts(study: &Study) -> String {
    let verdicts =
        [Verdict::Confirmed, Verdict::NotConfirmed, Verdict::Undecided, Verdict::NotMeasurable];
    let counted = verdicts.iter().filter_map(|verdict| {
        let count = study.findings.iter().filter(|f| f.verdict == *verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    counted.collect::<Vec<_>>().join(", ")
}

/// Returns the sections of the page, one per study.
pub fn section(run: &Run, studies: &[Study]) -> Vec<Section> {
    let card = |study: &Study, finding: &Finding| Card {
        head: format!("{}: {}", finding.id, finding.title),
        says: finding.says,
        place: finding.place.clone(),
        measured: finding.figures.iter().map(shown).collect(),
        verdict: (finding.verdict.name(), class(finding.verdict)),
        why: why(study, finding),
        rule: finding.rule,
    };
    studies
        .iter()
        .map(|study| Section {
            id: format!("study-{}", study.plan),
            title: study.title,
            paragraphs: [
                Some(format!("{} Findings: {}.", study.setup, counts(study))),
                Some(
                    "Each finding has its own rule. In general, a claim is confirmed if the 95 % interval of the \
                     measured figure lies wholly on its side of a bound; not confirmed if the interval lies wholly on \
                     the other side, or within 5 % of the bound; undecided if the trials leave it open, for example \
                     because there are fewer than five; and not measurable here if the records cannot answer it. \
                     Hardware and kernel are not the study's: a disagreement is a result, not an error."
                        .to_owned(),
                ),
                scale(run),
            ]
            .into_iter()
            .flatten()
            .collect(),
            cards: study.findings.iter().map(|finding| card(study, finding)).collect(),
        })
        .collect()
}

/// Returns a headline on the study whose plan the run measured; `None` for other plans.
pub fn headline(run: &Run, studies: &[Study]) -> Option<String> {
    let study = studies.iter().find(|study| study.plan == run.study_plan())?;
    Some(format!("{}. Findings: {}.", study.title.trim_end_matches('.'), counts(study)))
}

/// Returns one line per finding, with a heading for each study.
pub fn lines(studies: &[Study]) -> Vec<String> {
    let mut lines = Vec::new();
    for study in studies {
        lines.push(format!("{} ({})", study.title, counts(study)));
        lines.extend(
            study.findings.iter().map(|f| {
                format!("- {} ({}): {}. {}", f.id, f.title, f.verdict.name(), why(study, f))
            }),
        );
    }
    lines
}

/// Returns one short line per decided finding, without the reason of its verdict.
pub(crate) fn brief(studies: &[Study]) -> Vec<String> {
    let findings = studies.iter().flat_map(|study| &study.findings);
    let decided = |f: &&Finding| matches!(f.verdict, Verdict::Confirmed | Verdict::NotConfirmed);
    findings
        .filter(decided)
        .map(|f| format!("- {}: {} ({})", f.verdict.name(), f.title, f.id))
        .collect()
}

/// Returns the findings as Markdown tables; `escape` makes text safe in them.
pub fn markdown(studies: &[Study], escape: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for study in studies {
        let _ = writeln!(out, "\n### {}\n", escape(study.title));
        let _ = writeln!(
            out,
            "| Finding | Study says | Measured here | Verdict | Why |\n|---|---|---|---|---|"
        );
        for finding in &study.findings {
            let measured: Vec<String> = finding
                .figures
                .iter()
                .map(shown)
                .map(|(what, value, interval)| escape(&format!("{what}: {value} ({interval})")))
                .collect();
            let _ = writeln!(
                out,
                "| {} {} | {} | {} | **{}** | {} |",
                finding.id,
                escape(finding.title),
                escape(finding.says),
                if measured.is_empty() { "–".to_owned() } else { measured.join("<br>") },
                finding.verdict.name(),
                escape(&why(study, finding))
            );
        }
    }
    out
}

/// Returns the studies and findings as JSON.
pub fn json(studies: &[Study]) -> Value {
    let figure = |figure: &Figure| {
        value!({
            "what": figure.what,
            "quantity": figure.quantity,
            "value": figure.value.value,
            "low": figure.value.interval().map(|i| i.0),
            "high": figure.value.interval().map(|i| i.1),
            "trials": figure.value.n,
        })
    };
    let finding = |finding: &Finding| {
        value!({
            "id": finding.id,
            "title": finding.title,
            "study_says": finding.says,
            "place": finding.place,
            "measured": finding.figures.iter().map(figure).collect::<Vec<_>>(),
            "verdict": finding.verdict,
            "trials_needed": finding.trials_needed,
            "why": finding.why,
            "rule": finding.rule,
        })
    };
    let study = |study: &Study| {
        value!({
            "plan": study.plan,
            "title": study.title,
            "setup": study.setup,
            "findings": study.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    };
    studies.iter().map(study).collect()
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn a_sentence_begins_with_a_capital_but_an_id_keeps_its_case() {
        assert_eq!(sentence("the pipe is slower"), "The pipe is slower.");
        for text in
            ["tcp leads", "pipe: no trial", "shm-spin is refused", "mempipe leads", "unix leads"]
        {
            assert_eq!(sentence(text), format!("{text}."));
        }
    }
}
