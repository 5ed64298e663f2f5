//! Hosts that are reached through a cluster's job starter.

use super::*;

#[test]
fn mpirun_is_a_prefix() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("SKIP mpirun_is_a_prefix: no mpirun; sudo apt-get install openmpi-bin");
        return;
    }
    let place = Place::new(PLAN);
    let mpirun = "mpirun --allow-run-as-root -np 1 --host localhost";
    let output = place.measure(&["--hosts", &format!("{mpirun},local")]);
    let records = measured(&place, &output);
    check_hosts(&records, mpirun, "local");
    await_nothing_left(&place);
}

/// Behaves like Slurm's srun with a single task. It forwards standard input to the task, and the task's standard output
/// and standard error in whole lines unless the buffer is full or the task has ended. Its exit status is the task's, or
/// 128 plus the number of the signal that ended it. It parses srun's options and runs the task in a separate session,
/// as slurmstepd does. A first SIGINT only prints a report; a second one within a second ends the task.
const SRUN: &str = r#"#!/usr/bin/env python3
import os, select, signal, subprocess, sys, time
words = sys.argv[1:]
while words and words[0].startswith("-"):
    words.pop(0)
task = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        start_new_session=True)
last = 0.0
def interrupt(*_):
    global last
    now = time.monotonic()
    if now - last < 1.0:
        os.killpg(task.pid, signal.SIGKILL)
    else:
        os.write(2, b"srun: interrupt (one more within 1 sec to abort)\n")
    last = now
signal.signal(signal.SIGINT, interrupt)
held = {task.stdout: b"", task.stderr: b""}
to = {task.stdout: 1, task.stderr: 2}
reading = [0, task.stdout, task.stderr]
while task.stdout in reading or task.stderr in reading:
    for ready in select.select(reading, [], [])[0]:
        if ready == 0:
            more = os.read(0, 4096)
            if more:
                try:
                    task.stdin.write(more); task.stdin.flush()
                except BrokenPipeError:
                    pass
            else:
                task.stdin.close(); reading.remove(0)
            continue
        more = os.read(ready.fileno(), 4096)
        held[ready] += more
        cut = held[ready].rfind(b"\n") + 1
        if not more or (cut == 0 and len(held[ready]) >= 1 << 20):
            cut = len(held[ready])
        out, held[ready] = held[ready][:cut], held[ready][cut:]
        while out:
            out = out[os.write(to[ready], out):]
        if not more:
            reading.remove(ready)
code = task.wait()
sys.exit(128 - code if code < 0 else code)
"#;

#[test]
fn srun_is_a_prefix_although_it_passes_on_whole_lines_only() {
    use std::os::unix::fs::PermissionsExt;
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIP srun_is_a_prefix: no python3; sudo apt-get install python3");
        return;
    }
    let place = Place::new(PLAN);
    let srun = place.dir.path().join("srun");
    fs::write(&srun, SRUN).unwrap();
    fs::set_permissions(&srun, fs::Permissions::from_mode(0o755)).unwrap();
    let on = |node: &str| format!("{} --nodes=1 --ntasks=1 --nodelist={node}", srun.display());
    let output = place.measure(&["--hosts", &format!("{},{}", on("n1"), on("n2"))]);
    let records = measured(&place, &output);
    check_hosts(&records, &on("n1"), &on("n2"));
    assert!(records.iter().all(|r| r.hosts[0].prefix_kind == "srun"));
    await_nothing_left(&place);

    // The task's exit status and last output are passed on.
    let lost = format!("{},{}", on("n1"), on("n2"));
    let output = place.measure(&["--hosts", &lost, "--agent-program", "false"]);
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("ended with code 1") && told.contains("--nodelist=n1"), "{told}");

    // Ctrl-C ends the run and every job; the job starter need not receive the signal.
    let long = Place::new(LONG);
    let mut command = long.command(&["measure", "plan.toml", "--hosts", &lost]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    long.await_records(1);
    signal(child.id() as i32, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    await_nothing_left(&long);
}
