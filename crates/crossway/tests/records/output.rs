//! Where the output goes: to files of any kind, and to a standard output that is full.

use std::fs;

use assert_cmd::Command;

use crate::{path, run, trials, write_run};

#[test]
fn an_output_that_is_no_file_is_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let dir = tempfile::tempdir().expect("a folder");
    let a = write_run(dir.path(), "a", &trials("pipe", 1.0), None);
    let (file, link, fifo) =
        (dir.path().join("file.csv"), dir.path().join("link.csv"), dir.path().join("fifo.csv"));
    fs::write(&file, "before").expect("writable");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    assert_eq!(run(&["export", path(&a), "-o", path(&link)]).2, 0);
    assert!(link.is_symlink() && fs::read_to_string(&file).expect("text").starts_with("schema"));
    let made = Command::new("mkfifo").arg(&fifo).output().expect("mkfifo runs");
    assert!(made.status.success());
    for command in ["export", "report"] {
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo).expect("read to its end").len()
        });
        assert_eq!(run(&[command, path(&a), "-o", path(&fifo)]).2, 0, "{command}");
        assert!(reader.join().expect("no panic") > 100, "{command}");
        assert!(fs::metadata(&fifo).expect("there").file_type().is_fifo(), "{command}");
    }
    // A failed write leaves the existing file unchanged and no other file next to it.
    let before = fs::read_dir(dir.path()).expect("readable").count();
    for args in [
        vec!["export", path(&a), "-o", "/dev/full", "--format", "csv"],
        vec!["export", path(&a), "-o", path(dir.path()), "--format", "csv"],
        vec!["report", path(&a), "-o", "/dev/full"],
        vec!["report", path(&a), "-o", "/nonexistent/x"],
        vec!["limits", "--save", "/nonexistent/x"],
    ] {
        let (_, err, code) = run(&args);
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(
            err.contains("cannot write ") && err.contains("; name another file with -"),
            "{err}"
        );
        assert!(err.matches("os error").count() == 1, "told once: {err}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), before);
}

#[test]
fn a_full_standard_output_is_one_error_of_every_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = write_run(dir.path(), "a", &trials("pipe", 1.0), None);
    for args in [
        vec!["completions", "bash"],
        vec!["measure", "--list"],
        vec!["list", "--json"],
        vec!["rank", path(&a), "--json"],
        vec!["rank", path(&a)],
        vec!["export", path(&a)],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let out = std::process::Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
            .args(&args)
            .stdout(full)
            .output()
            .expect("it runs");
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
        assert!(
            err.contains("cannot write to standard output: ") && err.contains("; free some space"),
            "{args:?}: {err}"
        );
        assert_eq!(err.matches("os error").count(), 1, "{args:?}: {err}");
    }
}
