//! The CPU's wide vector registers in a guest, whose kernel may not save them for every program.

use std::process::Command;

use crossway_lab::record::{Record, Status};

use super::{CROSSWAY, Up, crossway, errors, exec, own, said};

/// A script of programs that use the CPU's widest registers, some started with an empty environment.
const WIDE: &str = "set -e; env -i /sbin/modprobe -q sch_fq; env -i python3 -c 'print(6 * 7)'; \
    ip link add autoloaded type dummy; python3 -c 'import socket; \
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).listen(); print(\"listens\")'";

fn boot_with(registers: &str, name: &str) -> Option<(Up, serde_json::Value)> {
    let output = Command::new(CROSSWAY)
        .args(["guest", "up", name, "--json"])
        .env("CROSSWAY_GUEST_REGISTERS", registers)
        .output()
        .unwrap();
    let errors = errors(&output);
    if errors.contains("needs root") || errors.contains("was not found; install it") {
        eprintln!("SKIP guests: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    let record = serde_json::from_slice(&output.stdout).unwrap();
    Some((Up("guest", name.to_owned()), record))
}

#[test]
fn programs_without_an_environment_keep_their_registers_also_with_amx() {
    let tgr = own("tgr");
    let Some((_guest, record)) = boot_with("emulated", &tgr) else { return };
    if record["registers"] == "hidden" {
        eprintln!("SKIP a guest on a CPU with AMX: the build had no C compiler; install gcc");
        return;
    }
    assert_eq!(record["facts"]["string_functions"], serde_json::Value::Null, "{record}");
    let output = exec(&tgr, WIDE);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\nlistens\n", "{output:?}");
    assert!(output.status.success(), "{output:?}");
    // This program itself detects wide registers at run time: for the checksums of the verification, and in the JSON
    // parser.
    let plan = "about = 'guest'\n[group.g]\nmechanisms = ['uds-stream', 'sctp']\nplacement = 'same-core'\n\
        workload = 'throughput'\nsize_bytes = 32768\ntrials = 1\nwarmup_ms = 10\nmeasure_ms = 80\n";
    let script = format!(
        "cat > /run/plan.toml <<'END'\n{plan}END\n\
         env -i {CROSSWAY} measure /run/plan.toml --out /run/o >&2; cat /run/o/*/results.jsonl"
    );
    let output = exec(&tgr, &script);
    let text = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Record> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(records.len(), 2, "{}", String::from_utf8_lossy(&output.stderr));
    for record in records {
        assert!(matches!(record.status, Status::Ok | Status::Degraded), "{record:?}");
        assert_eq!(record.counts.expect("counts").corrupt, 0, "{record:?}");
    }
}

#[test]
fn a_guest_that_loses_registers_says_so_and_still_listens_by_sctp() {
    let tgl = own("tgl");
    let Some((_guest, record)) = boot_with("hidden", &tgl) else { return };
    let names = &record["facts"]["string_functions"];
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    if flags.contains(" avx2 ") {
        assert!(names.is_string(), "AVX2 without a kernel that keeps it must show: {record}");
    }
    let listed = said(&["guest", "list", "--json"]);
    assert!(listed.contains(&tgl), "{listed}");
    let listen = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).listen()";
    let output = crossway(&["guest", "exec", &tgl, "--", "python3", "-c", listen]);
    assert!(output.status.success(), "{output:?}");
}
