//! Enters the figures and the choice into an answer.

use super::*;

pub(super) fn enter_table(advice: &mut Advice, judged: &[Judged], choice: Option<&Choice<'_>>) {
    for j in judged {
        let same = |other: &Judged| std::ptr::eq(j, other);
        let verdict = match choice {
            Some(c) if same(c.chosen) => "chosen",
            Some(c) if c.equal.iter().any(|e| same(e)) => "equal",
            _ if !j.failures().is_empty() => "fails",
            // Without a choice, those that no trial speaks against were measured less.
            _ if !j.admissible() || choice.is_none() => "not pursued",
            Some(c) if !c.pursued.iter().any(|p| same(p)) => "not pursued",
            _ => "admissible",
        };
        let why = match verdict {
            "not pursued" => not_pursued(j),
            _ => j.violations().iter().map(ToString::to_string).collect(),
        };
        for objection in j.failures() {
            let basis = format!("{} of {}", trials_words(j.cost.n), j.cases.join(", "));
            advice.ruled_out.push(RuledOut::new(j.candidate.label(), objection, basis));
        }
        advice.compared.push(Compared {
            candidate: j.candidate.label(),
            mechanism: j.candidate.mechanism.to_owned(),
            cost_ns: j.cost,
            latency_ns: j.latency,
            rate_msgs_per_s: j.rate,
            cpu_ns: j.cpu,
            kept_awake: j.kept_awake,
            goals: j.goals.clone(),
            open_rate: j.open_rate(),
            why,
            verdict,
            cases: j.cases.clone(),
            runs: j.runs.clone(),
        });
    }
    if advice.compared.iter().any(|c| c.verdict == "not pursued") {
        advice.notes.push(
            "candidates that were not pursued were dropped after an earlier stage, or only have records of earlier \
             runs. Their trials are not interleaved with those of the other candidates, and the machine may have been \
             in another state at the time"
                .to_owned(),
        );
    }
}

pub(super) fn enter_choice(
    advice: &mut Advice,
    question: &Question,
    sources: &Sources<'_>,
    choice: &Choice<'_>,
    survey: &Survey,
) {
    let chosen = choice.chosen;
    let confidence = choice.confidence;
    let comparable = chosen.cost.n >= TRIALS_AT_LEAST && choice.pursued.len() > 1;
    advice.confidence = comparable.then_some(confidence);
    if comparable && survey.trials.is_empty() {
        advice.no_confidence = why_no_confidence(sources, choice);
        // The probability assumes trials that differ by chance only.
        advice.confidence = advice.confidence.filter(|_| advice.no_confidence.is_none());
    }
    advice.equal = choice.equal.iter().map(|j| j.candidate.label()).collect();
    advice.runner_up = choice.runner_up.map(|j| j.candidate.label());
    advice.looking = looking::better(question, survey, chosen);
    if let Some(other) = choice.runner_up {
        advice.prefer_runner_up_if = prefer_if(question, chosen, other);
    }
    let remedy = remedy(sources, advice.foreign);
    let undecided: Vec<&JudgedGoal> = chosen.goals.iter().filter(|g| g.met.is_none()).collect();
    for goal in undecided {
        let label = chosen.candidate.label();
        advice.notes.push(match goal.measured {
            None => format!("{}: not measured for {label}; check it yourself", goal.goal),
            Some(_) if goal.lacks_samples() => continue,
            Some(_) => format!(
                "{}: undecided for {label} after {}; {remedy}",
                goal.goal,
                trials_words(chosen.cost.n)
            ),
        });
    }
    if let Some(open) = chosen.open_rate() {
        advice.notes.push(format!("rate: {open} for {}; {remedy}", chosen.candidate.label()));
    }
    if chosen.cost.n < TRIALS_AT_LEAST {
        let why = format!(
            "of the candidates that no trial speaks against, {} has the best figures, but only {}, and {TRIALS_AT_LEAST} \
             are needed to distinguish it from the others; {remedy}",
            chosen.candidate.label(),
            trials_words(chosen.cost.n)
        );
        abstain(advice, NoChoice::FewTrials, why);
        withdraw(advice);
        return;
    }
    if confidence < CONFIDENT {
        let near: Vec<String> = choice
            .pursued
            .iter()
            .filter(|j| j.cost.overlaps(&chosen.cost))
            .map(|j| j.candidate.label())
            .collect();
        let why = format!(
            "the trials do not distinguish {}: {} may be the best choice, but the probability that it is within 5 % of the best is only {:.0} %; \
             {remedy}",
            near.join(", "),
            chosen.candidate.label(),
            confidence * 100.0
        );
        abstain(advice, NoChoice::Undistinguished, why);
        withdraw(advice);
        return;
    }
    advice.choice = Some(chosen.candidate.label());
    advice.mechanism = Some(chosen.candidate.mechanism.to_owned());
    advice.settings = settings(question, chosen);
    let carrier = crossway_records::family::carrier(chosen.candidate.mechanism);
    let meets = carrier.map_or(Vec::new(), |carrier| carrier.meets.to_vec());
    advice.meets = meets.into_iter().filter(|way| question.lets_meet(*way)).collect();
    if !survey.trials.is_empty() {
        advice.warnings.extend(against_earlier(question, sources, chosen));
    }
    enter_flips(advice, question, chosen, survey);
}

/// Makes the answer one without a recommendation.
pub(super) fn abstain(advice: &mut Advice, kind: NoChoice, why: String) {
    advice.no_choice = Some(kind);
    advice.abstained = Some(why);
}

/// Makes the table agree with an answer that recommends nothing: no row is chosen, or equal to the choice.
fn withdraw(advice: &mut Advice) {
    for row in advice.compared.iter_mut().filter(|c| matches!(c.verdict, "chosen" | "equal")) {
        row.verdict = "admissible";
    }
    advice.equal.clear();
}
