//! `crossway advise` from the command line.

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
}

#[test]
fn unusable_questions_are_one_clear_error() {
    for (arguments, wanted) in [
        (
            &["nowhere.toml"][..],
            "there is no question 'nowhere.toml': give a readable file, or one of: sensor",
        ),
        (&[], "no question: name a file"),
        (
            &["--size", "64", "--require", "speed"],
            "--require: unknown property 'speed'; allowed: order",
        ),
        (
            &["--size", "64", "--require", "order", "--avoid", "order"],
            "--require order contradicts --avoid order",
        ),
        (&["--size", "64 KB"], "size_bytes: '64 KB' is not a size"),
        (&["--size", "64", "--time", "5"], "unknown unit ''"),
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
    let (code, out, err) =
        advise(&["--size", "64", "--placement", "unpinned", "--no-measure", "--records", &records]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("no record of this machine answers the question"), "{out}");
}

#[test]
fn a_question_is_measured_answered_drawn_and_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let (records, page) = (dir.path().join("out"), dir.path().join("answer.html"));
    let (records, page) = (records.display().to_string(), page.display().to_string());
    // Few candidates, so that there is time for enough trials of each even on a loaded machine.
    let asked = ["--size", "4KiB", "--reply", "64", "--require", "in-place"];
    assert_eq!(advise(&asked).0, Some(2));
    let asked = [
        "--size",
        "4KiB",
        "--reply",
        "64",
        "--placement",
        "unpinned",
        "--require",
        "zero-copy,pollable",
        "--time",
        "3s",
        "--records",
        &records,
        "--html",
        &page,
        "--json",
    ];
    let (code, out, err) = advise(&asked);
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
    let again = [
        "--size",
        "4KiB",
        "--reply",
        "64",
        "--placement",
        "unpinned",
        "--require",
        "zero-copy,pollable",
        "--no-measure",
        "--records",
        &records,
    ];
    let (_, out, err) = advise(&again);
    assert!(out.contains("Compared by round trip p50"), "{out}{err}");
}
