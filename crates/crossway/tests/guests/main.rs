//! Real guests, booted by this program: of user-mode Linux, or of the kernel in CROSSWAY_GUEST_KERNEL, under QEMU. Needs root
//! and the package user-mode-linux or qemu-system-x86.

mod kernels;
mod registers;
mod starters;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crossway_records::record::{Record, Status};

const CROSSWAY: &str = env!("CARGO_BIN_EXE_crossway");

fn crossway(words: &[&str]) -> Output {
    Command::new(CROSSWAY).args(words).stdin(Stdio::null()).output().expect("crossway runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed, and returns its output.
fn said(words: &[&str]) -> String {
    let output = crossway(words);
    assert!(output.status.success(), "{words:?}: {}", errors(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns a name that no guest or network of another test program on this machine has.
fn own(name: &str) -> String {
    format!("{name}{:x}", std::process::id())
}

/// Takes a guest or network down on drop, even if a test fails.
struct Up(&'static str, String);

impl Drop for Up {
    fn drop(&mut self) {
        crossway(&[self.0, "down", &self.1]);
    }
}

/// Boots a guest. Returns `None` and prints the reason if this machine cannot.
fn boot(name: &str, more: &[&str]) -> Option<Up> {
    let output = crossway(&[&["guest", "up", name], more].concat());
    let errors = errors(&output);
    if errors.contains("needs root") || errors.contains("was not found; install it") {
        eprintln!("SKIP guests: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(Up("guest", name.to_owned()))
}

/// Whether guests for which no kernel is named run under QEMU.
fn usual_is_qemu() -> bool {
    std::env::var("CROSSWAY_GUEST_KERNEL").is_ok_and(|kernel| !kernel.is_empty())
}

/// An argument of the process that runs a guest's kernel, which no other process has.
fn kernel_word(name: &str) -> String {
    match usual_is_qemu() {
        true => format!("crossway-{name}"),
        false => format!("umid={name}"),
    }
}

fn exec(name: &str, script: &str) -> Output {
    crossway(&["guest", "exec", name, "--", "sh", "-c", script])
}

/// Returns the processes whose arguments contain all of `words`.
fn processes(words: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let argv: Vec<&str> = line.split('\0').collect();
            words.iter().all(|word| argv.iter().any(|a| a == word))
        })
        .collect()
}

/// Returns the parent of a process; 0 if the process does not exist.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything; state and parent follow it.
    let fields = stat.rsplit(')').next().unwrap_or("");
    fields.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn await_true(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 240, "{what}: not within four minutes");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Returns the completions that a shell gets after these arguments.
fn offered(words: &[&str]) -> String {
    let output = Command::new(CROSSWAY)
        .env("CROSSWAY_COMPLETE", "bash")
        .envs([
            ("_CLAP_IFS", "\n"),
            ("_CLAP_COMPLETE_COMP_TYPE", "9"),
            ("_CLAP_COMPLETE_SPACE", "false"),
        ])
        .env("_CLAP_COMPLETE_INDEX", (words.len() + 1).to_string())
        .args(["--", "crossway"])
        .args(words)
        .arg("")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns bytes that look random but are the same every time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(count)
    .collect()
}

#[test]
fn a_guest_runs_commands_and_leaves_the_host_alone() {
    let tg1 = own("tg1");
    let Some(guest) = boot(&tg1, &[]) else { return };
    let listed = said(&["guest", "list", "--json"]);
    for module in ["tipc", "sctp", "ipv6"] {
        assert!(listed.contains(&format!("\"{module}\"")), "{listed}");
    }
    // Exit status, standard error and signals are passed on.
    let output = exec(&tg1, "lsmod; echo to-stderr >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(errors(&output), "to-stderr\n");
    let modules = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(modules.contains("tipc") && modules.contains("sctp"), "{modules}");
    assert_eq!(exec(&tg1, "kill -9 $$").status.code(), Some(137));
    let output = crossway(&["guest", "exec", &tg1, "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains(&format!("running 'no-such-program' in guest '{tg1}'")),
        "{output:?}"
    );

    // Files written in the guest stay in it, even if they appear to be in the host's tree.
    let mark = format!("/etc/crossway-guest-test-{}", std::process::id());
    let mount = match usual_is_qemu() {
        true => "mount --bind /run/lower /mnt",
        false => "mount -t hostfs none /mnt -o /",
    };
    let script = format!(
        "echo x >{mark} && cat {mark}; {mount} && echo x >/mnt{mark}; \
         echo x >/run/lower{mark}; touch /mnt/run/crossway/x"
    );
    let output = exec(&tg1, &script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n");
    assert_eq!(errors(&output).matches("Read-only file system").count(), 3, "{output:?}");
    assert!(!Path::new(&mark).exists());

    let output = crossway(&["guest", "up", &tg1]);
    assert!(errors(&output).contains(&format!("guest '{tg1}' is already up")), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
    drop(guest);
    assert!(
        processes(&[&kernel_word(&tg1)]).is_empty()
            && processes(&["guest-keeper", &tg1]).is_empty()
    );
    assert!(!Path::new(&format!("/run/crossway/guest/{tg1}")).exists());
    let output = crossway(&["guest", "exec", &tg1, "--", "true"]);
    assert!(errors(&output).contains(&format!("there is no guest '{tg1}'")), "{output:?}");
}

#[test]
fn a_command_s_streams_carry_every_byte_both_ways_and_side_by_side() {
    let tg2 = own("tg2");
    let Some(_guest) = boot(&tg2, &[]) else { return };
    let bytes = noise(1 << 20);
    let mut copier = Command::new(CROSSWAY)
        .args(["guest", "exec", &tg2, "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = copier.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    // Another command works while the output of this one is not read.
    let digest = "md5sum | cut -d' ' -f1";
    assert_eq!(exec(&tg2, &format!("head -c 1000000 /dev/zero | {digest}")).stdout, {
        let script = format!("head -c 1000000 /dev/zero | {digest}");
        Command::new("sh").args(["-c", &script]).output().unwrap().stdout
    });
    let mut back = Vec::new();
    copier.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap().unwrap();
    assert!(copier.wait().unwrap().success());
    assert!(back == bytes, "{} of {} bytes came back, or others", back.len(), bytes.len());

    // If the reader stops, the writer ends; if the caller is killed, its command ends too.
    let script = format!("{CROSSWAY} guest exec {tg2} -- yes | head -n 1");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.stdout, b"y\n");
    let mut sleeper =
        Command::new(CROSSWAY).args(["guest", "exec", &tg2, "--", "sleep", "987"]).spawn().unwrap();
    let sleeps = || !exec(&tg2, "pgrep -x -f 'sleep 987'").stdout.is_empty();
    await_true("the command runs", sleeps);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    await_true("the command is killed", || !sleeps());
}

#[test]
fn two_guests_and_a_namespace_share_a_link() {
    let [tgn, tga, tgb] = ["t", "tga", "tgb"].map(own);
    let made = crossway(&[
        "net", "up", "--name", &tgn, "--guests", "a,b", "--hosts", "h", "--rate", "1gbit",
    ]);
    if !made.status.success() {
        let why = errors(&made);
        assert!(why.contains("needs root") || why.contains("install it"), "{why}");
        eprintln!("SKIP two guests: {why}");
        return;
    }
    let _network = Up("net", tgn.clone());
    let (a, b) = std::thread::scope(|s| {
        let a = s.spawn(|| boot(&tga, &["--net", &format!("{tgn}/a")]));
        let b = s.spawn(|| boot(&tgb, &["--net", &format!("{tgn}/b")]));
        (a.join().unwrap(), b.join().unwrap())
    });
    let (Some(_a), Some(_b)) = (a, b) else { return };
    for (command, name) in [
        (["net", "down"], &tgn),
        (["net", "exec"], &format!("{tgn}/h")),
        (["guest", "down"], &tga),
        (["guest", "exec"], &tgb),
    ] {
        let offers = offered(&command);
        assert!(offers.lines().any(|offer| offer == name), "{command:?}: {offers}");
    }
    let output = crossway(&["guest", "up", "tgh", "--net", &format!("{tgn}/h")]);
    assert!(errors(&output).contains("this host is a namespace"), "{output:?}");
    for guest in [&tga, &tgb] {
        let bearer = exec(guest, "tipc bearer enable media eth device eth0");
        assert!(bearer.status.success(), "{}", errors(&bearer));
    }
    let nodes = || String::from_utf8(exec(&tga, "tipc node list").stdout).unwrap();
    await_true("tga sees tgb's TIPC node", || nodes().lines().any(|l| l.ends_with("up")));
    // A name published in one kernel, and a message to it from the other, over the wire.
    let server = "import socket as s
r=s.socket(s.AF_TIPC,s.SOCK_RDM); r.bind((s.TIPC_ADDR_NAMESEQ,18888,7,7,s.TIPC_CLUSTER_SCOPE))
print('bound',flush=True); print(r.recv(100).decode(),flush=True)";
    let client = "import socket as s
s.socket(s.AF_TIPC,s.SOCK_RDM).sendto(b'over tipc',(s.TIPC_ADDR_NAME,18888,7,0,s.TIPC_CLUSTER_SCOPE))";
    let mut receiver = Command::new(CROSSWAY)
        .args(["guest", "exec", &tgb, "--", "python3", "-c", server])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let published = || exec(&tga, "tipc nametable show").stdout;
    await_true("tga knows the name", || String::from_utf8_lossy(&published()).contains("18888"));
    said(&["guest", "exec", &tga, "--", "python3", "-c", client]);
    let mut heard = String::new();
    receiver.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "bound\nover tipc\n");
    receiver.wait().unwrap();

    // A namespace on the same switch, and a guest that is killed during a command.
    let reach = "import socket; socket.create_connection(('10.77.0.3',1),120)";
    let output = crossway(&["net", "exec", &format!("{tgn}/h"), "--", "python3", "-c", reach]);
    assert!(errors(&output).contains("ConnectionRefused"), "tgb answers: {output:?}");
    let sleeper = Command::new(CROSSWAY)
        .args(["guest", "exec", &tgb, "--", "sleep", "600"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    await_true("the command runs", || !exec(&tgb, "pgrep -x sleep").stdout.is_empty());
    // Of the processes with this name, the kernel is the one that is not a child of another one; the others are its
    // helpers and the memory of its processes. Process ids do not show the age: they wrap around.
    let all = processes(&[&kernel_word(&tgb)]);
    let kernel = *all.iter().find(|pid| !all.contains(&parent(**pid))).expect("tgb's kernel");
    assert!(Command::new("kill").args(["-9", &kernel.to_string()]).status().unwrap().success());
    let output = sleeper.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains(&format!("guest '{tgb}' ended")), "{output:?}");
    await_true("nothing of tgb is left", || {
        processes(&[&kernel_word(&tgb)]).is_empty()
            && processes(&["guest-keeper", &tgb]).is_empty()
            && !Path::new(&format!("/run/crossway/guest/{tgb}")).exists()
    });
    assert!(!said(&["guest", "list"]).contains(&tgb));
}

#[test]
fn one_guest_holds_two_hosts_and_a_killed_keeper_leaves_nothing() {
    let tg3 = own("tg3");
    let Some(_guest) = boot(&tg3, &["--memory", "384"]) else { return };
    let script = format!(
        "{CROSSWAY} net up --name in --hosts x,y --rate 100mbit --delay 1ms >/dev/null && \
         {CROSSWAY} net exec in/x -- python3 -c \"import socket; socket.create_connection(('10.77.0.2',1),120)\" \
         2>&1 | tail -n 1; {CROSSWAY} net list"
    );
    let output = exec(&tg3, &script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("ConnectionRefusedError"), "{output:?}");
    assert!(text.contains("netem"), "this guest's kernel has netem: {output:?}");
    assert!(!said(&["net", "list"]).contains("in/x"), "the guest's network is its own");

    let keeper = processes(&["guest-keeper", &tg3]);
    let [keeper] = keeper[..] else { panic!("one keeper, not {keeper:?}") };
    assert!(Command::new("kill").args(["-9", &keeper.to_string()]).status().unwrap().success());
    await_true("its kernel dies with it", || processes(&[&kernel_word(&tg3)]).is_empty());
    assert!(!said(&["guest", "list"]).contains(&tg3));
    assert!(
        !Path::new(&format!("/run/crossway/guest/{tg3}")).exists(),
        "the next command has cleaned up"
    );
}

#[test]
fn a_guest_for_one_command_gives_its_status_and_the_legacy_state_works_too() {
    let output = Command::new(CROSSWAY)
        .args(["guest", "run", "--", "sh", "-c", "uname -s; echo $GLIBC_TUNABLES; exit 3"])
        .env("CROSSWAY_GUEST_REGISTERS", "hidden")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let why = errors(&output);
    if why.contains("needs root") || why.contains("was not found; install it") {
        eprintln!("SKIP guest run: {why}");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    // A kernel under QEMU keeps its programs' registers by itself.
    let tunables = if usual_is_qemu() { "\n" } else { "glibc.cpu.hwcaps=" };
    assert!(text.starts_with(&format!("Linux\n{tunables}")), "{text}");
    let output = crossway(&["guest", "up", "Bad_Name"]);
    assert!(errors(&output).contains("guest name 'Bad_Name'"), "{output:?}");
    let output = crossway(&["guest", "run", "--memory", "1", "--", "true"]);
    assert!(errors(&output).contains("guest memory '1 MiB'"), "{output:?}");
}

/// Every mechanism can be measured in a guest, whose kernel may be older than this machine's, and which has one CPU and
/// counts CPU time in ticks.
#[test]
fn a_guest_s_kernel_measures_every_mechanism_that_it_has() {
    // The measured time is several ticks of 10 ms, so that even on a busy machine each trial has a message.
    const PLAN: &str = "about = 'guest'\n[group.g]\nmechanisms = 'all'\nworkload = 'ping-pong'\n\
        size_bytes = [64]\nplacement = 'same-core'\ntrials = 1\nwarmup_ms = 10\nmeasure_ms = 80\n";
    let tg4 = own("tg4");
    let Some(_guest) = boot(&tg4, &["--memory", "1024"]) else { return };
    let script = format!(
        "cat > /run/plan.toml <<'END'\n{PLAN}END\n\
         {CROSSWAY} measure /run/plan.toml --out /run/o --json >&2; cat /run/o/*/results.jsonl"
    );
    let output = exec(&tg4, &script);
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let records: Vec<Record> =
        text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    for record in &records {
        match record.status {
            Status::Ok => {
                let few = "counts CPU time in steps of 10 ms";
                let why = record.nulls.get("cost").map_or("", String::as_str);
                assert!(record.cost.is_some() || why.contains(few), "{record:?}");
            }
            Status::Skipped => assert!(record.remedy.is_some(), "{record:?}"),
            // This is due to the machine, not a defect.
            Status::Degraded => {}
            Status::Failed => panic!("{record:?}"),
        }
    }
    for id in ["pipe", "uring-pipe", "shm-futex", "tipc-kernel-stream", "tipc-kernel-rdm"] {
        let done = |r: &&Record| matches!(r.status, Status::Ok | Status::Degraded);
        let measured = |r: &&Record| r.mechanism == id && done(r);
        assert!(records.iter().any(|r| measured(&r)), "{id} was not measured");
    }
}
