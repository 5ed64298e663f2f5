//! `crossway tipc run`.

use std::path::Path;
use std::process::Command;

use super::{Site, built, program};

#[test]
fn an_unmodified_program_runs_on_a_tipcd_and_what_cannot_is_reported() {
    let built = built::build(&["crossway-tipc-preload"]);
    assert!(built.join("libcrossway_tipc_preload.so").exists());
    let site = Site::with(&[]);
    let script = "import socket as S\n\
        s = S.socket(S.AF_TIPC, S.SOCK_RDM)\n\
        s.bind((S.TIPC_ADDR_NAMESEQ, 18950, 0, 9, 2))\n\
        s.sendto(b'to myself', (S.TIPC_ADDR_NAME, 18950, 3, 0))\n\
        print(s.recv(100))\n\
        raise SystemExit(7)";
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        return eprintln!("SKIP crossway tipc run: {python} is missing; install python3");
    }
    // With --force in case this kernel has AF_TIPC.
    let output = site.run(&["run", "--force", "--", python, "-c", script]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b'to myself'\n", "{errors}");
    assert_eq!(output.status.code(), Some(7), "the program's own status");

    let error = site.error(&["run", "--force", "--", "/nowhere/program"]);
    assert!(error.contains("/nowhere/program") && error.contains("$PATH"), "{error}");
    let error = site.error(&["run", "--force", "--library", "/nowhere/x.so", "--", python]);
    assert!(error.contains("/nowhere/x.so") && error.contains("make install"), "{error}");
    let (source, fixed) = (site.dir.path().join("x.c"), site.dir.path().join("fixed"));
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let cc = Command::new("cc").args(["-static", "-o"]).args([&fixed, &source]).output();
    if cc.is_ok_and(|output| output.status.success()) {
        let error = site.error(&["run", "--force", "--", fixed.to_str().unwrap()]);
        assert!(error.contains("linked statically"), "{error}");
    } else {
        eprintln!("SKIP a static program: cc -static does not work; install gcc and libc6-dev");
    }
    let nobody = program()
        .args(["tipc", "--socket", "/nowhere/tipcd.sock", "run", "--force", "--", python])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&nobody.stderr);
    assert_eq!(nobody.status.code(), Some(2), "{error}");
    assert!(error.contains("no tipcd at /nowhere/tipcd.sock"), "{error}");
}
