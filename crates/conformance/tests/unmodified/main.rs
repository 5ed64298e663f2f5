//! Tests that programs written for AF_TIPC run unmodified on a `tipcd`, with the library of `crates/tipc/preload`
//! loaded before the C library. They must print the same on a `tipcd` as on a kernel's AF_TIPC in a guest.

#[path = "../../../crossway/tests/built/mod.rs"]
mod built;
mod bypassing;
mod ends;
#[path = "../in_guest/mod.rs"]
mod in_guest;
mod longlived;
mod nodes;
mod pipelined;
mod states;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crossway_tipc_client::LoneTipcd;
use nodes::{Site, tipcd_command};

/// Time limit in seconds; nothing takes this long unless it hangs.
const WATCHDOG: &str = "600";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unmodified").join(path)
}

/// Compiles `programs/NAME.c` with the flags that distributions use; `None` if there is no C compiler.
fn compiled(name: &str, dir: &Path) -> Option<PathBuf> {
    compiled_with(name, dir, &[])
}

/// As [`compiled`], but with the further arguments `words` for the compiler.
fn compiled_with(name: &str, dir: &Path, words: &[&str]) -> Option<PathBuf> {
    let program = dir.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(here(&format!("programs/{name}.c")))
        .args(words);
    let Ok(output) = cc.output() else {
        eprintln!("SKIP {name}.c: no C compiler; install gcc");
        return None;
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// The output of a program, which must have succeeded.
fn printed(what: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{text}{errors}", output.status);
    assert_eq!(errors, "", "{what}");
    text
}

/// The output of the same program in a guest whose kernel has AF_TIPC; `None` if no guest can be booted here.
fn on_kernel(name: &str, words: &[&Path]) -> Option<String> {
    let words = ["timeout", WATCHDOG].map(Path::new).into_iter().chain(words.iter().copied());
    // A guest's name is short.
    let (text, errors) = in_guest::run(&format!("u{}", &name[..1]), name, words)?;
    assert_eq!(errors, "", "{name} on a kernel");
    Some(text)
}

/// Asserts that a C program prints the same over a tipcd and on a kernel.
fn c_program(name: &str) {
    let site = Site::new();
    let Some(program) = compiled(name, site.dir.path()) else { return };
    like_a_kernel(name, &program, &printed("on a tipcd", &site.run(&[&program])));
}

/// As [`c_program`]; also asserts that the program prints the same when it calls `syscall(2)` instead of the C
/// library's functions.
fn c_program_either_way(name: &str) {
    let site = Site::new();
    let header = here("programs/direct.h");
    let words = ["-include", header.to_str().unwrap()];
    let Some(direct) = compiled_with(name, site.dir.path(), &words) else { return };
    let by_syscall = printed("by syscall(2)", &site.run(&[&direct]));
    let Some(program) = compiled(name, site.dir.path()) else { return };
    let site = Site::new();
    let ours = printed("on a tipcd", &site.run(&[&program]));
    assert_eq!(differences(&ours, &by_syscall, &[]), "", "by functions and by syscall(2)");
    like_a_kernel(name, &program, &ours);
}

fn like_a_kernel(name: &str, program: &Path, ours: &str) {
    assert!(ours.lines().count() > 20, "{ours}");
    if let Some(kernels) = on_kernel(name, &[program]) {
        assert_eq!(differences(&kernels, ours, &[]), "");
    }
}

/// Compares line by line; `known` are the beginnings of lines that are expected to differ. Returns the other
/// differences.
fn differences(kernels: &str, ours: &str, known: &[&str]) -> String {
    let differing: Vec<String> = kernels
        .lines()
        .zip(ours.lines())
        .filter(|(kernel, our)| kernel != our)
        .map(|(kernel, our)| format!("kernel: {kernel}\n  here: {our}"))
        .filter(|both| !known.iter().any(|k| both.starts_with(&format!("kernel: {k}"))))
        .collect();
    assert_eq!(kernels.lines().count(), ours.lines().count(), "{kernels}\n---\n{ours}");
    differing.join("\n")
}

#[test]
fn every_call_in_one_process() {
    c_program_either_way("calls");
}

#[test]
fn what_was_sent_is_there_at_once() {
    let site = Site::new();
    let Some(program) = compiled("at_once", site.dir.path()) else { return };
    let ours = printed("on a tipcd", &site.run(&[&program]));
    for of_kind in ["RDM", "DGRAM"] {
        let found = format!(
            "{of_kind} by name 50, by address 50, to several 50, select 50, epoll 50, pair 50\n"
        );
        assert!(ours.contains(&found), "{ours}");
    }
    for of_kind in ["SEQPACKET", "STREAM"] {
        let found = format!("{of_kind} accepted 50, connected 50, data 50, ended 50, refused 50\n");
        assert!(ours.contains(&found), "{ours}");
    }
    if let Some(kernels) = on_kernel("at_once", &[&program]) {
        assert_eq!(differences(&kernels, &ours, &[]), "");
    }
}

#[test]
fn descriptors_in_other_processes_threads_and_handlers() {
    c_program("processes");
}

#[test]
fn options_inheritance_and_subscriptions_of_every_form() {
    c_program_either_way("options");
}

#[test]
fn pythons_socket_module_gives_what_it_gives_on_a_kernel() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return eprintln!("SKIP python: {} is missing; install python3", python.display());
    }
    let site = Site::new();
    let table = here("table.py");
    let known = [
        // Beyond TIPC's window, the descriptor's own buffer accepts messages.
        "connections: messages of 1000 bytes until the window is full",
        // The descriptor does not know of the group's members; the send returns EHOSTUNREACH.
        "groups: ready alone",
    ];
    let compare = |more: &[&Path]| {
        let words = [&[python, &table], more].concat();
        let ours = printed("on a tipcd", &site.run(&words));
        assert_eq!(ours.lines().count(), 345, "{ours}");
        let Some(kernels) = on_kernel("table", &words) else { return String::new() };
        differences(&kernels, &ours, &known)
    };
    // Differences because the tipcd had no time to do its work disappear when it has time.
    if !compare(&[]).is_empty() {
        assert_eq!(compare(&[Path::new("busy")]), "");
    }
}

/// `CROSSWAY_SEQUENCES="FIRST COUNT"` chooses other sequences than the usual ones.
#[test]
fn random_sequences_of_calls_give_what_they_give_on_a_kernel() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return eprintln!("SKIP sequences: {} is missing; install python3", python.display());
    }
    let chosen = std::env::var("CROSSWAY_SEQUENCES").unwrap_or_else(|_| "0 100".to_owned());
    let site = Site::new();
    let script = here("sequences.py");
    let words: Vec<&Path> =
        [python, &script].into_iter().chain(chosen.split_whitespace().map(Path::new)).collect();
    let ours = printed("on a tipcd", &site.run(&words));
    assert!(ours.lines().count() > 20, "{ours}");
    let Some(kernels) = on_kernel("sequences", &words) else { return };
    let [of_kernel, of_tipcd] = ["kernels", "ours"].map(|name| site.dir.path().join(name));
    std::fs::write(&of_kernel, kernels).unwrap();
    std::fs::write(&of_tipcd, ours).unwrap();
    let compared = Command::new(python)
        .arg(&script)
        .arg("compare")
        .args([&of_kernel, &of_tipcd])
        .output()
        .unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    eprintln!("{}", String::from_utf8_lossy(&compared.stdout).trim_end());
}

#[test]
fn without_a_tipcd_the_program_prints_one_message_and_gets_eafnosupport() {
    let site = Site::new();
    let Some(program) = compiled("processes", site.dir.path()) else { return };
    let output = Command::new("timeout")
        .arg(WATCHDOG)
        .arg(&program)
        .env("LD_PRELOAD", &site.library)
        .env("TIPCD_SOCKET", site.dir.path().join("nobody"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.matches("no tipcd at").count(), 1, "{errors}");
    assert!(errors.contains("Address family not supported"), "{errors}");
}

#[test]
fn sockets_of_a_tipcd_that_ended_say_so_and_new_ones_use_its_successor() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return eprintln!("SKIP python: {} is missing; install python3", python.display());
    }
    let site = Site::new();
    let script = site.dir.path().join("outlives.py");
    std::fs::write(
        &script,
        "import errno, signal, socket as S, sys\n\
         signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n\
         def code(call, *words):\n\
         \x20   try:\n\
         \x20       return call(*words)\n\
         \x20   except OSError as e:\n\
         \x20       return errno.errorcode[e.errno]\n\
         old = S.socket(S.AF_TIPC, S.SOCK_RDM)\n\
         there = S.socket(S.AF_TIPC, S.SOCK_RDM)\n\
         there.bind((S.TIPC_ADDR_NAMESEQ, 18901, 0, 0, 2))\n\
         old.sendto(b'hello', (S.TIPC_ADDR_NAME, 18901, 0, 0))\n\
         print('ready', flush=True)\n\
         sys.stdin.readline()\n\
         print(code(old.sendto, b'hello', (S.TIPC_ADDR_NAME, 18901, 0, 0)), end=' ')\n\
         print(code(old.bind, (S.TIPC_ADDR_NAMESEQ, 18900, 0, 0, 2)), code(old.recv, 10))\n\
         new = S.socket(S.AF_TIPC, S.SOCK_RDM)\n\
         new.bind((S.TIPC_ADDR_NAMESEQ, 18900, 0, 0, 2))\n\
         new.sendto(b'hello', (S.TIPC_ADDR_NAME, 18900, 0, 0))\n\
         print(new.recv(10), code(old.bind, (S.TIPC_ADDR_NAMESEQ, 18900, 0, 0, 2)))\n",
    )
    .unwrap();
    let mut child = Command::new("timeout")
        .arg(WATCHDOG)
        .args([python, &script])
        .env("LD_PRELOAD", &site.library)
        .env("TIPCD_SOCKET", site.tipcd.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let path = site.tipcd.path().to_owned();
    let Site { tipcd, library: _library, dir: _dir } = site;
    drop(tipcd);
    let _successor = LoneTipcd::start(tipcd_command(), &path).unwrap();
    drop(child.stdin.take());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert_eq!(rest, "ENETDOWN ENETDOWN ENETDOWN\nb'hello' ENETDOWN\n");
}
