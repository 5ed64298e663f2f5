//! Parsers and shell completions for values that several subcommands take on the command line.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use crossway_advise::ready::READY;
use crossway_lab::agent::AgentProgram;
use crossway_lab::contender::Folders;
use crossway_lab::pattern;
use crossway_lab::plan::{MOST_TRIALS, PRESETS};
use crossway_lab::replay::{Channels, MOST_CHANNELS, MOST_PERCENT};
use crossway_mech::registry;
use crossway_records::runs::{self, FindError};
use crossway_records::shell;
use crossway_records::sorting::CollectTree;

use crate::ui::Ui;

/// Placeholder for a run in help texts.
pub(crate) const RUN: &str = "RUN";

/// Returns the path of a run that the command line gives as a folder, a file of records, `latest`,
/// a run's name, or the folder of an answer, which means its latest run.
pub(crate) fn run(word: &Path) -> anyhow::Result<PathBuf> {
    Ok(runs::find_run(word)?)
}

/// Returns the run that the command line names or, if it names none, the latest one, which it states on standard error.
/// Every command that reads a run uses this rule.
pub(crate) fn run_or_latest(word: Option<&Path>, ui: &Ui) -> anyhow::Result<PathBuf> {
    match word {
        Some(word) => run(word),
        None => Ok(told(run(Path::new(runs::LATEST))?, ui)),
    }
}

/// Returns the latest run of the folder in which the run `a` is or, if that has none, of the usual one, and states it;
/// `None` if there is no run other than `a`.
///
/// # Errors
/// A file or folder is called `latest`.
pub(crate) fn latest_beside(a: &Path, ui: &Ui) -> Result<Option<PathBuf>, FindError> {
    let dir = a.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new(runs::OUT));
    let found = match runs::find(&dir.join(runs::LATEST)) {
        Err(FindError::NoRuns { .. }) => runs::find(Path::new(runs::LATEST)),
        found => found,
    };
    let latest = match found {
        Err(FindError::NoRuns { .. }) => None,
        found => Some(found?),
    };
    let other = latest.filter(|latest| latest.canonicalize().ok() != a.canonicalize().ok());
    Ok(other.map(|latest| told(latest, ui)))
}

fn told(latest: PathBuf, ui: &Ui) -> PathBuf {
    ui.note(&format!("no run is named, so the latest one is used: {}", latest.display()));
    latest
}

/// Checks that the command line names the hosts of a run or a record again, if it was measured
/// between hosts. The prefixes that reach them are commands, which are never taken from files: who
/// repeats a stranger's records must not run his commands.
pub(crate) fn hosts_again(
    of: &str,
    recorded: Option<&str>,
    given: Option<&str>,
    command: &str,
) -> anyhow::Result<()> {
    match (recorded, given) {
        (Some(recorded), None) => anyhow::bail!(
            "{of} was measured between hosts, and the commands that reach them are not taken from its files; if you trust \
             these, add them: {command} --hosts {}",
            shell::word(recorded)
        ),
        _ => Ok(()),
    }
}

/// Parses a size in bytes: `64`, `4KiB`, `1MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kib" | "k" => Some(1 << 10),
        "mib" | "m" => Some(1 << 20),
        "gib" | "g" => Some(1 << 30),
        _ => None,
    };
    factor.and_then(|factor: u64| number.parse::<u64>().ok()?.checked_mul(factor)).ok_or_else(
        || "write a number of bytes, alone or with KiB, MiB or GiB, e.g. 64 or 4KiB".to_owned(),
    )
}

/// Parses a number that is not negative, such as a rate, a number of seconds or a percentage.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| {
        "write a number of at least 0, such as 1000 or 0.5, without a unit".to_owned()
    })
}

/// Parses the speed of a replay as a factor; returns per cent of the recorded speed.
pub(crate) fn replay_speed(text: &str) -> Result<u32, String> {
    let percent = text.parse::<f64>().ok().map(|factor| (factor * 100.0).round());
    let percent = percent.filter(|p| (1.0..=f64::from(MOST_PERCENT)).contains(p));
    percent.map(|p| p as u32).ok_or_else(|| {
        format!("write a factor from 0.01 to {}, where 1 is the recorded speed", MOST_PERCENT / 100)
    })
}

/// Parses the channels of a recording that are replayed.
pub(crate) fn replay_channels(text: &str) -> Result<Channels, String> {
    if text == "all" {
        return Ok(Channels::All);
    }
    let numbers: Option<Vec<u32>> = text.split(',').map(|word| word.trim().parse().ok()).collect();
    let distinct = |numbers: &Vec<u32>| numbers.iter().collect_tree::<BTreeSet<&u32>>().len();
    let allowed = numbers.filter(|n| distinct(n) == n.len() && n.len() <= MOST_CHANNELS);
    allowed.map(Channels::These).ok_or_else(|| {
        format!("write 'all', or up to {MOST_CHANNELS} different numbers with commas between them")
    })
}

/// Parses a number of trials per case.
pub(crate) fn trials(text: &str) -> Result<u64, String> {
    let most = u64::from(MOST_TRIALS);
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("write a whole number from 1 to {most}"))
}

/// Patterns that select cases by `group/case`; without any, all cases are selected.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Filters {
    /// Select only cases whose GROUP/CASE contains PATTERN; * matches any text, ? one character, | separates
    /// alternatives (may be repeated)
    #[arg(short, long = "filter", value_name = "PATTERN", add = mechanisms())]
    pub(crate) filters: Vec<String>,
}

impl Filters {
    /// Returns whether a case is selected: it matches one of the patterns, or there are no patterns.
    pub(crate) fn let_through(&self, group: &str, case: &str) -> bool {
        let id = format!("{group}/{case}");
        self.filters.is_empty() || self.filters.iter().any(|f| pattern::matches_within(f, &id))
    }

    /// Returns the error for a filter that matches no case of the run.
    pub(crate) fn nothing_left(&self, run: &Path) -> anyhow::Error {
        anyhow::anyhow!(
            "no case of {} matches the filter {}; `crossway export {}` lists its cases",
            run.display(),
            self.filters.join(", "),
            shell::word(run)
        )
    }
}

/// Which program is the agent on the hosts of --hosts.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct AgentArgs {
    /// Path of crossway on the hosts of --hosts [default: `crossway` in the PATH of hosts reached by ssh, else the path
    /// of this program]
    #[arg(long, value_name = "PATH", conflicts_with = "push")]
    agent_program: Option<String>,
    /// Copy crossway to the hosts of --hosts first, in the file for each host's processor. Files for other processors
    /// than this machine's are looked for beside this program, or in FOLDER, as `make dist` names them
    #[arg(long, value_name = "FOLDER", require_equals = true)]
    push: Option<Option<PathBuf>>,
}

impl AgentArgs {
    /// Returns what the options ask for.
    pub(crate) fn program(self) -> AgentProgram {
        match (self.agent_program, self.push) {
            (Some(path), _) => AgentProgram::At(path),
            (None, Some(folder)) => AgentProgram::Pushed { folder },
            (None, None) => AgentProgram::Usual,
        }
    }
}

/// Completes the ids of mechanisms and of declared contenders.
pub(crate) fn mechanisms() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        registry::ALL
            .iter()
            .map(|entry| CompletionCandidate::new(entry.id).help(Some(entry.about.into())))
            .chain(declared())
            .collect()
    })
}

/// Completes the ids of declared contenders.
pub(crate) fn contenders() -> ArgValueCandidates {
    ArgValueCandidates::new(|| declared().collect())
}

fn declared() -> impl Iterator<Item = CompletionCandidate> {
    // A bad declaration must not disturb a shell; the command itself reports it.
    let declared = std::env::current_exe()
        .ok()
        .and_then(|program| Folders::of_user(&program).load(&[]).ok())
        .unwrap_or_default();
    declared
        .contenders
        .into_iter()
        .map(|contender| CompletionCandidate::new(contender.id).help(Some(contender.about.into())))
}

/// Completes the names of ready-made questions, and file names.
pub(crate) fn questions() -> ArgValueCompleter {
    names_and_files(READY)
}

/// Returns the help text of an argument that takes a plan.
pub(crate) fn plan_help() -> String {
    let presets: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    format!("A plan file, or a preset: {}", presets.join(", "))
}

/// Completes the names of presets, and file names.
pub(crate) fn plans() -> ArgValueCompleter {
    names_and_files(PRESETS)
}

/// Completes the given names of items that are built into the program, and file names.
fn names_and_files(known: &'static [(&str, &str)]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let typed = current.to_string_lossy();
        let mut offers: Vec<CompletionCandidate> = known
            .iter()
            .filter(|(name, _)| name.starts_with(&*typed))
            .map(|(name, _)| CompletionCandidate::new(*name))
            .collect();
        offers.extend(PathCompleter::file().complete(current));
        offers
    })
}

/// Completes `latest`, the names of runs, and their folders.
pub(crate) fn known_runs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let found = runs::list(Path::new(runs::OUT));
        let latest = (!found.is_empty()).then(|| CompletionCandidate::new(runs::LATEST));
        let names = found.iter().rev().filter_map(|run| run.name.clone());
        let folders = found.iter().rev().map(|run| run.dir.clone().into_os_string());
        latest
            .into_iter()
            .chain(names.map(CompletionCandidate::new))
            .chain(folders.map(CompletionCandidate::new))
            .collect()
    })
}

/// Completes the names of networks that are up.
pub(crate) fn networks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let networks = crossway_netlab::list().unwrap_or_default();
        networks.into_iter().map(|network| CompletionCandidate::new(network.name)).collect()
    })
}

/// Completes the hosts of networks that are up, as `network/host`.
pub(crate) fn hosts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let networks = crossway_netlab::list().unwrap_or_default();
        let hosts = networks.iter().flat_map(|network| {
            network.hosts.iter().map(|host| format!("{}/{}", network.name, host.name))
        });
        hosts.map(CompletionCandidate::new).collect()
    })
}

/// Completes the names of guests that are up.
pub(crate) fn guests() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let guests = crossway_netlab::list_guests().unwrap_or_default();
        guests.into_iter().map(|guest| CompletionCandidate::new(guest.name)).collect()
    })
}

/// Completes the kernels that guests can boot.
pub(crate) fn kernels() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let kernels = crossway_netlab::GuestKernel::all().into_iter();
        kernels.map(|kernel| CompletionCandidate::new(kernel.release)).collect()
    })
}

/// Parses a number with a unit of time, such as `60s`, `5min` or `500ms`, and returns the seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 =
        text[..digits].parse().map_err(|_| "expected a number with a unit, e.g. 60s".to_owned())?;
    match text[digits..].trim() {
        "ms" => Ok(number / 1e3),
        "s" => Ok(number),
        "min" => Ok(number * 60.0),
        "" => Err(format!("'{text}' has no unit; write {text}s or {text}min")),
        unit => Err(format!("unknown unit '{unit}'; write ms, s or min, e.g. 60s")),
    }
}

/// Parses a time from 50 ms to an hour, with its unit or as a number of seconds, and returns the seconds.
pub(crate) fn period(text: &str) -> Result<f64, String> {
    match text.parse().or_else(|_| seconds(text)) {
        Ok(s) if (0.05..=3_600.0).contains(&s) => Ok(s),
        _ => Err(
            "expected a time from 50ms to 60min, e.g. 2s; a number without a unit is in seconds"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        for (text, bytes_meant) in
            [("64", 64), ("4KiB", 4096), ("4 KiB", 4096), ("1MiB", 1 << 20), ("2k", 2048)]
        {
            assert_eq!(bytes(text), Ok(bytes_meant), "{text}");
        }
        for bad in ["", "KiB", "-1", "4kB", "1.5KiB", "99999999999GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn periods_have_a_unit_or_are_in_seconds() {
        for (text, expected) in
            [("2", 2.0), ("0.05", 0.05), ("10s", 10.0), ("500ms", 0.5), ("5min", 300.0)]
        {
            assert_eq!(period(text), Ok(expected), "{text}");
        }
        for bad in ["", "s", "0", "2h", "-1s", "61min", "NaN"] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
