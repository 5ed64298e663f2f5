//! What the commands say about the reference run. A change of judging or wording shows here as a difference, which its
//! author then accepts: `INSTA_UPDATE=always cargo test -p crossway --test command_line reference`.

use super::*;

const RUN: &str = "records/2026-11-26-epyc-2cpu";

fn said(args: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    text(&crossway(&root, args))
}

#[test]
fn rankings_and_comparisons_of_the_reference_run_stay_as_they_are() {
    insta::assert_snapshot!("rank", said(&["rank", RUN]));
    let parts = ["compare", RUN, "--a", "mechanism=pipe", "--b", "mechanism=linx-shm"];
    insta::assert_snapshot!("compare", said(&parts));
}

#[test]
fn the_summary_of_the_reference_run_stays_as_it_is() {
    insta::assert_snapshot!("markdown", said(&["report", RUN, "--markdown"]));
}

#[test]
fn the_export_of_the_reference_run_stays_as_it_is() {
    let table = said(&["export", RUN]);
    let lines: Vec<&str> = table.lines().collect();
    let chosen: Vec<&str> = [0, 1, lines.len() / 2, lines.len() - 1].map(|at| lines[at]).into();
    insta::assert_snapshot!("export", format!("{} lines\n{}", lines.len(), chosen.join("\n")));
}
