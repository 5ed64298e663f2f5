//! `crossway run`: what it prints for shells and containers, and programs into which no library can be loaded.

mod built;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(built::preload);

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

#[test]
fn what_the_user_wants_of_the_waits_reaches_the_library() {
    let wishes = ["--cpu-budget", "12.5", "--only", "unix,tcp"];
    let said = |more: &[&str]| text(crossway(&[&wishes[..], more].concat()).output().unwrap());
    let script = "echo $CROSSWAY_RUN_CPU_BUDGET $CROSSWAY_RUN_ONLY";
    assert_eq!(said(&["--", "sh", "-c", script]), "12.5% tcp,unix\n");
    assert!(
        said(&["--shell"])
            .ends_with("export CROSSWAY_RUN_ONLY=tcp,unix\nexport CROSSWAY_RUN_CPU_BUDGET=12.5%\n")
    );
    assert!(
        said(&["--shell=docker"])
            .ends_with(" --env=CROSSWAY_RUN_ONLY=tcp,unix --env=CROSSWAY_RUN_CPU_BUDGET=12.5%\n")
    );
    for (wrong, why) in [
        (&["--cpu-budget", "101%"][..], "write a percentage of one CPU"),
        (&["--only", "tcp,udp"], "'udp' is not a family"),
        (&["--only", "unix", "--cpu-budget", "0"], "nothing remains to be done"),
    ] {
        let refused = crossway(&[wrong, &["--", "true"]].concat()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(why), "{refused:?}");
    }
}

#[test]
fn what_cannot_be_run_or_explained_is_refused_before_it_starts() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("plain"), "#!/bin/sh\n").unwrap();
    let explain = |place: &str| format!("--explain={place}");
    let ran = at("ran");
    for (arguments, said) in [
        (
            vec![explain(&at("nope/x"))],
            format!("crossway: cannot write {}: No such file", at("nope/x")),
        ),
        (vec![explain(&at(""))], format!("crossway: cannot write {}: Is a directory", at(""))),
        (vec!["--".into(), at("plain")], format!("crossway: {}: permission denied", at("plain"))),
        (vec!["--".into(), at("none")], format!("crossway: {}: no such program", at("none"))),
    ] {
        let mut command = crossway(&[]);
        command.args(&arguments);
        if arguments.len() == 1 {
            command.args(["--", "touch", &ran]);
        }
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(errors.starts_with(&said) && errors.lines().count() == 1, "{errors}");
        assert!(!Path::new(&ran).exists(), "{arguments:?}");
    }
    let output = crossway(&[&explain(&at("said")), "--", "touch", &ran]).output().unwrap();
    assert!(text(output).is_empty() && Path::new(&ran).exists());
}

/// A program from tests/data/run, or `None` without its compiler.
fn build(name: &str, dir: &Path) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/run");
    let program = dir.join(name);
    let mut compiler = match name {
        "static" | "dynamic" => {
            let mut cc = Command::new("cc");
            cc.args(["-Wall", "-Wextra", "-Werror"]).arg(sources.join("talk.c"));
            cc.args((name == "static").then_some("-static"));
            cc
        }
        _ => {
            let mut go = Command::new("go");
            go.current_dir(sources).env("CGO_ENABLED", "0").arg("build");
            go
        }
    };
    match compiler.arg("-o").arg(&program).output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => panic!("{compiler:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            let needed = if name == "go" { "golang" } else { "gcc" };
            eprintln!("SKIP {name}: no compiler; install {needed}");
            None
        }
    }
}

/// A folder whose programs find only each other.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A program with its arguments, by `crossway run` or without.
    fn program(&self, is_moved: bool, program: &Path, arguments: &[&str]) -> Command {
        let explained = format!("--explain={}", self.0.path().join("explained").display());
        let mut command = crossway(&[&explained, "--"]);
        if is_moved {
            command.arg(program);
        } else {
            command = Command::new(program);
        }
        command.args(arguments).env("XDG_RUNTIME_DIR", self.0.path());
        // A loaded machine must not decide which connections are moved.
        command.env("CROSSWAY_RUN_PATIENCE_MS", "20000");
        command
    }

    fn explained(&self) -> (usize, String) {
        let text = std::fs::read_to_string(self.0.path().join("explained")).unwrap_or_default();
        (
            text.lines().filter(|line| line.contains("a UNIX stream pair in place of TCP")).count(),
            text,
        )
    }
}

/// A server that is killed if it has not ended when the test ends.
struct Server(Child);

impl Server {
    /// Starts a server, which prints its port.
    fn start(mut command: Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }

    fn ends_well(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A dynamic program that answers one connection with what it has sent.
fn echo(site: &Site, is_moved: bool) -> Option<(Server, String)> {
    let program = build("dynamic", site.0.path())?;
    Some(Server::start(site.program(is_moved, &program, &["serve"])))
}

#[test]
fn a_static_program_is_moved_and_observes_the_same() {
    let site = Site::new();
    let Some(talk) = build("static", site.0.path()) else { return };
    let run = |is_moved: bool| {
        let (server, port) = echo(&site, is_moved)?;
        let said = text(site.program(is_moved, &talk, &["talk", &port]).output().unwrap());
        server.ends_well();
        Some(said)
    };
    let Some(plain) = run(false) else { return };
    assert!(plain.contains("read hello 0") && plain.contains("own 0 1 1 127.0.0.1"), "{plain}");
    assert_eq!(run(true), Some(plain));
    let (moved, text) = site.explained();
    assert_eq!(moved, 2, "{text}");
}

#[test]
fn programs_in_go_are_moved() {
    let site = Site::new();
    let Some(talk) = build("go", site.0.path()) else { return };
    let run = |server: bool, client: bool| {
        let (server, port) = Server::start(site.program(server, &talk, &["serve", "3"]));
        let talk = || text(site.program(client, &talk, &["talk", &port]).output().unwrap());
        let said = [talk(), talk(), talk()];
        server.ends_well();
        said
    };
    let plain = run(false, false);
    assert!(plain[0].contains("1000000 true <nil>"), "{plain:?}");
    assert_eq!(run(true, true), plain);
    let (moved, text) = site.explained();
    assert_eq!(moved, 6, "{text}");
    // The other end does not run so.
    assert_eq!(run(true, false), plain);
    assert_eq!(run(false, true), plain);
    assert_eq!(site.explained().0, 6);
}

#[test]
fn a_supervised_program_ends_as_it_would_alone() {
    let site = Site::new();
    let Some(talk) = build("static", site.0.path()) else { return };
    let code = |arguments: &[&str]| site.program(true, &talk, arguments).status().unwrap().code();
    assert_eq!(code(&["exit", "0"]), Some(0));
    assert_eq!(code(&["exit", "3"]), Some(3));
    // A signal to `crossway run` reaches the program.
    let (mut server, said) = Server::start(site.program(true, &talk, &["wait"]));
    assert_eq!(said, "waits");
    crossway_sys::proc::terminate(server.0.id());
    assert_eq!(server.0.wait().unwrap().code(), Some(128 + 15));
    // A process that the program leaves behind is still supervised.
    let Some((server, port)) = echo(&site, true) else { return };
    let left = text(site.program(true, &talk, &["late", &port]).output().unwrap());
    assert!(left.contains("read hello 0"), "{left}");
    server.ends_well();
    let (moved, text) = site.explained();
    assert_eq!(moved, 2, "{text}");
}
