//! Finds the run that a user names: by a path, by `latest`, or by the name given with `measure --name`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::records_io::RESULTS;
use crate::run_info::RunInfo;
use crate::sorting::SortSmall;

/// The folder in which `measure` creates runs by default.
pub const OUT: &str = "out";
/// The word that refers to the most recently started run.
pub const LATEST: &str = "latest";

/// The file with the question of an answer by `advise`, in the folder of the answer's runs.
pub const QUESTION: &str = "question.toml";

/// The reason why a word does not refer to a run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There are no runs in the folder.
    #[error("there is no run in {}: start one with `crossway measure`, or name a run's folder", out.display())]
    NoRuns {
        /// The folder of runs.
        out: PathBuf,
    },
    /// Something is called `latest`, so that the word could mean it as well as the last run.
    #[error("`latest` means the last run, {}, but there is also {}: name the run's folder, or rename {}", last.display(), path.display(), path.display())]
    Shadowed {
        /// The file or folder.
        path: PathBuf,
        /// The folder of the last run.
        last: PathBuf,
    },
    /// The word is neither a path nor a name.
    #[error("there is no run '{}': name a run's folder, its results.jsonl, `latest`{} (names are looked up in {}; for a run in another folder, write FOLDER/NAME)", word.display(), known(names), out.display())]
    Unknown {
        /// The word.
        word: PathBuf,
        /// The folder of runs in which the name was looked up.
        out: PathBuf,
        /// The names of the runs in it.
        names: Vec<String>,
    },
}

fn known(names: &[String]) -> String {
    match names {
        [] => ", or the name given with `measure --name`".to_owned(),
        names => format!(", or a name: {}", names.join(", ")),
    }
}

/// The folder and the name of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The run's folder.
    pub dir: PathBuf,
    /// The run's name, if it has one.
    pub name: Option<String>,
}

/// The folders of the runs in a folder, in alphabetical order: directly in it, and in the folders of answers.
pub fn folders(out: &Path) -> Vec<PathBuf> {
    let within = |folder: &Path| {
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
    };
    let is_run = |dir: &PathBuf| dir.join(RESULTS).is_file();
    let (mut found, others): (Vec<PathBuf>, Vec<PathBuf>) = within(out).partition(is_run);
    let answers = others.iter().filter(|dir| dir.join(QUESTION).is_file());
    found.extend(answers.flat_map(|answer| within(answer)).filter(is_run));
    found.sort_unstable();
    found
}

/// The runs in a folder, oldest first. Folders that are neither runs nor answers are ignored.
pub fn list(out: &Path) -> Vec<Found> {
    let mut found: Vec<(u64, Found)> = folders(out)
        .into_iter()
        .filter_map(|dir| {
            let info = RunInfo::read(&dir).ok()?;
            Some((info.started_unix_ms, Found { dir, name: info.name }))
        })
        .collect();
    found.sort_small_by(|a, b| (a.0, &a.1.dir).cmp(&(b.0, &b.1.dir)));
    found.into_iter().map(|(_, run)| run).collect()
}

/// Resolves a word to a run as [`find`] does; the folder of an answer stands for its latest run.
///
/// # Errors
/// See [`FindError`].
pub fn find_run(word: &Path) -> Result<PathBuf, FindError> {
    let found = find(word)?;
    let is_answer = found.join(QUESTION).is_file() && !found.join(RESULTS).is_file();
    let latest = if is_answer { list(&found).pop() } else { None };
    Ok(latest.map_or(found, |run| run.dir))
}

/// Resolves a word to a run: an existing path, or else `latest` or the name of a run in `out`. In a
/// word such as `other/latest`, the folder replaces `out`. If several runs have the name, the most
/// recent one is returned. `latest` is a path only if no run is there, or if it leads to the last
/// run.
///
/// # Errors
/// See [`FindError`].
pub fn find(word: &Path) -> Result<PathBuf, FindError> {
    let out = match word.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from(OUT),
    };
    if word.exists() {
        let path = word.to_owned();
        let is_latest = word.file_name() == Some(OsStr::new(LATEST));
        return match list(&out).pop().filter(|_| is_latest) {
            Some(Found { dir: last, .. }) if !same_folder(&last, word) => {
                Err(FindError::Shadowed { path, last })
            }
            _ => Ok(path),
        };
    }
    let unknown = |names| FindError::Unknown { word: word.to_owned(), out: out.clone(), names };
    let Some(name) = word.file_name().and_then(|name| name.to_str()) else {
        return Err(unknown(Vec::new()));
    };
    let runs = list(&out);
    let last = if name == LATEST {
        runs.last()
    } else {
        runs.iter().rev().find(|run| run.name.as_deref() == Some(name))
    };
    match last {
        Some(run) => Ok(run.dir.clone()),
        None if name == LATEST => Err(FindError::NoRuns { out }),
        None => {
            let mut names: Vec<String> = runs.into_iter().filter_map(|run| run.name).collect();
            names.sort_unstable();
            names.dedup();
            Err(unknown(names))
        }
    }
}

fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Checks that a run may have this name, and returns it. A name consists of letters, digits, `-`, `_` and `.`, does not
/// begin with `-` or `.`, and is not `latest`.
///
/// # Errors
/// Returns a message with what is wrong with the name, and what is allowed.
pub fn check_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with(['-', '.']) || !name.chars().all(plain) {
        return Err(
            "a name may contain only letters, digits, '-', '_' and '.', and must not begin with '-' or '.'; \
             valid examples are main and v1.2".to_owned()
        );
    }
    if name == LATEST {
        return Err(format!("'{LATEST}' always means the last run; choose another name"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(out: &Path, dir: &str, name: Option<&str>, started_unix_ms: u64) {
        let path = out.join(dir);
        fs::create_dir_all(&path).unwrap();
        let info = RunInfo {
            run: dir.to_owned(),
            name: name.map(str::to_owned),
            plan: "quick".to_owned(),
            filters: Vec::new(),
            hosts: None,
            started_unix_ms,
            trials: None,
        };
        fs::write(path.join("run.json"), serde_json::to_vec(&info).unwrap()).unwrap();
        fs::write(path.join(RESULTS), "").unwrap();
    }

    #[test]
    fn latest_and_names_mean_the_run_that_was_begun_last() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        assert_eq!(find(&out.join("latest")), Err(FindError::NoRuns { out: out.to_owned() }));
        add(out, "b", Some("main"), 1);
        add(out, "a", Some("main"), 2);
        add(out, "c", None, 3);
        fs::create_dir(out.join("no-run")).unwrap();
        assert_eq!(find(&out.join("latest")), Ok(out.join("c")));
        assert_eq!(find(&out.join("main")), Ok(out.join("a")));
        // A path that exists is taken as it is.
        assert_eq!(find(&out.join("b")), Ok(out.join("b")));
        let error = find(&out.join("mian")).unwrap_err().to_string();
        assert!(error.contains("a name: main"), "{error}");
        // The names of a run in another folder need that folder.
        let looked_up = format!("names are looked up in {};", out.display());
        assert!(error.contains(&looked_up) && error.contains("write FOLDER/NAME"), "{error}");
    }

    #[test]
    fn what_is_called_latest_is_not_taken_for_the_last_run() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        let word = out.join("latest");
        fs::create_dir(&word).unwrap();
        assert_eq!(find(&word), Ok(word.clone()), "there is no other meaning");
        add(out, "a", None, 1);
        let last = out.join("a");
        let shadowed = FindError::Shadowed { path: word.clone(), last: last.clone() };
        assert_eq!(find(&word), Err(shadowed));
        let error = find(&word).unwrap_err().to_string();
        assert!(error.contains(&format!("the last run, {}", last.display())), "{error}");
        assert!(error.ends_with(&format!("rename {}", word.display())), "{error}");
        fs::remove_dir(&word).unwrap();
        std::os::unix::fs::symlink("a", &word).unwrap();
        assert_eq!(find(&word), Ok(word.clone()), "a link to the last run");
        add(out, "b", None, 2);
        assert!(matches!(find(&word), Err(FindError::Shadowed { .. })), "an old link");
    }

    #[test]
    fn the_runs_of_an_answer_are_runs_of_the_folder_that_it_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        add(out, "a", Some("main"), 1);
        add(&out.join("answer"), "b", None, 2);
        add(&out.join("other"), "c", None, 3);
        fs::write(out.join("answer").join(QUESTION), "").unwrap();
        assert_eq!(folders(out), [out.join("a"), out.join("answer/b")]);
        assert_eq!(find(&out.join("latest")), Ok(out.join("answer/b")));
        assert_eq!(find(&out.join("answer/latest")), Ok(out.join("answer/b")));
        // The folder that `advise` names means its latest run; a folder that is no answer is taken
        // as it is.
        assert_eq!(find_run(&out.join("answer")), Ok(out.join("answer/b")));
        assert_eq!(find_run(&out.join("other")), Ok(out.join("other")));
        assert_eq!(find(&out.join("answer")), Ok(out.join("answer")));
    }

    #[test]
    fn a_name_is_a_plain_word() {
        assert_eq!(check_name("v1.2-rc_1"), Ok("v1.2-rc_1".to_owned()));
        for bad in ["", "latest", "a/b", "a b", "-x", ".."] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
