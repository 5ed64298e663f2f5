//! What a process inherits from the one that starts it: signals, umask, limits, closed streams.

use crossway_sys::pipe::PipeEnd;

use super::*;

#[test]
fn inherited_settings_do_not_matter() {
    let place = Place::new(PLAN);
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    let under = |settings: &str, args: &[&str]| {
        let command = place.command(&[]);
        let mut shell = Command::new("bash");
        shell.current_dir(place.dir.path());
        shell.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        shell.arg("-c").arg(format!("{settings} \"$@\"")).arg("bash").arg(program).args(args);
        shell.output().unwrap()
    };
    if works(&["env", "--ignore-signal=CHLD", "true"], "use GNU coreutils 8.31 or later") {
        for args in [&["doctor"][..], &["contender", "list"], &["measure", "plan.toml"]] {
            let ran =
                under("env --ignore-signal=CHLD --block-signal=TERM --block-signal=INT", args);
            assert!(!text(&ran).contains("No child process"), "{}", text(&ran));
            assert!(ran.status.success() || args[0] == "doctor", "{}", text(&ran));
        }
    }
    for mask in ["0", "0777"] {
        let ran = under(&format!("umask {mask};"), &["measure", "plan.toml"]);
        assert!(ran.status.success(), "umask {mask}: {}", text(&ran));
    }
    for path in tree_of(&place.dir.path().join("out")) {
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        let is_link = path.is_symlink();
        assert!(
            is_link || mode & 0o002 == 0 && mode & 0o600 == 0o600,
            "{} {mode:o}",
            path.display()
        );
    }
    // Too little for a record, and for the page.
    for kib in [8, 100] {
        let ran = under(
            &format!("ulimit -f {kib};"),
            &["measure", "quick", "-f", "fifo", "--trials", "1", "--measure-ms", "2"],
        );
        let said = text(&ran);
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("ulimit -f") && !said.contains("defect"), "names the limit: {said}");
    }
    for args in
        [&["report", "latest", "--bundle"][..], &["observe", "--record", "new", "--", "true"]]
    {
        let said = text(&under("ulimit -f 0;", args));
        assert!(said.contains("ulimit -f"), "{args:?} names the limit: {said}");
    }
    // The remedy is that of the limit, not of the mechanism that met it.
    let said = text(&under("ulimit -n 16;", &["doctor", "--missing"]));
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("raise it: ulimit -n") && !said.contains("kernel.pty.max"), "{said}");
}

/// As under systemd, which lets services ignore SIGPIPE.
#[test]
fn programs_started_by_this_one_inherit_what_it_has_inherited() {
    if !works(&["env", "--ignore-signal=PIPE", "true"], "use GNU coreutils 8.31 or later") {
        return;
    }
    super::built::preload();
    let place = Place::new(PLAN);
    let program = assert_cmd::cargo::cargo_bin!("crossway").display().to_string();
    let inherited = |through: &[&str]| -> Vec<String> {
        let mut command = Command::new("bash");
        command.current_dir(place.dir.path());
        command.env("XDG_RUNTIME_DIR", place.dir.path().join("rt"));
        let settings = "umask 0137; exec env --ignore-signal=PIPE --ignore-signal=CHLD \
            --ignore-signal=INT --block-signal=USR1 --block-signal=WINCH \"$@\"";
        command.args(["-c", settings, "bash"]).args(through);
        // It must still run when it is observed, after a second.
        let seconds = if through.contains(&"observe") { "10" } else { "0" };
        let script = "grep -E '^(SigBlk|SigIgn|Umask):' /proc/self/status; exec sleep $0";
        command.args(["bash", "-c", script, seconds]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{through:?}: {}", text(&output));
        let out = String::from_utf8(output.stdout).unwrap();
        let is_wanted = |line: &&str| line.starts_with("Sig") || line.starts_with("Umask");
        out.lines().filter(is_wanted).map(str::to_owned).collect()
    };
    let plain = inherited(&[]);
    assert_eq!(plain.len(), 3, "{plain:?}");
    assert_eq!(inherited(&[&program, "run", "--"]), plain, "run");
    assert_eq!(inherited(&[&program, "observe", "--"]), plain, "observe");
}

#[test]
fn too_few_threads_or_descriptors_are_one_error_soon() {
    if !can_be_another_user() {
        return;
    }
    let place = Place::new(PLAN);
    let dir = shared(&place);
    let limited = |limit: &str, args: &[&str]| {
        let script = format!("{limit}; exec \"$0\" \"$@\"");
        let through =
            ["setpriv", "--reuid", "65533", "--clear-groups", "bash", "-c", script.as_str()];
        let ran = bare(&through, args, &dir).output().unwrap();
        (ran.status.code(), text(&ran))
    };
    for args in [&["list"][..], &["doctor"], &["measure", "quick", "-f", "fifo"]] {
        let (code, said) = limited("ulimit -u 0", args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains("ulimit -u") && !said.contains("panicked"), "{args:?}: {said}");
    }
    let (code, said) = limited("ulimit -s 64", &["list"]);
    assert!(code == Some(2) && said.contains("ulimit -s 8192"), "{said}");
    let (code, said) = limited("ulimit -S -s 64", &["--version"]);
    assert_eq!(code, Some(0), "a limit that may be raised: {said}");
    let begin = std::time::Instant::now();
    let (code, said) = limited("ulimit -n 24", &["list"]);
    assert!(code.is_some() && !said.contains("panicked"), "{said}");
    // It waited 20 s for each of several mechanisms.
    assert!(begin.elapsed().as_secs() < 60, "{:?}: {said}", begin.elapsed());
}

#[test]
fn too_little_memory_for_data_is_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let limited = |args: &[&str]| {
        let through = ["sh", "-c", "ulimit -d 3000 && exec \"$0\" \"$@\""];
        bare(&through, args, dir.path()).output().unwrap()
    };
    let socket = dir.path().join("tipcd.sock").display().to_string();
    let ran = limited(&["tipcd", "--socket", &socket]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("limit of data (RLIMIT_DATA), 3000 KiB; raise it: ulimit -d"), "{said}");
    // Whether these need more depends on the build and the machine.
    for args in [&["list"][..], &["measure", "quick", "-f", "fifo"]] {
        let ran = limited(args);
        let (code, said) = (ran.status.code(), text(&ran));
        assert!(matches!(code, Some(0..=2)), "{args:?}: {said}");
        assert!(!said.contains("memory allocation of"), "{args:?}: {said}");
        assert!(code != Some(2) || said.contains("ulimit -d"), "{args:?}: {said}");
    }
}

#[test]
fn little_locked_memory_is_reported_and_fails_no_trial() {
    if !can_be_another_user() {
        return;
    }
    let place = Place::new("");
    let dir = shared(&place);
    fs::write(dir.join("plan.toml"), PLAN.replace("fifo", "uring-pipe")).unwrap();
    for kib in [16, 32] {
        let limit = format!("ulimit -l {kib}; exec \"$@\"");
        let through = [
            "setpriv",
            "--reuid",
            "65533",
            "--regid",
            "65533",
            "--clear-groups",
            "bash",
            "-c",
            &limit,
            "bash",
        ];
        let ran = bare(&through, &["measure", "plan.toml", "--name", &format!("of-{kib}")], &dir)
            .output()
            .unwrap();
        assert!(!text(&ran).contains("failed:"), "{}", text(&ran));
    }
}

/// Starts the program with a stream that nobody reads, and returns its exit status and what it wrote to the other.
fn unread(place: &Place, args: &[&str], closed: &[i32]) -> Output {
    let mut command = place.command(args);
    let broken = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    if closed.contains(&1) {
        command.stdout(broken());
    }
    if closed.contains(&2) {
        command.stderr(broken());
    }
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_reader_that_leaves_ends_no_measurement_and_no_command_in_a_panic() {
    let commands = [
        &["list"][..],
        &["doctor"],
        &["env"],
        &["--help"],
        &["contender", "list"],
        &["man"],
        &["completions", "bash"],
        &["measure", "quick", "--list"],
        &["net", "list"],
        &["channel", "top", "--once"],
        &["tipc", "node", "list"],
        &["rank"],
        &["report"],
        &["compare"],
        &["export"],
        &["faults", "pipe"],
        &["no-such-command"],
    ];
    let place = Place::new(PLAN);
    for args in commands {
        for closed in [&[1][..], &[2], &[1, 2]] {
            let ran = unread(&place, args, closed);
            let code = ran.status.code();
            assert!(matches!(code, Some(0..=2)), "{args:?} without {closed:?}: {}", text(&ran));
            assert!(!text(&ran).contains("panicked"), "{args:?}: {}", text(&ran));
        }
    }
    for (at, closed) in [&[1][..], &[2], &[1, 2]].into_iter().enumerate() {
        let name = format!("unread-{at}");
        let ran = unread(&place, &["measure", "plan.toml", "--name", &name], closed);
        assert_eq!(ran.status.code(), Some(0), "without {closed:?}: {}", text(&ran));
    }
    for run in fs::read_dir(place.dir.path().join("out")).unwrap().map(|run| run.unwrap().path()) {
        if run.join("results.jsonl").exists() && !run.is_symlink() {
            let records = crossway_records::records_io::read_records(&run).unwrap().records;
            assert!(records.iter().all(|r| r.status != Status::Failed) && !records.is_empty());
        }
    }
}

/// As by programs of node.js and by ssh, whose other processes have the same stream open.
#[test]
fn a_stream_that_does_not_block_loses_nothing_of_a_long_output() {
    let place = Place::new("");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let shared = writer.try_clone().unwrap().into();
    let mut shared = PipeEnd::new(shared).unwrap();
    shared.set_nonblocking().unwrap();
    let holds = shared.set_capacity_bytes(4096).unwrap();
    drop(shared);
    let mut command = place.command(&["measure", "quick", "--list", "--json"]);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    // Until more than a pipe holds has been written, or the program has given up.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() && text.len() > holds, "{status}, {} bytes", text.len());
    assert!(text.trim_end().ends_with([']', '}']));
}

#[test]
fn streams_that_are_closed_at_the_start_are_replaced() {
    let place = Place::new(PLAN);
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let mut shell = Command::new("sh");
        shell.current_dir(place.dir.path()).env("XDG_RUNTIME_DIR", place.dir.path().join("rt"));
        shell.arg("-c").arg(format!("exec \"$@\" {closed}")).arg("sh");
        let ran = shell.arg(program).args(["measure", "plan.toml"]).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{closed}: {}", text(&ran));
    }
    assert_eq!(place.leftovers(), Vec::<String>::new());
}
