//! `crossway run`: what it prints for shells and containers, and programs into which no library can be loaded.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The library, which Cargo does not build for the tests of another package.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let build = ["build", "--quiet", "-p", "crossway-preload"];
    assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    assert_cmd::cargo::cargo_bin!("crossway").with_file_name("libcrossway_preload.so")
});

fn crossway(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    command.arg("run").arg(format!("--library={}", LIBRARY.display())).args(arguments);
    command
}

fn text(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_shell_that_evaluates_what_is_printed_runs_its_programs_so() {
    let lines = text(crossway(&["--shell", "--explain=/tmp/a b"]).output().unwrap());
    let script = "eval \"$1\"; echo $LD_PRELOAD; echo $CROSSWAY_RUN_EXPLAIN; grep -c crossway_preload /proc/self/maps";
    for earlier in ["", "libm.so.6"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "-", &lines]).env("LD_PRELOAD", earlier);
        let said = text(shell.output().unwrap());
        let mut said = said.lines();
        let colon = if earlier.is_empty() { "" } else { ":" };
        assert_eq!(said.next(), Some(&format!("{}{colon}{earlier}", LIBRARY.display())[..]));
        assert_eq!(said.next(), Some("/tmp/a b"));
        assert!(said.next().is_some_and(|count| count != "0"), "grep has loaded the library");
    }
    let options = text(crossway(&["--shell=docker", "--explain"]).output().unwrap());
    let inside = "/opt/crossway/libcrossway_preload.so";
    let wanted = format!(
        "--volume={}:{inside}:ro --env=LD_PRELOAD={inside} --env=CROSSWAY_RUN_EXPLAIN=-\n",
        LIBRARY.display()
    );
    assert_eq!(options, wanted);
    for wrong in [&["--shell", "--", "true"][..], &["--shell=docker", "--explain=file"], &[]] {
        assert_eq!(crossway(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
}
