//! The plan of a stage: which trials of which candidates are measured, and for how long.

use toml::{Table, Value};

use super::super::AdviseError;
use super::super::answer::objective_words;
use super::super::candidate::Candidate;
use super::super::question::Question;
use super::super::trials::{SurveyPart, survey_group};
use crossway_lab::plan::{Plan, number, table, testbed_table, value};
use crossway_records::inputs::{Ends, Extent};
use crossway_records::sorting::SortSmall;

pub(super) const WARMUP_MS: u64 = 15;
/// Minimum number of bursts in a paced trial, so that its percentiles are meaningful.
const BURSTS: u64 = 40;
const LONGEST_TRIAL_MS: u64 = 4_000;

/// The measured time of a trial, milliseconds: long enough for the percentiles of a paced trial, otherwise short, since
/// many short trials are more informative than a few long ones.
pub(super) fn measure_ms(question: &Question) -> u64 {
    let workload = question.workload(question.sizes[0].bytes);
    match workload.facts().extent {
        Extent::Instants { period_ns, .. } => {
            // Clients send between the requests of others, each twice at least.
            let periods = BURSTS.div_ceil(workload.schedules()).max(2);
            (periods * period_ns / 1_000_000).clamp(80, LONGEST_TRIAL_MS)
        }
        Extent::Time | Extent::Recorded => 80,
        Extent::Messages => 40,
    }
}

/// The beginning of the description of a survey's plans.
pub(in super::super) const FOR_ADVISE: &str = "For advise: ";

/// The description of the plans of a question. It states what determines which candidates a survey drops: the question
/// and the figure to minimise.
pub(in super::super) fn about(question: &Question) -> String {
    format!("{FOR_ADVISE}{}; minimised: {}", question.sentence(), objective_words(question))
}

/// The plan that measures these candidates for the question.
pub fn plan(
    question: &Question,
    candidates: &[Candidate],
    trials: u32,
    seed: u64,
) -> Result<Plan, AdviseError> {
    plan_of(None, question, candidates, trials, measure_ms(question), seed)
}

/// The plan of a stage whose trials are measured for `measure_ms` milliseconds. `part` is the part of the survey that
/// the stage belongs to, or `None` for trials that are not for the choice; the names of the plan's groups, and so the
/// records, contain it.
pub(super) fn plan_of(
    part: Option<SurveyPart>,
    question: &Question,
    candidates: &[Candidate],
    trials: u32,
    measure_ms: u64,
    seed: u64,
) -> Result<Plan, AdviseError> {
    let testbed = question.testbed();
    let mut groups = Table::new();
    for share in &question.sizes {
        let mut waits: Vec<_> = candidates.iter().map(|c| c.wait).collect();
        waits.sort_small_by_key(crossway_records::cases::wait_name);
        waits.dedup();
        for wait in waits {
            let mechanisms: Vec<Value> = candidates
                .iter()
                .filter(|c| c.wait == wait)
                .map(|c| Value::String(c.mechanism.to_owned()))
                .collect();
            if mechanisms.is_empty() {
                continue;
            }
            let mut group = Table::new();
            group.insert("mechanisms".into(), Value::Array(mechanisms));
            group.insert("workload".into(), value(question.workload(share.bytes))?);
            group.insert("size_bytes".into(), number(share.bytes));
            if let Some(reply) = question.reply_bytes {
                group.insert("reply_bytes".into(), number(reply));
            }
            group.insert("wait".into(), value(wait)?);
            if let Some(testbed) = &testbed {
                group.insert("testbed".into(), testbed.name.clone().into());
                group.insert("ends".into(), Ends::Between.name().into());
            }
            groups.insert(survey_group(part, wait, share.bytes), Value::Table(group));
        }
    }
    let mut top = Table::new();
    top.insert("about".into(), about(question).into());
    top.insert("seed".into(), number(seed));
    top.insert(
        "defaults".into(),
        table([
            ("placement", value(question.placement)?),
            ("load", crossway_lab::plan::load_value(question.load)?),
            ("trials", number(u64::from(trials))),
            ("warmup_ms", number(WARMUP_MS)),
            ("measure_ms", number(measure_ms)),
        ]),
    );
    if let Some(testbed) = &testbed {
        let written = Value::Table(testbed_table(testbed));
        top.insert("testbed".into(), table([(testbed.name.as_str(), written)]));
    }
    top.insert("group".into(), Value::Table(groups));
    let name = format!("advise-{}", question.name);
    let mut plan = Plan::parse(&name, "the question's plan", &top.to_string())?;
    if let Some(hosts) = &question.hosts {
        plan.set_hosts(hosts).map_err(AdviseError::Hosts)?;
    }
    Ok(plan)
}
