//! `crossway advise` from the command line.

mod apart;
#[path = "../place/mod.rs"]
mod place;

use assert_cmd::Command;

fn advise(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::cargo_bin("crossway").expect("the program");
    let output = command.arg("advise").args(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn ready_questions_are_listed_and_printed() {
    let (code, out, _) = advise(&["--ready"]);
    assert_eq!(code, Some(0));
    for name in ["sensor", "camera", "two-hosts"] {
        assert!(out.contains(name), "{out}");
    }
    let (code, out, _) = advise(&["camera", "--print"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("size_bytes = \"2 MiB\""), "{out}");
    // Options change the question that is printed, and what is printed is a question.
    let (code, changed, _) = advise(&["camera", "--print", "--size", "999", "--p99-us", "7000"]);
    assert_eq!(code, Some(0));
    assert!(
        changed.contains("size_bytes = \"999\"") && !changed.contains("\"2 MiB\""),
        "{changed}"
    );
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, &changed).expect("written");
    let (code, out, err) = advise(&[file.to_str().expect("a name"), "--print"]);
    assert_eq!((code, &out), (Some(0), &changed), "{err}");
    assert_eq!(advise(&["camera", "--print", "--size", "x"]).0, Some(2));
    // Options alone are a question, too.
    let (code, alone, err) = advise(&["--size", "64", "--require", "pollable", "--print"]);
    assert_eq!(code, Some(0), "{err}");
    std::fs::write(&file, &alone).expect("written");
    let (code, out, err) = advise(&[file.to_str().expect("a name"), "--print"]);
    assert_eq!((code, &out), (Some(0), &alone), "{err}");
}

#[test]
fn unusable_questions_are_one_clear_error() {
    for (arguments, wanted) in [
        (&["nowhere.toml"][..], "'nowhere.toml' is neither a ready-made question (sensor"),
        (&[], "no question given: name a question file"),
        (
            &["--size", "64", "--require", "speed"],
            "--require: unknown property 'speed'; allowed: order",
        ),
        (
            &["--size", "64", "--require", "order", "--avoid", "order"],
            "--require order contradicts --avoid order",
        ),
        (
            &["--size", "64", "--require", "crash-detection=100"],
            "--require crash-detection=100: '100' has no unit",
        ),
        (&["--size", "64 K"], "size_bytes: '64 K' is not a size"),
        (&["--size", "64", "--time", "5"], "'5' has no unit; write 5s or 5min"),
        (
            // Unpinned, so that there are candidates also where only one CPU may be used.
            &["--size", "64", "--placement", "unpinned", "--time", "1s", "--records", "none"],
            "--time 1s is too short",
        ),
        (
            &["--size", "64", "--no-measure", "--records", "/nonexistent"],
            "the folder /nonexistent does not exist",
        ),
    ] {
        let (code, out, err) = advise(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {out}{err}");
        assert!(err.contains(wanted), "{arguments:?}: {err}");
    }
}

#[test]
fn without_records_and_measuring_there_is_no_choice_and_exit_status_1() {
    let dir = tempfile::tempdir().expect("a folder");
    let records = dir.path().display().to_string();
    let asked = ["--size", "64", "--placement", "unpinned", "--no-measure", "--records", &records];
    for more in [&[][..], &["--require", "crash-detection=100ms"]] {
        let (code, out, err) = advise(&[&asked, more].concat());
        assert_eq!(code, Some(1), "{out}{err}");
        assert!(out.contains("no record of this machine answers the question"), "{out}");
    }
    // Also if nobody reads the question, which is printed before the answer is known.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut unread = std::process::Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    let status = unread.arg("advise").args(asked).stdout(writer).status().expect("it runs");
    assert_eq!(status.code(), Some(1));
}

/// Not after measuring for minutes, whose answer would be lost.
#[test]
fn files_that_cannot_be_written_are_refused_before_anything_is_measured() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("README.md"), "mine").expect("written");
    let asked = ["--size", "64", "--placement", "unpinned", "--time", "60s", "--records"];
    for (more, wanted) in [
        (["--html", &at("none/page.html")], "name another file with --html"),
        (["--code-dir", &at("README.md/x")], "name another folder with --code-dir"),
        (["--code-dir", dir.path().to_str().expect("a name")], "already exists"),
    ] {
        let (code, out, err) = advise(&[&asked[..], &[&at("out"), "--code", "c"], &more].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(wanted), "{err}");
        assert!(!dir.path().join("out").exists(), "measured: {more:?}");
    }
}

#[test]
fn a_question_is_measured_answered_drawn_and_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let (records, page) = (dir.path().join("out"), dir.path().join("answer.html"));
    let (records, page) = (records.display().to_string(), page.display().to_string());
    // Few candidates, so that there is time for enough trials of each even on a loaded machine.
    let asked = ["--size", "4KiB", "--reply", "64", "--require", "in-place"];
    assert_eq!(advise(&asked).0, Some(2));
    let asked = ["--size", "4KiB", "--reply", "64", "--placement", "unpinned"];
    let asked = [&asked[..], &["--require", "zero-copy,pollable", "--records", &records]].concat();
    let measured = ["--time", "8s", "--html", &page, "--json"];
    let (code, out, err) = advise(&[&asked[..], &measured].concat());
    assert!(matches!(code, Some(0 | 1)), "{out}{err}");
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let compared = answer["compared"].as_array().expect("candidates");
    assert!(!compared.is_empty(), "{out}");
    // Whether the trials distinguish the candidates depends on the machine; but there must be either a choice or a
    // reason.
    assert_eq!(answer["choice"].is_null(), !answer["abstained"].is_null(), "{out}");
    assert_eq!(code, Some(i32::from(answer["choice"].is_null())));
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("<h2>Candidates</h2>") && !html.contains("http://"), "{html}");
    // The same question again is answered from the records.
    let (_, out, err) = advise(&[&asked[..], &["--no-measure", "--explain"]].concat());
    assert!(out.contains("Compared by round trip p50"), "{out}{err}");
}

/// The folder of the records that belong to the repository. In their trials, each end had a core of its own.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../records");

/// Returns whether this process may use two cores, which the placement of [`RECORDS`] needs; prints a message if it may
/// not. With one core, all candidates would be ruled out.
fn has_two_cores(test: &str) -> bool {
    let topology = crossway_sys::topology::Topology::read().expect("the topology of the CPUs");
    let has = crossway_lab::placement::resolve(
        crossway_records::inputs::Placement::OtherCore,
        crossway_mech::Wait::Block,
        true,
        &topology,
    )
    .is_ok();
    if !has {
        eprintln!("SKIP {test}: needs two cores; allow this process a second one");
    }
    has
}

#[test]
fn a_language_that_no_contender_declares_is_noted() {
    let asked = ["--size", "64", "--no-measure", "--records", RECORDS, "--require"];
    for (language, noted) in [("language=zzz", true), ("language=rust", false)] {
        let (_, out, err) = advise(&[&asked[..], &[language]].concat());
        let one_line = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(one_line.contains("names the language zzz"), noted, "{out}{err}");
    }
}

#[test]
fn ends_that_hardly_slept_are_named_in_the_answer_and_its_page() {
    if !has_two_cores("ends_that_hardly_slept_are_named_in_the_answer_and_its_page") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let page = dir.path().join("answer.html").display().to_string();
    let asked = ["--size", "64", "--no-measure", "--records", RECORDS, "--html", &page];
    let (code, out, err) = advise(&asked);
    assert_eq!(code, Some(0), "{out}{err}");
    let html = std::fs::read_to_string(&page).expect("a page");
    for text in [&out, &html] {
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(one_line.contains("slept in fewer than one of ten waits"), "{text}");
    }
    // Only the commands to repeat the runs are not wrapped.
    let too_long = |line: &&str| line.chars().count() > 80 && !line.contains("crossway measure ");
    assert_eq!(out.lines().find(too_long), None, "{out}");
    let mut prohibiting = asked.to_vec();
    prohibiting.extend(["--prohibit", "spinning"]);
    let (_, out, err) = advise(&prohibiting);
    assert!(!out.contains("Choose sysv-shm") && !out.contains("Choose posix-shm"), "{out}{err}");
}

#[test]
fn the_answer_fits_on_one_screen_and_explains_itself_on_request() {
    if !has_two_cores("the_answer_fits_on_one_screen_and_explains_itself_on_request") {
        return;
    }
    for asked in [
        &["--size", "64"][..],
        &["--size", "64", "--require", "pollable", "--p99-us", "500"],
        &["--size", "64", "--pattern", "stream"],
        &["--size", "64", "--p50-us", "0.01"],
    ] {
        let from = ["--no-measure", "--records", RECORDS];
        let (code, out, err) = advise(&[asked, &from].concat());
        assert!(matches!(code, Some(0 | 1)), "{out}{err}");
        assert!(out.lines().count() <= 24, "{} lines: {out}", out.lines().count());
        let longest = out.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|columns| columns <= 80), "{out}");
        assert!(!out.contains("To reproduce the figures"), "{out}");
        let (explained, full, _) = advise(&[asked, &from, &["--explain"]].concat());
        assert_eq!(explained, code);
        for section in ["Compared by", "Ruled out:", "Notes:", "To reproduce the figures"] {
            assert!(full.contains(section), "{section}: {full}");
        }
        let heading = |text: &str| text.lines().nth(3).map(str::to_owned);
        assert_eq!(heading(&out), heading(&full));
    }
}

#[test]
fn what_is_not_measured_is_refused_with_what_to_ask_instead() {
    for (more, wanted) in [
        (
            &["--clients", "8", "--pattern", "stream"][..],
            "only pattern = \"request-reply\" has clients",
        ),
        (&["--in-flight", "1000"], "in_flight"),
        (&["--languages", "python,c", "--require", "language=c"], "state the same property"),
    ] {
        let (code, _, err) = advise(&[&["--size", "2MB", "--print"], more].concat());
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(wanted), "{err}");
    }
    let many = ["--size", "64", "--clients", "8", "--in-flight", "16", "--print"];
    let (code, out, _) = advise(&many);
    assert!(code == Some(0) && out.contains("clients = 8\nin_flight = 16"), "{out}");
    let (code, out, err) = advise(&["--size", "2MB", "--languages", "python,c", "--print"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("all_of = [\"python\", \"c\"]"), "{out}");
}

#[test]
fn starter_programs_are_for_the_best_candidate_that_has_them_and_the_answer_stays_a_success() {
    if !has_two_cores(
        "starter_programs_are_for_the_best_candidate_that_has_them_and_the_answer_stays_a_success",
    ) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let code_dir = dir.path().join("code").display().to_string();
    let asked = ["--size", "64", "--no-measure", "--records", RECORDS, "--code", "c"];
    let mut with_folder = asked.to_vec();
    with_folder.extend(["--code-dir", &code_dir]);
    let (code, out, err) = advise(&with_folder);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("have no starter programs in c (") && err.contains("sysv-shm"), "{err}");
    assert!(dir.path().join("code/server.c").is_file(), "{out}");
    // What no candidate has is refused before anything is measured.
    let refused = |language: &str, more: &[&str]| {
        let (code, out, err) = advise(&[&asked[..5], &["--code", language], more].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        err
    };
    let err = refused("python", &["--require", "zero-copy"]);
    assert!(
        err.contains("there are no starter programs for") && err.contains("exist for"),
        "{err}"
    );
}

#[test]
fn the_page_and_the_table_agree_with_the_heading() {
    if !has_two_cores("the_page_and_the_table_agree_with_the_heading") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let page = dir.path().join("answer.html").display().to_string();
    let asked = ["--pattern", "stream", "--size", "64", "--memory", "64KiB"];
    let from = ["--no-measure", "--explain", "--records", RECORDS, "--html", &page];
    let (code, out, err) = advise(&[&asked[..], &from].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    let heading = out.lines().find(|line| line.starts_with("Choose ")).expect("a heading");
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains(&format!("<h1>{}</h1>", heading.trim_end_matches('.'))), "{heading}");
    // The system does not tell the size of the choice's buffers.
    assert!(heading.contains("do not decide whether it meets every goal"), "{heading}");
    assert!(!text.contains("meet every requirement") && !text.contains("meets every requirement"));
    let (_, table) = out.split_once("Compared by").expect("a table");
    let has = |verdict: &str| table.lines().any(|line| line.trim_end().ends_with(verdict));
    assert!(has("chosen"), "{out}");
}

#[test]
fn the_heading_names_a_requirement_that_nothing_here_answers() {
    if !has_two_cores("the_heading_names_a_requirement_that_nothing_here_answers") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let page = dir.path().join("answer.html").display().to_string();
    let asked = ["--size", "64", "--require", "crash-survival,crash-detection=100ms"];
    let from = ["--no-measure", "--records", RECORDS, "--html", &page];
    let (code, out, err) = advise(&[&asked[..], &from].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    let html = std::fs::read_to_string(&page).expect("a page");
    let (_, page_heading) = html.split_once("<h1>").expect("a heading");
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [one_line(&out), one_line(page_heading)] {
        let (_, heading) = text.split_once("Choose ").expect("a choice");
        let open = "; no evidence here shows whether it has the required property crash-survival \
                    and the required property crash-detection=100ms";
        assert!(heading.find(open).is_some_and(|at| at < 60), "{heading}");
    }
    assert!(!html.contains("every requirement"), "{html}");
    assert!(one_line(&out).contains("`--explain` adds how to find out what is unknown"), "{out}");
    let (_, out, _) = advise(&[&asked[..], &from, &["--explain"]].concat());
    let notes = one_line(&out);
    assert_eq!(notes.matches("`crossway faults --save ").count(), 1, "{out}");
    assert_eq!(notes.matches("crossway faults").count(), 1, "{out}");
}
