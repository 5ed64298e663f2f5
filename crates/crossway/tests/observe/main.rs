//! `crossway observe` on the command line: maps of commands, recordings by eBPF and strace, imported logs, their summary,
//! CSV and page, and what is refused.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../cli/mod.rs"]
mod cli;
mod pages;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use cli::text;

fn observe(dir: &Path, args: &[&str]) -> Output {
    cli::crossway(dir, &[&["observe"], args].concat())
}

#[test]
fn a_command_is_mapped_and_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["--after", "0.5", "--", "sh", "-c", "sleep 3 | cat"];
    let shown = text(&observe(dir.path(), &command));
    let row = shown.lines().find(|line| line.contains("sleep (") && line.contains("cat ("));
    assert!(row.is_some_and(|row| row.contains("→") && row.contains("pipe")), "{shown}");
    let json = [&["--json"], &command[..]].concat();
    let document: serde_json::Value =
        serde_json::from_str(&text(&observe(dir.path(), &json))).unwrap();
    let carriers = document["channels"].as_array().unwrap().iter().map(|c| &c["carrier"]);
    assert!(carriers.into_iter().any(|carrier| carrier == "pipe"), "{document}");
}

#[test]
fn a_log_is_imported_summarised_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let log = "1 1.000000 write(1<pipe:[7]>, \"secret\", 6) = 6 <0.000010>\n\
               2 1.000005 read(0<pipe:[7]>, \"secret\", 10) = 6 <0.000020>\n";
    std::fs::write(dir.path().join("log"), log).unwrap();
    let made = text(&observe(dir.path(), &["--import", "log", "--record", "rec"]));
    assert!(made.contains("2 events"), "{made}");
    let shown = text(&observe(dir.path(), &["--recording", "rec"]));
    assert!(shown.contains("pipe") && shown.contains("6 B"), "{shown}");
    let csv = text(&observe(dir.path(), &["--recording", "rec", "--csv", "-"]));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(!csv.contains("secret"));
    // A second recording does not overwrite the first one.
    let again = observe(dir.path(), &["--import", "log", "--record", "rec"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"), "{again:?}");
}

#[test]
fn channels_between_the_same_programs_are_one_row_whose_words_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = String::from(
        "11111 0.5 execve(\"/bin/redis-benchmark\", [], 0x7 /* 9 vars */) = 0 <0.1>\n\
         22222 0.7 execve(\"/bin/redis-server\", [], 0x7 /* 9 vars */) = 0 <0.1>\n",
    );
    for nth in 0..200 {
        let port = 5000 + nth % 50;
        let (client, server) =
            (format!("127.0.0.1:{port}->127.0.0.1:80"), format!("127.0.0.1:80->127.0.0.1:{port}"));
        let at = |us: u32| format!("1.{:06}", nth * 1000 + us);
        for (us, pid, call, end) in [
            (100, 11111, "write(3", &client),
            (150, 22222, "read(4", &server),
            (200, 22222, "write(4", &server),
            (250, 11111, "read(3", &client),
        ] {
            log += &format!("{pid} {} {call}<TCP:[{end}]>, \"\"..., 64) = 64 <0.000010>\n", at(us));
        }
    }
    std::fs::write(dir.path().join("log"), log).unwrap();
    text(&observe(dir.path(), &["--import", "log", "--record", "rec"]));
    for columns in ["80", "120"] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
        command.args(["observe", "--recording", "rec"]).env("COLUMNS", columns);
        let shown = text(&command.current_dir(dir.path()).output().unwrap());
        let rows: Vec<&str> = shown.lines().filter(|line| line.contains("tcp-local")).collect();
        assert_eq!(rows.len(), 2, "one for each direction: {shown}");
        assert!(rows.iter().all(|row| row.contains("200")), "{shown}");
        assert!(shown.contains("channels)") && shown.contains("(50"), "{shown}");
        assert!(shown.contains("redis-benchmark") && shown.contains("redis-server"), "{shown}");
        assert_eq!(shown.contains("left out at this width"), columns == "80", "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= columns.parse().unwrap()));
    }
    let csv = text(&observe(dir.path(), &["--recording", "rec", "--csv", "-"]));
    assert_eq!(csv.lines().count(), 801);
}

/// Whether eBPF can be used here.
fn by_ebpf(dir: &Path) -> bool {
    let tried = observe(dir, &["--record", "probe", "--by", "ebpf", "--", "true"]);
    if !tried.status.success() {
        eprintln!("SKIP observe: {}", String::from_utf8_lossy(&tried.stderr));
    }
    tried.status.success()
}

#[test]
fn a_command_is_recorded_from_its_beginning_either_way() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "i=0; while [ $i -lt 20 ]; do echo twelve bytes; i=$((i + 1)); done | cat > /dev/null";
    let ebpf = by_ebpf(dir.path());
    for by in ["ebpf", "strace"] {
        let args = ["--record", by, "--by", by, "--", "sh", "-c", script];
        if by == "ebpf" && !ebpf {
            continue;
        }
        let output = observe(dir.path(), &args);
        if by == "strace" && !output.status.success() {
            eprintln!("SKIP observe: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        text(&output);
        let csv = text(&observe(dir.path(), &["--recording", by, "--csv", "-"]));
        let sends: Vec<&str> = csv.lines().filter(|line| line.contains(",send,")).collect();
        let of_echo = sends.iter().filter(|line| line.contains(",13,")).count();
        assert_eq!(of_echo, 20, "{by}: {csv}");
        let shown = text(&observe(dir.path(), &["--recording", by]));
        assert!(shown.contains("cat (") && shown.contains(&format!("recorded by {by}")), "{shown}");
    }
}

#[test]
fn the_last_fifth_is_recorded_on_cpus_that_do_not_sleep() {
    let dir = tempfile::tempdir().unwrap();
    if !by_ebpf(dir.path()) {
        return;
    }
    let script = "i=0; while [ $i -lt 200 ]; do echo twelve bytes; sleep 0.01; i=$((i + 1)); done | cat > /dev/null";
    for (into, more, is_awake) in
        [("awake", None, true), ("asleep", Some("--no-awake-part"), false)]
    {
        let mut args = vec!["--record", into, "--by", "ebpf", "--time", "1.5"];
        args.extend(more);
        args.extend(["--", "sh", "-c", script]);
        text(&observe(dir.path(), &args));
        let csv = text(&observe(dir.path(), &["--recording", into, "--csv", "-"]));
        let sends = |awake: &str| {
            let those = csv.lines().filter(|line| line.contains(",send,") && line.ends_with(awake));
            those.count()
        };
        assert_eq!((sends(",0") > 0, sends(",1") > 0), (true, is_awake), "{into}: {csv}");
        let shown = observe(dir.path(), &["--recording", into]);
        let said = format!("{}{}", text(&shown), String::from_utf8_lossy(&shown.stderr));
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains("on CPUs kept from sleeping"), is_awake, "{said}");
    }
}

#[test]
fn a_signal_ends_the_recording_and_the_command_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo $$ > pid; while :; do echo something; sleep 0.01; done | cat > /dev/null";
    let ways = if by_ebpf(dir.path()) { &["ebpf", "strace"][..] } else { &["strace"] };
    for (by, signal, whom) in ways.iter().flat_map(|by| {
        // From the keyboard, the signal is sent to the whole process group.
        [("INT", ""), ("TERM", ""), ("INT", "-")].map(|(signal, whom)| (*by, signal, whom))
    }) {
        let into = format!("{by}-{signal}{whom}");
        let mut recorder = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
            .args(["observe", "--record", &into, "--by", by, "--", "sh", "-c", script])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            // The command goes on, and would keep a pipe open.
            .stderr(std::fs::File::create(dir.path().join("said")).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let first = dir.path().join(&into).join("events-000001.parquet");
        while !first.exists() && recorder.try_wait().unwrap().is_none() {
            assert!(std::time::Instant::now() < until, "{into}: nothing is recorded");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let to = format!("{whom}{}", recorder.id());
        Command::new("kill").args(["-s", signal, "--", &to]).status().unwrap();
        // Without the signal, the command would never end.
        let status = recorder.wait().unwrap();
        let said = std::fs::read_to_string(dir.path().join("said")).unwrap();
        if by == "strace" && !first.exists() {
            eprintln!("SKIP observe: {said}");
            continue;
        }
        assert!(status.success(), "{into}: {said}");
        let command = std::fs::read_to_string(dir.path().join("pid")).unwrap();
        let is_alive = Path::new("/proc").join(command.trim()).exists();
        Command::new("kill").args(["-9", "--", &format!("-{}", command.trim())]).status().unwrap();
        assert!(is_alive && said.contains("goes on as process"), "{into}: {said}");
        let shown = observe(dir.path(), &["--recording", &into]);
        assert!(text(&shown).contains("10 B"), "{into}: {shown:?}");
        assert!(!String::from_utf8_lossy(&shown.stderr).contains("did not finish"), "{shown:?}");
    }
    // The same of a map, whose command has the group of its observer.
    let mut mapper = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .args(["observe", "--after", "0.1", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mapper.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("waiting for the command")));
    Command::new("kill").arg(mapper.id().to_string()).status().unwrap();
    assert!(mapper.wait().unwrap().success());
    let command = std::fs::read_to_string(dir.path().join("pid")).unwrap();
    assert!(Command::new("kill").arg(command.trim()).status().unwrap().success(), "it goes on");
}

/// The programs in the kernel that a process holds.
fn kernel_programs(pid: u32) -> Vec<u32> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mut found: Vec<u32> = texts
        .flat_map(|text| {
            let ids = text.lines().filter_map(|line| line.strip_prefix("prog_id:"));
            ids.filter_map(|id| id.trim().parse().ok()).collect::<Vec<u32>>()
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_recorder_that_is_killed_leaves_nothing_in_the_kernel_and_a_readable_recording() {
    let dir = tempfile::tempdir().unwrap();
    if !by_ebpf(dir.path()) {
        return;
    }
    let mut observed = Command::new("sh")
        .args(["-c", "while :; do echo something; done | cat > /dev/null"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut recorder = Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .args(["observe", "--record", "killed", "--by", "ebpf"])
        .arg(observed.id().to_string())
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let first = dir.path().join("killed/events-000001.parquet");
    let wait = || {
        assert!(std::time::Instant::now() < until, "it takes too long");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    while !first.exists() {
        wait();
    }
    let programs = kernel_programs(recorder.id());
    assert!(programs.len() >= 5, "{programs:?}");
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let left = || {
        let ids = aya::programs::loaded_programs().filter_map(Result::ok).map(|p| p.id());
        ids.filter(|id| programs.contains(id)).count()
    };
    // The kernel frees them a little later.
    while left() > 0 {
        wait();
    }
    assert!(observed.try_wait().unwrap().is_none(), "the program goes on");
    // The shell is the parent of both; without their writer or reader they end.
    let children = format!("/proc/{0}/task/{0}/children", observed.id());
    for child in std::fs::read_to_string(children).unwrap_or_default().split_whitespace() {
        let _ = Command::new("kill").args(["-9", child]).status();
    }
    let _ = observed.kill();
    observed.wait().unwrap();
    let output = observe(dir.path(), &["--recording", "killed"]);
    let shown = text(&output);
    assert!(shown.contains("pipe") && shown.contains("10 B"), "{shown}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not finish"), "{output:?}");
}

#[test]
fn a_map_and_a_recording_become_pages_without_scripts() {
    let dir = tempfile::tempdir().unwrap();
    let log = "1 1.000000 write(1<pipe:[7]>, \"secret\", 6) = 6 <0.000010>\n\
               2 1.000005 read(0<pipe:[7]>, \"secret\", 10) = 6 <0.000020>\n\
               1 1.000100 write(1<pipe:[7]>, \"secret\", 600) = 600 <0.000010>\n";
    std::fs::write(dir.path().join("log"), log).unwrap();
    text(&observe(dir.path(), &["--import", "log", "--record", "rec"]));
    text(&observe(dir.path(), &["--recording", "rec", "--page", "rec.html"]));
    let page = std::fs::read_to_string(dir.path().join("rec.html")).unwrap();
    assert!(page.contains("606 B") && page.contains("class=\"bars\""), "{page}");
    assert!(
        !page.contains("secret")
            && !page.contains("<script")
            && !page.contains("http-equiv=\"refresh")
    );
    let args = ["--page", "map.html", "--after", "0.5", "--", "sh", "-c", "sleep 2 | cat"];
    text(&observe(dir.path(), &args));
    let page = std::fs::read_to_string(dir.path().join("map.html")).unwrap();
    assert!(page.contains("class=\"picture\"") && page.contains(">sleep<"), "{page}");
}

#[test]
fn what_cannot_be_observed_is_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&[][..], "nothing to observe"),
        (&["no-such-program"], "--all"),
        (&["4194304"], "there is no process 4194304"),
        (&["--recording", "nowhere"], "nowhere"),
        (&["--import", "nowhere", "--record", "rec"], "nowhere"),
        (&["--import", "/dev/null", "--record", "rec"], "unknown format"),
        (&["--", "/no/such/program"], "/no/such/program"),
    ] {
        let output = observe(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(said), "{args:?}: {error}");
    }
}
