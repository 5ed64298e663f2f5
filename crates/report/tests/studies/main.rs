//! Findings of the studies: each is judged in all three ways by synthetic records, and shown in every form.

mod cluster;
mod enea;
#[path = "../synthetic/mod.rs"]
mod synthetic;
mod toshiba;

use std::path::Path;

use crossway_lab::moves::MoveRecord;
use crossway_records::inputs::{Ends, Wait, Workload};
use crossway_records::record::{Record, Status};
use crossway_report::steps::Shapes;
use crossway_report::studies::{self, Finding, Verdict};
use crossway_report::{Run, html, json, terminal};
use synthetic::study::{DOES, Does, Made};
use synthetic::{Ask, MADE, Noise};
use toshiba::round_trips;

use Verdict::{Confirmed, NotConfirmed, NotMeasurable, Undecided};

const STREAM: Workload = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };

impl Made {
    fn finding(&self, id: &str) -> Finding {
        let mut records = self.records.clone();
        if records.is_empty() {
            records.push(synthetic::skipped("cma", "not asked for", "nothing"));
        }
        // With the plan's name the study is shown even if none of its findings is decided.
        let plan = if id.starts_with('T') { "toshiba" } else { "cluster" };
        records.iter_mut().for_each(|r| r.plan = plan.to_owned());
        let mut run = Run::of_records(Path::new("run"), records);
        run.moves = self.moves.clone();
        run.mpi = self.mpi.clone();
        let all = studies::all(&run, &Shapes::of(&run));
        let mut found = all.into_iter().flat_map(|s| s.findings).filter(|f| f.id == id);
        found.next().expect("the finding is listed")
    }
}

/// The page with the report of a run.
fn page(run: &Run) -> String {
    let mut page = Vec::new();
    html::write(run, &mut page).expect("the page can be made");
    String::from_utf8(page).expect("text")
}

/// Checks the verdict on the records that `make` adds, and that its reason contains `word`.
fn judged(id: &str, verdict: Verdict, word: &str, make: impl FnOnce(&mut Made)) {
    let mut made = Made::new();
    make(&mut made);
    let finding = made.finding(id);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.why.contains(word), "'{word}' is not in: {}", finding.why);
}

/// Checks that the findings are decided by five trials of each case, and by neither one nor four. The findings in
/// `certain` are decided by every number of trials.
fn decides_only_with_five(made: &Made, ids: &[&str], certain: &[&str]) {
    for trials in [1, 4, 5] {
        let mut few = Made::new();
        (few.records, few.moves) = (made.records.clone(), made.moves.clone());
        few.mpi = made.mpi.clone();
        few.mpi.retain(|r| r.trial < trials);
        few.records.retain(|r| r.inputs.trial < trials);
        few.moves.retain(|r| r.trial < trials);
        for id in ids.iter().chain(certain) {
            let finding = few.finding(id);
            let decided = matches!(finding.verdict, Confirmed | NotConfirmed);
            let wanted = trials == 5 || certain.contains(id);
            assert_eq!(decided, wanted, "{id} with {trials} trials: {finding:?}");
            assert!(decided || finding.verdict == Undecided, "{finding:?}");
            let most = finding.figures.iter().map(|figure| figure.value.n).max();
            assert!(most.is_none_or(|n| n <= trials as usize), "{finding:?}");
        }
    }
}

/// Checks that without records, a finding names the plan that would produce them.
fn without_records(id: &str, plan: &str) {
    judged(id, NotMeasurable, &format!("crossway measure {plan}"), |_| {});
}

#[test]
fn findings_are_in_every_form_and_only_where_they_belong() {
    let mut made = Made::new();
    round_trips(&mut made, 1.08, 0.02);
    for r in &mut made.records {
        (r.inputs.messages, r.inputs.study_messages) = (Some(200), Some(10_000));
    }
    let run = Run::of_records(Path::new("run"), made.records.clone());
    let text = terminal::terminal(&run, false, 100);
    assert!(text.contains("- T7 (Latency): confirmed."), "{text}");
    assert!(!text.contains("cluster)"), "the other study has nothing to say: {text}");
    assert!(
        !text.contains("not measurable"),
        "of another plan only what it has records of: {text}"
    );
    let markdown = terminal::markdown(&run);
    assert!(markdown.contains("| T7 Latency | Ping-pong: the round trips"), "{markdown}");
    let document = json::document(&run);
    let findings = document["studies"][0]["findings"].as_array().expect("findings");
    let t7 = findings.iter().find(|f| f["id"] == "T7").expect("T7");
    assert_eq!(t7["verdict"], "confirmed");
    assert!(t7["measured"][0]["low"].as_f64() < t7["measured"][0]["high"].as_f64());
    let page = page(&run);
    assert!(page.contains("id=\"study-toshiba\"") && !page.contains("id=\"study-cluster\""));
    assert!(page.contains("200 instead of the study&#x27;s 10,000"), "the factor is shown");
    // A run unrelated to the studies has no such section.
    let run =
        Run::of_records(Path::new("run"), vec![synthetic::skipped("vsock", "none", "modprobe")]);
    assert_eq!(studies::all(&run, &Shapes::of(&run)).len(), 0);
}

#[test]
fn the_report_of_a_studys_own_plan_leads_with_its_verdicts() {
    let mut made = Made::new();
    round_trips(&mut made, 1.08, 0.02);
    for record in &mut made.records {
        record.plan = "toshiba".to_owned();
    }
    let run = Run::of_records(Path::new("run"), made.records);
    let text = terminal::terminal(&run, false, 100);
    let (headline, finding) = (text.find("Findings: 1 confirmed"), text.find("- T7 (Latency)"));
    assert!(headline.is_some() && headline < finding && finding < text.find("RTT p50"), "{text}");
    let page = page(&run);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("Findings: 1 confirmed") < at("<section id=\"study-toshiba\""));
    assert!(at("<section id=\"study-toshiba\"") < at("<section id=\"comparison\""));
}
