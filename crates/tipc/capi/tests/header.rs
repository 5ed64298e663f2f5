//! The header says what the library has, and a C program that uses it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_tipc_client::LoneTipcd;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A type of the source as C has it; `name` stands where C wants it.
fn in_c(rust: &str, name: &str) -> String {
    let plain = match rust {
        "c_int" => "int",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "usize" => "size_t",
        "*const c_char" => "const char *",
        "*const c_void" => "const void *",
        "*mut c_void" => "void *",
        "*mut u32" => "uint32_t *",
        "*const CtipcSocket" => "const ctipc_socket *",
        "*mut CtipcSocket" => "ctipc_socket *",
        "*mut *mut CtipcSocket" => "ctipc_socket **",
        "*const CtipcAddress" => "const ctipc_address *",
        "*mut CtipcAddress" => "ctipc_address *",
        "*mut CtipcMessage" => "ctipc_message *",
        other => panic!("the header's test does not know the type {other:?}"),
    };
    if plain.ends_with('*') { format!("{plain}{name}") } else { format!("{plain} {name}") }
}

/// The prototypes of all functions of the source, with the first line of what is said about each.
fn prototypes() -> String {
    let source = std::fs::read_to_string(here("src/ffi.rs")).unwrap();
    let mut out = String::new();
    for part in source.split("#[unsafe(no_mangle)]").collect::<Vec<_>>().windows(2) {
        let doc = part[0].rsplit("\n\n").next().unwrap();
        let said = doc.lines().find_map(|l| l.strip_prefix("/// ")).expect("documented");
        let signature = part[1].split('{').next().unwrap().replace('\n', " ");
        let (before, after) = signature.split_once('(').unwrap();
        let name = before.rsplit(' ').next().unwrap();
        let (arguments, result) = after.split_once(')').unwrap();
        let arguments: Vec<String> = arguments
            .split(',')
            .map(str::trim)
            .filter(|a| !a.is_empty())
            .map(|a| a.split_once(": ").unwrap())
            .map(|(name, kind)| in_c(kind, name))
            .collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        let call = format!("{name}({arguments});");
        let line = match result.split_once("-> ") {
            Some((_, kind)) => in_c(kind.trim(), &call),
            None => format!("void {call}"),
        };
        out += &format!("/* {said} */\n{line}\n");
    }
    out
}

#[test]
fn the_header_follows_the_source() {
    let path = here("include/crossway_tipc.h");
    let header = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = header.split_once("/* PROTOTYPES */\n").expect("the mark");
    let (_, after) = rest.split_once("\n#ifdef __cplusplus").expect("the end");
    let wanted = format!("{before}/* PROTOTYPES */\n{}\n#ifdef __cplusplus{after}", prototypes());
    if std::env::var_os("CROSSWAY_WRITE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return;
    }
    assert!(
        header == wanted,
        "the header is out of date; write it: CROSSWAY_WRITE=1 cargo test -p crossway-tipc-capi --test header"
    );
}

#[test]
fn the_example_runs_on_a_tipcd() {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "crossway-tipc-capi", "-p", "crossway-tipc-node"])
        .status()
        .unwrap();
    assert!(built.success(), "the library does not build");
    // This program is target/<profile>/deps/header-*; cargo build made the dev profile's.
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("debug");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("echo");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c99"])
        .arg(here("examples/echo.c"))
        .arg(format!("-I{}", here("include").display()))
        .arg(format!("-L{}", target.display()))
        .arg(format!("-Wl,-rpath,{}", target.display()))
        .args(["-lcrossway_tipc", "-o"])
        .arg(&program)
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "the example does not compile"),
        Err(error) => {
            return eprintln!(
                "SKIP the_example_runs_on_a_tipcd: cc: {error}; install gcc or clang"
            );
        }
    }
    let tipcd =
        LoneTipcd::start(Command::new(target.join("tipcd")), &dir.path().join("s")).unwrap();
    let out = Command::new(&program).arg(tipcd.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{errors}");
    assert_eq!(said, "hello\nnobody: No route to host\n");
    let absent = dir.path().join("absent");
    let out = Command::new(&program).arg(&absent).output().unwrap();
    assert!(!out.status.success());
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        errors.contains("no tipcd at") && errors.contains("crossway tipcd --socket"),
        "{errors}"
    );
}
