//! Profiles with the real perf, without perf, and with a perf that fails.

mod browser;
mod place;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use browser::Browser;
use crossway_lab::profile::{Part, Profile};
use place::{Place, await_that};
use serde_json::json;

fn profile(place: &Place, words: &[&str]) -> Output {
    place.command(&[&["profile", "--measure-ms", "300"], words].concat()).output().unwrap()
}

fn profiles(place: &Place, words: &[&str]) -> Vec<Profile> {
    // Unpinned, so that one CPU suffices.
    let output = profile(place, &[words, &["--json", "--placement", "unpinned"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns an output as one line, independent of its line breaks.
fn words_of(written: &[u8]) -> String {
    String::from_utf8_lossy(written).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether samples were taken; prints why if not.
fn sampled(profile: &Profile) -> bool {
    if let Some(why) = &profile.sampling.missing {
        eprintln!("SKIP: {why}; {:?}", profile.sampling.remedy);
    }
    profile.sampling.missing.is_none()
}

#[test]
fn a_pipes_time_is_split_and_drawn() {
    let place = Place::new("");
    let all = profiles(&place, &["pipe", "--size", "64KiB"]);
    let [pipe] = &all[..] else { panic!("{} profiles", all.len()) };
    assert_eq!(pipe.mechanism, "pipe");
    if !sampled(pipe) {
        return;
    }
    for role in &pipe.roles {
        assert!(role.samples > 0, "{role:?}");
        assert_eq!(role.parts.values().sum::<u64>(), role.samples);
        assert_eq!(role.stacks.iter().map(|(_, n)| n).sum::<u64>(), role.samples);
        assert!(role.stacks.iter().all(|(stack, _)| stack.starts_with(&role.name)));
        assert!(role.cpu_ns > 0 && role.wall_ns > 0);
    }
    if pipe.sampling.kernel_names {
        let copied: u64 = pipe.roles.iter().filter_map(|r| r.parts.get(&Part::Copy)).sum();
        assert!(copied > 0, "64 KiB messages are copied: {pipe:?}");
        let kernel =
            |stack: &str| stack.contains("pipe_write_[k]") || stack.contains("pipe_read_[k]");
        assert!(pipe.roles.iter().any(|r| r.stacks.iter().any(|(s, _)| kernel(s))), "{pipe:?}");
    }
    let names: Vec<_> = pipe.roles.iter().map(|role| role.name.as_str()).collect();
    assert_eq!(names, ["sender", "receiver"]);
    let Some(mut browser) = Browser::start("a_pipes_time_is_split_and_drawn") else { return };
    let page = browser.open(&place.dir.path().join("profile.html"), 1280, "light");
    let boxes = browser.eval(&page, "document.querySelectorAll('svg.flame rect').length");
    assert!(boxes.as_i64() > Some(4), "{boxes}");
    let overflow = "document.documentElement.scrollWidth - innerWidth";
    assert!(browser.eval(&page, overflow).as_i64() <= Some(0), "no sideways scrolling");
    assert_eq!(browser.requests_outside(), Vec::<String>::new());
    let heads = browser.eval(&page, "[...document.querySelectorAll('h2')].map((h) => h.innerText)");
    assert_eq!(heads[0], json!("CPU time per message by part"));
}

#[test]
fn two_cases_stand_side_by_side() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return eprintln!(
            "SKIP: a mechanism that spins needs two CPUs; widen the affinity (taskset)"
        );
    }
    let place = Place::new("");
    let words = ["pipe", "shm-spin", "--workload", "ping-pong", "--size", "64"];
    let all = profiles(&place, &words);
    let [pipe, spin] = &all[..] else { panic!("{} profiles", all.len()) };
    if !sampled(pipe) || !sampled(spin) {
        return;
    }
    let spinning = |of: &Profile| of.part_ns_per_message(Part::Spinning).unwrap();
    assert!(spinning(spin) > 0.0 && spin.sampling.lines, "{spin:?}");
    assert!(pipe.part_ns_per_message(Part::SystemCall).unwrap() > 0.0, "{pipe:?}");
    let shown = profile(&place, &words);
    let text = words_of(&shown.stdout);
    assert!(text.contains("Difference") && text.contains("times as much"), "{text}");
    let page = fs::read_to_string(place.dir.path().join("profile.html")).unwrap();
    assert_eq!(page.matches("<svg class=\"flame\"").count(), 2);
}

#[test]
fn without_perf_the_kernels_own_counts_are_shown_and_it_says_so() {
    let place = Place::new("");
    let bin = place.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let run = |json: bool| {
        let mut command =
            place.command(&["profile", "pipe", "--measure-ms", "100", "--placement", "unpinned"]);
        command.args(json.then_some("--json")).env("PATH", &bin).output().unwrap()
    };
    let shown = run(false);
    let text = words_of(&shown.stdout);
    assert!(shown.status.success(), "{shown:?}");
    assert!(text.contains("perf cannot be started") && text.contains("linux-perf"), "{text}");
    assert!(text.contains("What the kernel counted"), "{text}");
    assert!(!text.contains("by part"), "{text}");

    let refused = bin.join("perf");
    fs::write(
        &refused,
        "#!/bin/sh\necho 'Access to performance monitoring is limited.' >&2\nexit 255\n",
    )
    .unwrap();
    fs::set_permissions(&refused, fs::Permissions::from_mode(0o755)).unwrap();
    let answer: Vec<Profile> = serde_json::from_slice(&run(true).stdout).unwrap();
    let why = answer[0].sampling.missing.clone().unwrap();
    assert!(why.contains("exit status: 255") && why.contains("is limited"), "{why}");
    assert!(answer[0].roles.iter().all(|role| role.samples == 0 && role.cpu_ns > 0));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn bad_requests_are_refused_in_one_line() {
    let place = Place::new("");
    for (words, said) in [
        (&["nothing"][..], "there is no mechanism or contender 'nothing'"),
        (&["pipe", "pipe", "pipe"], "Usage: crossway profile"),
        (&["latest:3"], "there is no run in out"),
        (&["pipe", "--placement", "moon"], "moon"),
        (&["pipe", "--size", "big"], "write a number of bytes"),
        (&["udp", "--size", "1MiB"], "udp"),
        (&["pipe", "--out", "no/such/folder/p.html"], "name another file with --out"),
    ] {
        let output = profile(&place, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(said), "{words:?}: {text}");
    }
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_profile_leaves_no_perf_behind() {
    let place = Place::new("");
    let mut child = place
        .command(&["profile", "pipe", "--measure-ms", "600000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let rt = place.dir.path().join("rt").display().to_string();
    let of_place = || {
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        entries
            .filter(|entry| {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.starts_with("perf\0record") && line.contains(&rt)
            })
            .count()
    };
    let mut ended = None;
    await_that("perf", || {
        ended = child.try_wait().unwrap();
        of_place() > 0 || ended.is_some()
    });
    if ended.is_some() {
        eprintln!(
            "SKIP: perf is missing or lacks the right to sample; sudo apt-get install linux-perf, or run as root"
        );
        return;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    await_that("the end of perf", || of_place() == 0 && place.leftovers().is_empty());
}
