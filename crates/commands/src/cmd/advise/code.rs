//! `crossway advise --code`: programs to start from.

use std::path::PathBuf;

use crossway_advise::candidate::Candidate;
use crossway_advise::{Advice, Question, starter};
use crossway_report::units::count;

use super::Advise;
use crate::ui::Ui;

impl Advise {
    /// If `--code` was given, refuses what cannot have starter programs and prints which candidates have none. Called
    /// before time is spent on measuring.
    pub(super) fn check_starters(
        &self,
        question: &Question,
        candidates: &[Candidate],
        ui: &Ui,
    ) -> anyhow::Result<()> {
        let Some(languages) = self.code else { return Ok(()) };
        let ids: Vec<&str> = candidates.iter().map(|c| c.mechanism).collect();
        starter::check(question, languages, &ids)?;
        starter::check_folder(&self.code_folder(&question.name))?;
        let available = starter::available(languages, question.pattern);
        let without: Vec<String> = candidates
            .iter()
            .filter(|c| !available.contains(&c.mechanism))
            .map(Candidate::label)
            .collect();
        if !without.is_empty() {
            ui.note(&format!(
                "{} of {} have no starter programs in {languages} ({}); if one of these is chosen, the programs are for \
                 the best candidate that has them",
                without.len(),
                count(candidates.len(), "candidate", "candidates"),
                without.join(", ")
            ));
        }
        Ok(())
    }

    /// The folder for the starter programs.
    fn code_folder(&self, name: &str) -> PathBuf {
        self.code_dir.clone().unwrap_or_else(|| PathBuf::from(name))
    }

    /// Writes the starter programs if `--code` was given and a mechanism is recommended. If the mechanism has no
    /// starter programs, they are for the best admissible candidate that has some.
    pub(super) fn write_starter(
        &self,
        advice: &Advice,
        question: &Question,
        ui: &Ui,
    ) -> anyhow::Result<()> {
        let (Some(languages), Some(mechanism)) = (self.code, &advice.mechanism) else {
            return Ok(());
        };
        let available = starter::available(languages, question.pattern);
        let has = |id: &str| available.contains(&id);
        let others = advice.compared.iter().filter(|c| c.is_pursued());
        let other = others.map(|c| c.mechanism.as_str()).find(|id| has(id));
        let subject = if has(mechanism) { Some(mechanism.as_str()) } else { other };
        let Some(subject) = subject else {
            let text = format!(
                "no starter programs were written: there are none in {languages} for {mechanism} or any other \
                 admissible candidate, only for {}",
                available.join(", ")
            );
            ui.note(&text);
            return Ok(());
        };
        let dir = self.code_folder(&advice.name);
        let largest = question.sizes.iter().map(|s| s.bytes).chain(question.reply_bytes).max();
        let largest = largest.unwrap_or_default();
        let files = starter::write(subject, mechanism, languages, question.pattern, largest, &dir)?;
        if subject != mechanism {
            let text = format!(
                "there are no starter programs for {mechanism} in {languages}; those written are for {subject}, the \
                 best admissible candidate that has them"
            );
            ui.note(&text);
        }
        if !self.json {
            println!(
                "\nStarter programs for {subject}: {} files in {}; its README.md explains how to run them",
                files.len(),
                dir.display()
            );
        }
        Ok(())
    }
}
