//! Generates the questions of the scenarios.

use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64Mcg;

const SIZES: &[&str] = &["16", "64", "256", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB"];

/// The question of a scenario; each `attempt` gives another question.
pub(super) fn drawn(scenario: u64, attempt: u64) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(scenario * 1_000 + attempt);
    let mut one = |of: &[&str]| (*of.choose(&mut random).expect("not empty")).to_owned();
    let pattern = one(&[
        "request-reply",
        "request-reply",
        "request-reply",
        "request-reply at a rate",
        "stream",
        "stream",
        "stream at a rate",
        "connect-per-exchange",
        "fan-in",
        "fan-out",
    ]);
    let (word, paced) = match pattern.strip_suffix(" at a rate") {
        Some(word) => (word, true),
        None => (pattern.as_str(), false),
    };
    let placement = one(&["other-core", "other-core", "same-core"]);
    let mut text = format!("pattern = \"{word}\"\nplacement = \"{placement}\"\n");
    let size = one(SIZES);
    text += &match one(&["one", "one", "one", "one", "mix"]).as_str() {
        "mix" => format!(
            "size_bytes = [{{ bytes = \"{size}\", share = 0.8 }}, {{ bytes = \"{}\", share = 0.2 }}]\n",
            one(SIZES)
        ),
        _ => format!("size_bytes = \"{size}\"\n"),
    };
    if word == "request-reply" && one(&["same", "same", "other"]) == "other" {
        text += &format!("reply_bytes = \"{}\"\n", one(&["64", "1 KiB", "16 KiB"]));
    }
    if paced {
        text += &format!("rate_per_s = {}\n", one(&["500", "1000", "2000"]));
    }
    if one(&["idle", "idle", "idle", "idle", "idle", "idle", "loaded"]) == "loaded" {
        text += "load = { cpu = 1 }\n";
    }
    // With a latency goal, CPU time is minimised among the mechanisms that meet it.
    let timed = paced || !matches!(word, "stream" | "fan-in" | "fan-out");
    match one(&["none", "none", "none", "cpu", "goal"]).as_str() {
        "cpu" => text += "optimise = \"cpu\"\n",
        "goal" if timed => text += &format!("[goal]\np99_us = {}\n", one(&["500", "5000"])),
        _ => {}
    }
    text += "[properties]\norder = \"require\"\ndelivery = \"require\"\n";
    text += &one(&[
        "",
        "boundaries = \"require\"\n",
        "pollable = \"require\"\n",
        "crosses-hosts = \"require\"\n",
        "zero-copy = \"require\"\n",
        "zero-copy = \"prohibit\"\n",
        "crosses-hosts = \"prohibit\"\n",
        "boundaries = \"prohibit\"\n",
        "spinning = \"no-preference\"\nzero-copy = \"require\"\n",
        "boundaries = \"require\"\npollable = \"require\"\n",
    ]);
    text
}
