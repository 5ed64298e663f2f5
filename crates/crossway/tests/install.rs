//! `make install`: the installed files; a C program that finds the library by pkg-config and uses the installed tipcd;
//! and `make uninstall`.

mod built;

use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_tipc_client::LoneTipcd;

const PREFIX: &str = "/opt/crossway";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Returns all files below a directory, without directories.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_c_program_uses_what_is_installed_and_nothing_is_left_after_removal() {
    for tool in ["make", "cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return eprintln!(
                "SKIP make install: {tool} is missing; install make, gcc and pkgconf"
            );
        }
    }
    let built = built::build(&[
        "crossway-tipc-capi",
        "crossway-tipc-node",
        "crossway-tipc-preload",
        "crossway-linx-capi",
        "crossway-channel-capi",
        "crossway-preload",
    ]);
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("dest");
    let make = |goal: &str| {
        succeeds(
            Command::new("make")
                .current_dir(root())
                // The make that runs this test must not affect the one it starts.
                .env_remove("MAKEFLAGS")
                .args(["--no-print-directory", goal])
                .arg(format!("BUILT={}", built.display()))
                .arg(format!("DESTDIR={}", dest.display()))
                .arg(format!("PREFIX={PREFIX}"))
                .arg("WITH_LINX_COMPAT=1"),
        )
    };
    make("install-built");
    let at = |path: &str| dest.join(&PREFIX[1..]).join(path);
    // Completion scripts call the program itself, which command_line.rs tests.
    for (path, word) in [
        ("share/man/man1/crossway.1", "tipcd"),
        ("share/man/man1/crossway-tipcd.1", "tipcd"),
        ("share/man/man1/tipcd.1", "tipcd"),
        ("share/bash-completion/completions/crossway", "CROSSWAY_COMPLETE"),
        ("share/zsh/site-functions/_crossway", "#compdef crossway"),
        ("share/fish/vendor_completions.d/crossway.fish", "CROSSWAY_COMPLETE"),
        ("lib/systemd/system/tipcd.service", "tipcd"),
        ("share/crossway/crossway_linx.lua", "Proto(\"crossway_linx\""),
        // What `crossway tipc run` tells those to use whose program is one of Go.
        ("share/doc/crossway/examples/go/go.mod", "module"),
        ("share/doc/crossway/examples/go/tipc.go", "package tipc"),
        ("share/doc/crossway/examples/go/echo/main.go", "package main"),
    ] {
        let text = std::fs::read_to_string(at(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(text.contains(word), "{path}");
    }
    let declared = std::fs::read_to_string(at("share/crossway/contenders/pipe.toml")).unwrap();
    assert!(declared.contains("[contender.pipe-c]"));
    let unit = std::fs::read_to_string(at("lib/systemd/system/tipcd.service")).unwrap();
    assert!(unit.contains(&format!("ExecStart={PREFIX}/bin/tipcd ")), "{unit}");
    succeeds(Command::new(at("bin/crossway")).arg("--version"));

    let pkg_config = |word: &str, library: &str| {
        let words = if word == "--static" { "--static --libs" } else { word };
        let text = succeeds(
            Command::new("pkg-config")
                .args(words.split(' '))
                .arg(library)
                .env("PKG_CONFIG_SYSROOT_DIR", &dest)
                .env("PKG_CONFIG_PATH", at("lib/pkgconfig")),
        );
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for (library, example) in [("tipc", "echo"), ("linx", "basic"), ("channel", "hello")] {
        let library = format!("crossway-{library}");
        assert_eq!(pkg_config("--modversion", &library), [env!("CARGO_PKG_VERSION")]);
        succeeds(
            Command::new("cc")
                .args(["-Wall", "-Wextra", "-Werror", "-std=c99", "-D_POSIX_C_SOURCE=200809L"])
                .arg("-o")
                .arg(dir.path().join(example))
                .arg(at(&format!("share/doc/crossway/examples/{example}.c")))
                .args(pkg_config("--cflags", &library))
                .args(pkg_config("--libs", &library)),
        );
    }
    // A makefile for liblinx needs no change.
    succeeds(
        Command::new("cc")
            .args(["-Werror".as_ref(), "-o".as_ref(), dir.path().join("demo").as_os_str()])
            .arg(at("share/doc/crossway/examples/basic.c"))
            .arg(format!("-I{}", at("include").display()))
            .arg(format!("-L{}", at("lib").display()))
            .arg("-llinx"),
    );
    let example = at("share/doc/crossway/examples/echo.c");
    let program = dir.path().join("echo");
    // A program is linked to the name with the ABI version; the library can also be linked statically.
    let lib = at("lib");
    let target = |name: &str| std::fs::read_link(lib.join(name)).unwrap();
    let file = format!("libcrossway_tipc.so.{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(target("libcrossway_tipc.so").to_str(), Some("libcrossway_tipc.so.0"));
    assert_eq!(target("libcrossway_tipc.so.0").to_str(), Some(&file[..]));
    let fixed = dir.path().join("echo-static");
    let libs = pkg_config("--static", "crossway-tipc");
    let libs = libs.into_iter().filter(|word| word != "-lcrossway_tipc");
    succeeds(
        Command::new("cc")
            .args(["-o".as_ref(), fixed.as_os_str(), example.as_os_str()])
            .args(pkg_config("--cflags", "crossway-tipc"))
            .arg(lib.join("libcrossway_tipc.a"))
            .args(libs),
    );
    let tipcd =
        LoneTipcd::start(Command::new(at("bin/tipcd")), &dir.path().join("tipcd.sock")).unwrap();
    let said = succeeds(Command::new(&program).arg(tipcd.path()).env("LD_LIBRARY_PATH", at("lib")));
    assert_eq!(said, "hello\nnobody: No route to host\n");
    assert_eq!(succeeds(Command::new(&fixed).arg(tipcd.path())), said);

    // An unmodified program, with the library from the directory next to the installed program's.
    let mut run = Command::new(at("bin/crossway"));
    run.args(["tipc", "run", "--force", "--socket"]).arg(tipcd.path());
    let said = succeeds(run.args(["--", "sh", "-c", "echo $LD_PRELOAD"]));
    let library = at("lib/libcrossway_tipc_preload.so").canonicalize().unwrap();
    assert_eq!(said.trim(), library.to_str().unwrap());

    let mut run = Command::new(at("bin/crossway"));
    let said = succeeds(run.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]));
    let library = at("lib/libcrossway_preload.so").canonicalize().unwrap();
    assert_eq!(said.trim(), library.to_str().unwrap());

    make("uninstall");
    assert_eq!(files(&dest), Vec::<PathBuf>::new());
}

#[test]
fn the_build_before_a_measurement_includes_what_the_readme_runs_next() {
    let mut make = Command::new("make");
    make.current_dir(root()).env_remove("MAKEFLAGS").args(["--dry-run", "measure"]);
    if Command::new("make").arg("--version").output().is_err() {
        return eprintln!("SKIP make measure: make is missing; install make");
    }
    let said = succeeds(&mut make);
    let (build, _) = said.split_once("crossway measure").expect("it measures");
    for package in ["crossway", "crossway-preload", "crossway-tipc-preload"] {
        let is_built = build.split_whitespace().any(|word| word == package);
        assert!(is_built, "{package}: {said}");
    }
}

#[test]
fn too_little_disk_is_reported_before_a_compiler_fails_for_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let df = dir.path().join("df");
    std::fs::write(&df, "#!/bin/sh\necho Avail\necho '   1'\n").unwrap();
    std::fs::set_permissions(&df, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (goal, incremental, needed) in [("build", "1", 2), ("test", "1", 10), ("test", "0", 6)] {
        let output = Command::new("scripts/setup.sh")
            .arg(goal)
            .current_dir(root())
            .env("PATH", format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap()))
            .env("CARGO_TARGET_DIR", dir.path().join("not/there"))
            .env("CARGO_INCREMENTAL", incremental)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let folder = dir.path().display();
        let told = format!("needs {needed} GB, and 1 GB are free in {folder}.");
        assert!(errors.contains(&told), "{errors}");
    }
}
