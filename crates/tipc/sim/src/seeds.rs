//! Runs a simulation with each of many seeds. If a run fails, its seed and the commit are reported, and its frames are
//! written to a capture file.

use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;

use crate::capture;

/// Runs `history` with every seed in `usual` and returns the results. If the environment variable named `variable`
/// contains a range FIRST..LAST, the seeds from FIRST to LAST - 1 are used instead.
///
/// # Panics
/// If a run fails. The run is then repeated with a capture file; the seed, the commit, the path of that file and how to
/// repeat the run are printed to standard error.
pub fn each<R>(variable: &str, usual: Range<u64>, mut history: impl FnMut(u64) -> R) -> Vec<R> {
    let seeds = match std::env::var(variable) {
        Ok(text) => {
            range(&text).unwrap_or_else(|| panic!("{variable}={text:?}: write FIRST..LAST"))
        }
        Err(_) => usual,
    };
    let mut results = Vec::new();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| history(seed))) {
            Ok(result) => results.push(result),
            Err(panic) => {
                let frames = again(variable, seed, &mut history);
                eprintln!(
                    "SEED={seed} failed at commit {}: {frames}; to repeat it, set {variable}={seed}..{}",
                    commit(),
                    seed + 1
                );
                resume_unwind(panic);
            }
        }
    }
    results
}

fn range(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once("..")?;
    Some(first.parse().ok()?..last.parse().ok()?)
}

/// Path of a seed's capture file.
fn path(variable: &str, seed: u64) -> PathBuf {
    let name = variable.to_lowercase().replace('_', "-");
    std::env::temp_dir().join(format!("crossway-{name}-{seed}.pcap"))
}

/// Repeats a failed run, with its frames written to a capture file. Returns a message that contains the path of the
/// file, or the error.
fn again<R>(variable: &str, seed: u64, history: &mut impl FnMut(u64) -> R) -> String {
    let path = path(variable, seed);
    if let Err(error) = capture::begin(&path) {
        return format!("its frames could not be written to {}: {error}", path.display());
    }
    let repeated = catch_unwind(AssertUnwindSafe(|| drop(history(seed)))).is_err();
    let unlike = if repeated {
        ""
    } else {
        " (these are the frames of a repetition that did not fail, so the run is not deterministic)"
    };
    match capture::end() {
        Ok(()) => format!("the frames of the run are in {}{unlike}", path.display()),
        Err(error) => format!("its frames could not be written to {}: {error}", path.display()),
    }
}

fn commit() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match git {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_owned(),
        _ => "unknown (no git here)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::{HostId, Network};

    #[test]
    fn a_history_that_fails_leaves_all_its_frames() {
        let mut frames = Vec::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            each("CAPTURED_SEEDS", 0..5, |seed| {
                let mut net = Network::new(seed, 2, 1500, Duration::from_millis(500));
                (0..2).for_each(|host| net.start(HostId(host), false));
                net.run(Duration::from_millis(300));
                frames.push((seed, net.frames));
                assert_ne!(seed, 2, "this one is meant to fail");
            })
        }));
        assert!(outcome.is_err());
        let [.., first, again] = frames[..] else { panic!("{frames:?}") };
        assert_eq!((first.0, first), (2, again), "the same history twice");
        let path = path("CAPTURED_SEEDS", 2);
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), 0xa1b2_3c4d);
        let (mut at, mut count) = (24, 0);
        while at < file.len() {
            assert_eq!(file[at + 28..at + 30], [0x88, 0xca]);
            assert_eq!(word(at + 8), word(at + 12));
            at += 16 + word(at + 8) as usize;
            count += 1;
        }
        assert_eq!((at, count), (file.len(), again.1));
        assert!(!capture::is_open(), "later networks are not captured");
    }

    #[test]
    fn ranges_are_understood() {
        assert_eq!(range("3..7"), Some(3..7));
        assert_eq!((range("3"), range("a..b")), (None, None));
    }
}
