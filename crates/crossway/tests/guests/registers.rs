//! The CPU's wide vector registers in a guest, whose kernel may not save them for every program.

use std::process::Command;

use crossway_records::record::{Record, Status};

use super::{CROSSWAY, Up, crossway, errors, exec, own, said};

/// A script of programs that use the CPU's widest registers, some started with an empty environment.
const WIDE: &str = "set -e; env -i /sbin/modprobe -q sch_fq; env -i python3 -c 'print(6 * 7)'; \
    ip link add autoloaded type dummy; python3 -c 'import socket; \
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).listen(); print(\"listens\")'";

fn boot_with(registers: &str, name: &str) -> Option<(Up, serde_json::Value)> {
    let output = Command::new(CROSSWAY)
        .args(["guest", "up", name, "--json"])
        .env("CROSSWAY_GUEST_REGISTERS", registers)
        // A kernel under QEMU keeps its programs' registers by itself.
        .env_remove("CROSSWAY_GUEST_KERNEL")
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
        workload = 'ping-pong'\nsize_bytes = 32768\ntrials = 1\nwarmup_ms = 10\nmeasure_ms = 80\n";
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
fn the_doctor_says_truly_why_guests_lose_registers() {
    let output = Command::new(CROSSWAY)
        .args(["doctor", "--json"])
        .env("CROSSWAY_GUEST_REGISTERS", "hidden")
        .output()
        .unwrap();
    let items: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let row = items.iter().find(|item| item["name"] == "guest-registers").expect("a row");
    assert_eq!(row["ready"], false, "{row}");
    let why = row["why"].as_str().unwrap();
    if why.contains("built without a C compiler") {
        eprintln!(
            "SKIP a machine that need not hide registers: the build had no C compiler; install gcc"
        );
        return;
    }
    assert!(why.starts_with("CROSSWAY_GUEST_REGISTERS=hidden hides the registers"), "{why}");
    assert_eq!(row["remedy"], "unset CROSSWAY_GUEST_REGISTERS");
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
    if names.is_string() {
        let table = said(&["guest", "list"]);
        let said = |line: &str| line.starts_with(&tgl) && line.contains("LOST: ");
        assert!(table.lines().any(said), "{table}");
        // This program uses such registers itself, so it measures nothing there, neither alone nor between hosts.
        let alone = exec(&tgl, &format!("{CROSSWAY} measure --trials 1 --out /run/o"));
        let prefix = format!("{CROSSWAY} guest exec {tgl} --");
        let dir = tempfile::tempdir().unwrap();
        let between = Command::new(CROSSWAY)
            .args(["measure", "--hosts", &format!("local,{prefix}")])
            .args(["--agent-program", CROSSWAY, "--trials", "1", "-f", "tcp/*"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        for refused in [alone, between] {
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            let why = errors(&refused);
            assert!(why.contains("nothing can be measured in this guest"), "{why}");
            assert!(why.contains("crossway doctor"), "{why}");
        }
    }
    let listen = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).listen()";
    let output = crossway(&["guest", "exec", &tgl, "--", "python3", "-c", listen]);
    assert!(output.status.success(), "{output:?}");
}
