//! Programs whose calls bypass the C library's functions: by `syscall(2)`, which works, and by io_uring, which is
//! refused so that they use plain calls.

use std::path::Path;
use std::process::{Command, Output};

use crossway_tipc_client::unmodified;

use crate::compiled_with;
use crate::nodes::Site;

/// The library's message about io_uring.
const REFUSED: &str = "io_uring is refused (ENOSYS)";

/// Whether this machine's kernel permits io_uring.
fn kernel_has_io_uring() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    symbols.contains("sys_io_uring_setup") && disabled.is_ok_and(|value| value.trim() == "0")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_program_that_prefers_io_uring_uses_plain_calls_and_says_why() {
    let site = Site::new();
    let header = Path::new("/usr/include/liburing.h");
    if !header.exists() {
        return eprintln!("SKIP rings.c: {} is missing; install liburing-dev", header.display());
    }
    let Some(program) = compiled_with("rings", site.dir.path(), &["-luring"]) else { return };
    let output = site.run(&[&program]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "no io_uring: ENOSYS\nagain: ENOSYS\nreceived: plain\n");
    let errors = errors(&output);
    assert_eq!(errors.matches(REFUSED).count(), 1, "{errors}");
    assert!(errors.contains("TIPCD_IO_URING=allow"), "{errors}");
}

/// A program with the address sanitizer ends at once unless the sanitizer's library is loaded before all others.
#[test]
fn a_program_with_the_address_sanitizer_gets_its_library_first() {
    let site = Site::new();
    let source = site.dir.path().join("sanitized.c");
    let text = "#include <stdio.h>\n#include <sys/socket.h>\n\
        int main(void) { return socket(AF_TIPC, SOCK_RDM, 0) < 0 || puts(\"a TIPC socket\") < 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = site.dir.path().join("sanitized");
    let mut cc = Command::new("cc");
    cc.arg("-fsanitize=address").arg(&source).arg("-o").arg(&program);
    if !cc.output().is_ok_and(|output| output.status.success()) {
        return eprintln!(
            "SKIP the address sanitizer: cc cannot link with it; install gcc and libasan"
        );
    }
    let command = unmodified::command(&site.library, site.tipcd.path(), program.as_os_str(), &[]);
    let output = command.unwrap().output().unwrap();
    assert_eq!(errors(&output), "");
    assert_eq!(output.stdout, b"a TIPC socket\n");
}

/// stress-ng, a third-party program, creates its rings by `syscall(2)`.
#[test]
fn stress_ng_gets_io_uring_only_if_that_is_permitted() {
    let site = Site::new();
    let run = |permits: bool| {
        let words = ["stress-ng", "--io-uring", "1", "--io-uring-ops", "20", "--timeout", "60"];
        let mut command = site.command(&words.map(Path::new));
        command.current_dir(site.dir.path());
        if permits {
            command.env("TIPCD_IO_URING", "allow");
        }
        command.output().unwrap()
    };
    if Command::new("stress-ng").arg("--version").output().is_err() {
        return eprintln!("SKIP stress-ng: it is missing; install stress-ng");
    }
    let refused = errors(&run(false));
    assert!(refused.contains(REFUSED), "{refused}");
    if !kernel_has_io_uring() {
        return eprintln!("SKIP io_uring with permission: this kernel has none, or forbids it");
    }
    let permitted = run(true);
    assert!(permitted.status.success(), "{permitted:?}");
    assert!(!errors(&permitted).contains(REFUSED), "{permitted:?}");
}
