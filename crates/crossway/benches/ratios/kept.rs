//! The ratios of earlier builds, by processor, so that `make bench-against` finds the build to compare with.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use crossway_lab::env::Environment;
use serde::Serialize;

use crate::comparison::Comparison;

/// A line of the file: where and when a ratio was measured, and the ratio.
#[derive(Serialize)]
struct Line<'a> {
    /// Git revision; ends in `-dirty` if files had been modified.
    commit: &'a str,
    /// Milliseconds since 1970 UTC.
    measured_unix_ms: u64,
    processor: Option<&'a str>,
    kernel: &'a str,
    cpus: usize,
    #[serde(flatten)]
    ratio: &'a Comparison,
}

/// Adds a line for each ratio to the file for this machine's processor in `folder`. Returns the file.
pub(crate) fn add(found: &[Comparison], folder: &Path) -> anyhow::Result<PathBuf> {
    let here = Environment::take()?;
    let path = folder.join(format!("{}.jsonl", here.processor.kind()));
    let mut text = Vec::new();
    for ratio in found {
        let line = Line {
            commit: &here.build.revision,
            measured_unix_ms: here.taken_unix_ms,
            processor: here.processor.model_name.as_deref(),
            kernel: &here.kernel.release,
            cpus: here.topology.cpus.len(),
            ratio,
        };
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    std::fs::create_dir_all(folder)
        .and_then(|()| OpenOptions::new().create(true).append(true).open(&path))
        .and_then(|mut file| file.write_all(&text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
