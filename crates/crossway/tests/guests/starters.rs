//! Starter programs for the kernel's TIPC, on a kernel that has it.

use std::process::Command;

use crossway_advise::question::Pattern;
use crossway_advise::starter;

use super::{boot, errors, exec, own};

#[test]
fn starter_programs_answer_over_the_kernels_tipc() {
    let guest = own("tgs");
    let Some(_guest) = boot(&guest, &[]) else { return };
    for (kind, languages) in [
        ("stream", "c,python"),
        ("seqpacket", "python,c"),
        ("rdm", "c,python"),
        ("dgram", "python,c"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let mechanism = format!("tipc-kernel-{kind}");
        let languages = languages.parse().expect("languages");
        let pattern = Pattern::RequestReply;
        starter::write(&mechanism, &mechanism, languages, pattern, 64, dir.path())
            .expect("written");
        let start = |program: &str| {
            if dir.path().join(format!("{program}.py")).exists() {
                return format!("python3 {program}.py");
            }
            let source = format!("{program}.c");
            let mut cc = Command::new("cc");
            cc.args(["-pthread", "-o", program, &source]).current_dir(dir.path());
            assert!(cc.status().expect("a C compiler").success());
            format!("./{program}")
        };
        let (server, client) = (start("server"), start("client"));
        let script = format!(
            "cd {} && {{ {server} 18888:17 & }} && {client} 18888:17 1000; code=$?; kill $!; exit $code",
            dir.path().display()
        );
        let output = exec(&guest, &script);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{mechanism}: {said}{}", errors(&output));
        // On a busy machine, a deadline of 2 s may pass.
        assert!(said.contains("done 1000, reconnected"), "{mechanism}: {said}");
    }
}
